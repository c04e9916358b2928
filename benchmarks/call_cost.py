"""What a call costs its process: through the keeper, and through its peers, with the same work behind each.

A call's work is one turn of the loop that does the I/O. What the calls cost with no queue at all is measured in the
same repetition and taken off on both sides, so that a ratio compares the queues and not the tasks around them.
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from benchmarks import peers
from benchmarks.measure import PROCESS_CPU, TRACED, WALL, Scale, Turns, collector_at_rest, interleaved, ratio
from benchmarks.ours import KeeperQueue, PermitQueue, Service
from benchmarks.rows import Line, Row, Target, micro, missing

SLOTS = 2
TENANTS = tuple(f"tenant-{number}" for number in range(10))
AT_ONCE = Service()
JOURNAL = 10_000
BATCH = 500

MakeQueue = Callable[[], Any]


def _async_queues() -> dict[str, MakeQueue]:
    """Return the makers of whatever a task can call; they are called on a running loop."""
    makers: dict[str, MakeQueue] = {
        "fairq_ipy": lambda: KeeperQueue(SLOTS),
        "fairq_ipy, permits": lambda: PermitQueue(SLOTS),
        "no queue": peers.Unlimited,
        "asyncio.Semaphore": lambda: peers.SemaphoreQueue(SLOTS),
        "heap and semaphore": lambda: peers.HeapSemaphore(SLOTS),
        "loop dispatcher": lambda: peers.LoopDispatcher(SLOTS),
    }
    if peers.installed("aiolimiter"):
        makers["aiolimiter"] = peers.Limiter
    if peers.installed("priomesh"):
        makers["priomesh"] = lambda: peers.Mesh(SLOTS)
    return makers


def _close(queue: Any) -> None:
    close = getattr(queue, "close", None)
    if close is not None:
        close()


# ------------------------------------------------------------------------------------------------- ten thousand calls


def queued(scale: Scale) -> Iterator[Line]:
    """Yield the net cost of a call when ten thousand are queued at once by ten tenants."""
    calls = scale.of(10_000, 3_000)
    makers = _async_queues()
    makers.pop("aiolimiter", None)  # nothing waits in it: its rate is the only bound that it has
    taken = interleaved({name: _burst(make, calls) for name, make in makers.items()}, scale.few)
    bare = taken.pop("no queue")
    net = {
        name: [max(each - base, 1e-9) for each, base in zip(values, bare, strict=True)]
        for name, values in taken.items()
    }
    ours, permits = net.pop("fairq_ipy"), net.pop("fairq_ipy, permits")
    targets = {"heap and semaphore": Target(1.5), "loop dispatcher": Target(0.25)}
    for name, theirs in net.items():
        yield Line.of(
            f"{calls:,} queued, 10 tenants: net, against {name}",
            ratio(ours, theirs),
            clock=PROCESS_CPU,
            target=targets.get(name),
            detail=f"{micro(median(ours))} / {micro(median(theirs))}",
        )
    theirs = net["heap and semaphore"]
    yield Line.of(
        f"{calls:,} queued, 10 tenants: net, permits against heap and semaphore",
        ratio(permits, theirs),
        clock=PROCESS_CPU,
        detail=f"{micro(median(permits))} / {micro(median(theirs))}",
    )
    if not peers.installed("priomesh"):
        yield missing(f"{calls:,} queued, 10 tenants: net, against priomesh")


def _burst(make: MakeQueue, calls: int) -> Callable[[], float]:
    async def main() -> float:
        queue = make()
        try:
            with collector_at_rest():
                began = time.process_time()
                await asyncio.gather(*(queue.call(AT_ONCE, TENANTS[number % 10]) for number in range(calls)))
                return (time.process_time() - began) / calls
        finally:
            _close(queue)

    return lambda: asyncio.run(main())


# ------------------------------------------------------------------------------------------------------ one by one


def round_trip(scale: Scale) -> Iterator[Line]:
    """Yield how long one call takes when nothing else is there."""
    calls = scale.of(500, 150)
    yield from _trips("blocking", _blocking(scale, calls))
    yield from _trips("awaited", asyncio.run(_awaiting(scale, calls)))
    for name in ("aiolimiter", "priomesh"):
        if not peers.installed(name):
            yield missing(f"one awaited call at a time, against {name}")


def _trips(how: str, turns: Turns) -> Iterator[Line]:
    ours = turns.wall["fairq_ipy"]
    for name, theirs in turns.wall.items():
        if name != "fairq_ipy":
            yield Line.of(
                f"one {how} call at a time, against {name}",
                ratio(ours, theirs),
                clock=WALL,
                detail=f"{micro(median(ours))} / {micro(median(theirs))}",
            )


def _blocking(scale: Scale, calls: int) -> Turns:
    queues: dict[str, Any] = {"fairq_ipy": KeeperQueue(SLOTS), "loop dispatcher": peers.LoopDispatcher(SLOTS)}
    turns = Turns(queues)
    for repetition in range(scale.repetitions + 1):
        with collector_at_rest():
            for _ in range(calls):
                for name, queue in queues.items():
                    with turns.call(name):
                        queue.call_blocking(AT_ONCE)
        turns.repeated() if repetition else turns.forget()
    for queue in queues.values():
        queue.close()
    return turns


async def _awaiting(scale: Scale, calls: int) -> Turns:
    queues = {name: make() for name, make in _async_queues().items() if name != "no queue"}
    turns = Turns(queues)
    for repetition in range(scale.repetitions + 1):
        with collector_at_rest():
            for _ in range(calls):
                for name, queue in queues.items():
                    with turns.call(name):
                        await queue.call(AT_ONCE)
        turns.repeated() if repetition else turns.forget()
    for queue in queues.values():
        _close(queue)
    return turns


# --------------------------------------------------------------------------------------------------------- memory


def memory(scale: Scale) -> Iterator[Line]:
    """Yield the memory of one waiting call, its task included."""
    calls = scale.of(2_000, 1_000)
    makers = _async_queues()
    names = ("fairq_ipy", "fairq_ipy, permits", "asyncio.Semaphore", "heap and semaphore", "loop dispatcher")
    taken = interleaved({name: _waiting(makers[name], calls) for name in names}, scale.few)
    semaphore = taken.pop("asyncio.Semaphore")
    for name, values in taken.items():
        yield Line.of(
            f"one of {calls:,} waiting calls and its task, {name} against asyncio.Semaphore",
            ratio(values, semaphore),
            clock=TRACED,
            target=Target(1.1) if name == "fairq_ipy" else None,
            detail=f"{median(values):,.0f} B / {median(semaphore):,.0f} B",
        )


def _waiting(make: MakeQueue, calls: int) -> Callable[[], float]:
    """Return a side that fills every slot, lets `calls` tasks wait, and returns the bytes that each of them added."""

    async def main() -> float:
        queue = make()
        try:
            # A queue that has been in use for a while: the journal, which has a bound, is full.
            for _ in range(JOURNAL // 2 // BATCH):
                await asyncio.gather(*(queue.call(AT_ONCE) for _ in range(BATCH)))
            tasks = [asyncio.ensure_future(queue.call(Service(3600.0))) for _ in range(SLOTS)]
            await _settle_down()
            tracemalloc.start()
            try:
                before = tracemalloc.get_traced_memory()[0]
                for number in range(calls):
                    tasks.append(asyncio.ensure_future(queue.call(AT_ONCE, TENANTS[number % 10])))  # noqa: PERF401 - a list of their own would be counted
                await _settle_down()
                each = (tracemalloc.get_traced_memory()[0] - before) / calls
            finally:
                tracemalloc.stop()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            return each
        finally:
            _close(queue)

    return lambda: asyncio.run(main())


async def _settle_down() -> None:
    """Let every task come to its wait, and the other thread, if there is one, take in what was posted."""
    for _ in range(5):
        await asyncio.sleep(0.02)
    gc.collect()


ROWS = (
    Row("calls", "Thousands of calls queued at once: CPU per call", queued),
    Row("roundtrip", "One call alone, there and back", round_trip),
    Row("memory", "Memory of a waiting call", memory),
)
