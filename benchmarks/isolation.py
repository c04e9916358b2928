"""What one caller's trouble costs the others: a cell that blocks the kernel's loop, interrupts, and cancellations.

Two things are measured of each queue. *Capacity left*: while tasks of the kernel's loop wait in the queue and a cell
blocks that loop, how many calls other threads get done, against the same seconds without the block. *Slots lost*: after
a storm of interrupts and cancellations at random moments, how many slots never come back.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from benchmarks import peers
from benchmarks.measure import COUNTED, WALL, Scale, interleaved, ratio
from benchmarks.ours import KeeperQueue, PermitQueue, Service
from benchmarks.rows import Line, Row, Target

SLOTS = 2
SHORT = Service(0.005)
"""What a call of the blocked-loop row takes at the endpoint."""

BRIEF = Service(0.0)
"""What a call of the storms takes: nothing, so that interrupts strike in the queue's own code and not in a wait."""


PATIENCE = 0.5
"""Seconds after which a slot that has not come back is lost, and a call that has not ended is stuck."""


class Permits(PermitQueue):
    """Permits for threads, too."""

    def call_blocking(self, job: Service, tenant: str = "t", priority: int = 1) -> int:
        del priority
        with self._block(tenant) as permit:
            time.sleep(job.seconds)
            return permit.ticket


class Locked(peers.LockedQueue):
    """A lock, and whoever is next does its own I/O."""

    async def call(self, job: Service, tenant: str = "", priority: int = 1) -> None:
        del tenant
        async with self.slot_async(priority):
            await job()

    def call_blocking(self, job: Service, tenant: str = "", priority: int = 1) -> None:
        del tenant
        with self.slot(priority):
            time.sleep(job.seconds)


HELD = "a task that holds a permit when its loop blocks keeps it; one that waits is offered a slot for 50 ms, once"

MAKERS: dict[str, Callable[[], Any]] = {
    "fairq_ipy": lambda: KeeperQueue(SLOTS),
    "fairq_ipy, permits": lambda: Permits(SLOTS),
    "loop dispatcher": lambda: peers.LoopDispatcher(SLOTS),
    "lock, caller does I/O": lambda: Locked(SLOTS),
    "the same, careful": lambda: Locked(SLOTS, careful=True),
}


def _close(queue: Any) -> None:
    close = getattr(queue, "close", None)
    if close is not None:
        close()


# ------------------------------------------------------------------------------------------------------ a blocked loop


def blocked(scale: Scale) -> Iterator[Line]:
    """Yield the capacity that is left to other threads while a cell blocks the kernel's loop."""
    seconds = scale.of(400, 300) / 1000
    for name, make in MAKERS.items():
        taken = interleaved(
            {
                "blocked": lambda make=make: _done_by_threads(make(), seconds, block=True),  # type: ignore[misc]
                "free": lambda make=make: _done_by_threads(make(), seconds, block=False),  # type: ignore[misc]
            },
            scale.few,
        )
        ours = name == "fairq_ipy"
        yield Line.of(
            f"calls done by threads while a cell blocks, against while none does: {name}",
            ratio(taken["blocked"], taken["free"]),
            clock=WALL,
            target=Target(0.9, "at least") if ours else None,
            note=HELD if name.endswith("permits") else "",
        )


def _done_by_threads(queue: Any, seconds: float, *, block: bool) -> float:
    """Return the calls that three threads get done in a while in which the kernel's loop is blocked, or idle."""
    done = itertools.count()
    over = threading.Event()

    def thread() -> None:
        while not over.is_set():
            queue.call_blocking(SHORT)
            next(done)

    threads = [threading.Thread(target=thread, daemon=True) for _ in range(3)]

    async def kernel() -> int:
        for each in threads:
            each.start()
        await asyncio.sleep(0.05)
        tasks = [asyncio.ensure_future(queue.call(SHORT)) for _ in range(6)]
        # Let them join the queue, and some of them go: a cell blocks when it likes.
        await asyncio.sleep(0.002)
        before = next(done)
        if block:
            time.sleep(seconds)  # noqa: ASYNC251 - the cell that blocks its loop
        else:
            await asyncio.sleep(seconds)
        count = next(done) - before - 1
        over.set()
        await asyncio.wait(tasks)
        return count

    try:
        # One more than was done, lest a queue that stands still divides by zero.
        return asyncio.run(kernel()) + 1.0
    finally:
        for each in threads:
            each.join(1.0)
        _close(queue)


