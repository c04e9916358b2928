"""What fairq_ipy is measured against. Each is the plain, correct form of an idea that is in use elsewhere.

`SemaphoreQueue`, `HeapSemaphore` and `Mesh` live on one event loop, `LoopDispatcher` on one of its own, which other
threads and loops call; `LockedQueue` belongs to no loop. All of them run jobs, at most `slots` at a time.
"""

from __future__ import annotations

import asyncio
import heapq
import importlib.util
import itertools
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

Job: TypeAlias = Callable[[], Awaitable[Any]]


def installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


# ------------------------------------------------------------------------------------------------------- bare heaps


@dataclass(order=True, slots=True)
class Item:
    """An entry of the published priority queue: the pair decides, what is behind it never compares."""

    priority: int
    sequence: int
    job: Any = field(default=None, compare=False)
    future: Any = field(default=None, compare=False)


def ordered_item(sequence: int) -> Item:
    return Item(1, sequence)


def plain_item(sequence: int) -> tuple[int, int, None]:
    return (1, sequence, None)


class BareHeap:
    """A heapq that stays at one depth.

    Args:
        queued: how deep.
        item: makes an entry from its sequence number.
    """

    def __init__(self, queued: int, item: Callable[[int], Any]) -> None:
        self._item = item
        self._sequence = itertools.count()
        self._heap: list[Any] = [self._item(next(self._sequence)) for _ in range(queued)]
        heapq.heapify(self._heap)

    def seconds_per_step(self, steps: int) -> float:
        """Push and pop `steps` times, and return the thread's CPU seconds for one of each."""
        items = [self._item(next(self._sequence)) for _ in range(steps)]
        heap, push, pop = self._heap, heapq.heappush, heapq.heappop
        began = time.thread_time()
        for item in items:
            push(heap, item)
            pop(heap)
        return (time.thread_time() - began) / steps


# ---------------------------------------------------------------------------------------------------- on one loop


class AsyncQueue(Protocol):
    """Whatever runs a job of a task when a slot is free."""

    async def call(self, job: Job, tenant: str = "", priority: int = 1) -> Any: ...


class Unlimited:
    """No queue at all: what the calls cost by themselves."""

    async def call(self, job: Job, tenant: str = "", priority: int = 1) -> Any:
        del tenant, priority
        return await job()


class SemaphoreQueue:
    """asyncio.Semaphore: first come, first served."""

    def __init__(self, slots: int) -> None:
        self.slots = asyncio.Semaphore(slots)

    async def call(self, job: Job, tenant: str = "", priority: int = 1) -> Any:
        del tenant, priority
        async with self.slots:
            return await job()


class HeapSemaphore:
    """The published heap and semaphore: a heap of ordered items, a semaphore, and a future for each item's result.

    Whoever gets the semaphore runs the first item of the heap, which may be another caller's.
    """

    def __init__(self, slots: int) -> None:
        self.slots = asyncio.Semaphore(slots)
        self._heap: list[Item] = []
        self._sequence = itertools.count()

    async def call(self, job: Job, tenant: str = "", priority: int = 1) -> Any:
        del tenant
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._heap, Item(priority, next(self._sequence), job, future))
        try:
            async with self.slots:
                await self._run_first()
            return await future
        except asyncio.CancelledError:
            future.cancel()
            raise

    async def _run_first(self) -> None:
        while self._heap:
            item = heapq.heappop(self._heap)
            if item.future.done():
                continue
            try:
                result = await item.job()
            except asyncio.CancelledError:
                item.future.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - it is the item's caller's
                if not item.future.done():
                    item.future.set_exception(error)
            else:
                if not item.future.done():
                    item.future.set_result(result)
            return


class Limiter:
    """aiolimiter's leaky bucket, with a rate that is never reached: it has no other bound, and knows no tenants."""

    def __init__(self) -> None:
        from aiolimiter import AsyncLimiter

        self._limiter: AbstractAsyncContextManager[None] = AsyncLimiter(1e9, 1)

    async def call(self, job: Job, tenant: str = "", priority: int = 1) -> Any:
        del tenant, priority
        async with self._limiter:
            return await job()


class Mesh:
    """priomesh's queue, with a worker task for each slot and a future for each job's result."""

    def __init__(self, slots: int = 0) -> None:
        import priomesh  # type: ignore[import-not-found,unused-ignore]  # not everywhere

        self._module = priomesh
        self._queue = priomesh.PriorityFairQueue()
        self._sequence = itertools.count()
        self._calls: dict[str, tuple[Job, asyncio.Future[Any]]] = {}
        self._workers = [asyncio.ensure_future(self._work()) for _ in range(slots)]
        self._names: Iterator[str] = iter(())

    async def call(self, job: Job, tenant: str = "", priority: int = 1) -> Any:
        del priority
        future = asyncio.get_running_loop().create_future()
        name = str(next(self._sequence))
        self._calls[name] = (job, future)
        await self._put(name, tenant)
        return await future

    async def _put(self, name: str, tenant: str) -> None:
        await self._queue.put(self._module.Job(name, self._module.Priority.NORMAL, tenant))

    async def _work(self) -> None:
        while True:
            job, future = self._calls.pop((await self._queue.get()).name)
            future.set_result(await job())

    async def fill(self, queued: int, tenants: int) -> None:
        """Queue that many jobs of that many tenants, which no worker takes."""
        names = [f"tenant-{number}" for number in range(tenants)]
        self._names = itertools.cycle(names)
        for number in range(queued):
            await self._put("", names[number % tenants])

    async def seconds_per_step(self, steps: int) -> float:
        """Put and get `steps` times, and return the thread's CPU seconds for one of each."""
        began = time.thread_time()
        for _ in range(steps):
            await self._put("", next(self._names))
            await self._queue.get()
        return (time.thread_time() - began) / steps

    def close(self) -> None:
        for worker in self._workers:
            worker.cancel()