# ------------------------------------------------------------------------------------------------------------- storms


def storms(scale: Scale) -> Iterator[Line]:
    """Yield how many slots are lost to interrupts of a thread and cancellations of tasks, out of ten thousand."""
    sys.unraisablehook = _but_interrupts
    for name, make in MAKERS.items():
        ours = name.startswith("fairq_ipy")
        each = scale.of(5_000, 500) if ours else scale.of(1_000, 250)
        # A queue that loses slots stands still after two; each round of strikes gets a fresh one.
        rounds = scale.of(20, 5) if ours else 5
        lost = sum(_interrupted(make(), each // rounds, seed) for seed in range(rounds))
        lost += sum(_cancelled(make(), each // rounds, seed) for seed in range(rounds))
        yield Line(
            f"slots lost to {each:,} interrupts and {each:,} cancellations: {name}",
            float(lost),
            unit="slots",
            clock=COUNTED,
            target=Target(0) if ours else None,
            note=f"of at most {2 * rounds * SLOTS}: {2 * rounds} rounds, each with a fresh queue of {SLOTS} slots",
        )


def _but_interrupts(problem: sys.UnraisableHookArgs) -> None:
    """Say nothing of interrupts that struck where none can be raised; they are what this row is about."""
    if not isinstance(problem.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(problem)


def _interrupted(queue: Any, strikes: int, seed: int) -> int:
    """Interrupt the main thread's calls that often, while another thread calls too; return the slots lost."""
    source = random.Random(seed)
    main = threading.get_ident()
    ready = threading.Semaphore(0)
    over = threading.Event()

    def neighbour() -> None:
        while not over.is_set():
            queue.call_blocking(BRIEF, "neighbour")

    def strike() -> None:
        for _ in range(strikes):
            # Not for ever: an interrupt that strikes in a weak reference's callback is swallowed there.
            ready.acquire(timeout=0.1)
            time.sleep(source.uniform(0.0, 0.001))
            signal.pthread_kill(main, signal.SIGINT)

    other = threading.Thread(target=neighbour, daemon=True)
    striker = threading.Thread(target=strike, daemon=True)
    other.start()
    striker.start()
    while striker.is_alive():
        with suppress(KeyboardInterrupt):
            ready.release()
            while striker.is_alive():
                queue.call_blocking(BRIEF, "main")
    over.set()
    other.join(PATIENCE)
    return _lost(queue)


def _cancelled(queue: Any, strikes: int, seed: int) -> int:
    """Cancel that many tasks at random moments, before their first step too; return the slots lost."""
    source = random.Random(seed)

    async def storm() -> None:
        left = strikes
        while left > 0:
            tasks = [asyncio.ensure_future(queue.call(BRIEF, f"tenant-{number}")) for number in range(8)]
            if source.random() < 0.7:
                await asyncio.sleep(source.uniform(0.0, 0.001))
            for task in tasks[: min(left, 5)]:
                task.cancel()
            left -= 5
            _, stuck = await asyncio.wait(tasks, timeout=PATIENCE)
            if stuck:
                return

    asyncio.run(storm())
    return _lost(queue)


def _lost(queue: Any) -> int:
    """Return the slots that are still taken when everybody has had the time to give them back."""
    until = time.monotonic() + PATIENCE
    while (lost := queue.taken()) and time.monotonic() < until:
        time.sleep(0.01)
    if not lost:
        _close(queue)
    return int(lost)


ROWS = (
    Row("blocked", "Other threads while a cell blocks the kernel's loop", blocked),
    Row("storms", "Slots lost in interrupt and cancel storms", storms),
)