# ------------------------------------------------------------------------------------------- for threads and loops


class LoopDispatcher:
    """The text-book dispatcher: a priority queue on a loop of its own, a worker task for each slot.

    Other threads and loops reach it through `asyncio.run_coroutine_threadsafe`.
    """

    def __init__(self, slots: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._sequence = itertools.count()
        self._busy = 0
        self._thread = threading.Thread(target=self._loop.run_forever, name="dispatcher", daemon=True)
        self._thread.start()
        self._on_loop(self._open, slots)

    def _on_loop(self, function: Callable[..., Any], *args: Any) -> Any:
        async def run() -> Any:
            return function(*args)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _open(self, slots: int) -> None:
        self._queue: asyncio.PriorityQueue[tuple[int, int, Job, asyncio.Future[Any]]] = asyncio.PriorityQueue()
        self._workers = [self._loop.create_task(self._work()) for _ in range(slots)]

    async def _work(self) -> None:
        while True:
            _, _, job, future = await self._queue.get()
            if future.cancelled():
                continue
            self._busy += 1
            try:
                result = await job()
                if not future.done():
                    future.set_result(result)
            finally:
                self._busy -= 1

    async def _submit(self, job: Job, priority: int) -> Any:
        future = self._loop.create_future()
        await self._queue.put((priority, next(self._sequence), job, future))
        return await future

    async def call(self, job: Job, tenant: str = "", priority: int = 1) -> Any:
        """Run `job` on the dispatcher's loop, and wait on the caller's."""
        del tenant
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._submit(job, priority), self._loop))

    def call_blocking(self, job: Job, tenant: str = "", priority: int = 1) -> Any:
        """Run `job` on the dispatcher's loop, and block the calling thread meanwhile."""
        del tenant
        future = asyncio.run_coroutine_threadsafe(self._submit(job, priority), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def taken(self) -> int:
        """Return how many slots no longer serve: busy ones, and those whose worker has died."""
        return int(self._on_loop(lambda: self._busy + sum(worker.done() for worker in self._workers)))

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class LockedQueue:
    """A lock around a heap of waiters; whoever gets a slot does its own I/O and gives the slot back.

    Args:
        slots: how many run at a time.
        careful: whether a waiter that leaves before its turn says so. The text-book form, acquire and then try and
            finally, does not: its turn comes all the same, and nobody takes it.
    """

    def __init__(self, slots: int, *, careful: bool = False) -> None:
        self._careful = careful
        self._lock = threading.Lock()
        self._slots = self._free = slots
        self._sequence = itertools.count()
        self._heap: list[tuple[int, int, _Waiter]] = []

    def _take(self, waiter: _Waiter, priority: int) -> bool:
        with self._lock:
            if self._free:
                self._free -= 1
                waiter.granted = True
                return True
            heapq.heappush(self._heap, (priority, next(self._sequence), waiter))
            return False

    def _give_back(self) -> None:
        with self._lock:
            waiter = self._next()
            if waiter is None:
                self._free += 1
            else:
                waiter.granted = True
        if waiter is not None:
            waiter.wake()

    def _next(self) -> _Waiter | None:
        while self._heap:
            waiter = heapq.heappop(self._heap)[2]
            if not waiter.gone:
                return waiter
        return None

    def _leave(self, waiter: _Waiter) -> None:
        if not (self._careful or waiter.running):
            return
        with self._lock:
            waiter.gone = True
            granted = waiter.granted
        if granted:
            self._give_back()

    @contextmanager
    def slot(self, priority: int = 1) -> Iterator[None]:
        """Hold a slot; block the calling thread until there is one."""
        latch = threading.Event()
        waiter = _Waiter(latch.set)
        try:
            if not self._take(waiter, priority):
                latch.wait()
            waiter.running = True
            yield
        finally:
            self._leave(waiter)

    @asynccontextmanager
    async def slot_async(self, priority: int = 1) -> AsyncIterator[None]:
        """Hold a slot; await it on the running loop."""
        loop = asyncio.get_running_loop()
        latch = asyncio.Event()
        waiter = _Waiter(lambda: loop.call_soon_threadsafe(latch.set))
        try:
            if not self._take(waiter, priority):
                await latch.wait()
            waiter.running = True
            yield
        finally:
            self._leave(waiter)

    def taken(self) -> int:
        """Return how many slots are not free; all of them when the lock itself was left behind."""
        if not self._lock.acquire(timeout=1.0):
            return self._slots
        try:
            return self._slots - self._free
        finally:
            self._lock.release()


class _Waiter:
    __slots__ = ("gone", "granted", "running", "wake")

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self.granted = False
        self.running = False
        self.gone = False
