"""The peers must be right before they are fast: own results, no more at once than there are slots, nobody forgotten."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import peers
from benchmarks.isolation import MAKERS
from benchmarks.ours import KeeperQueue, PermitQueue, Service

QUEUES: dict[str, Callable[[], Any]] = {
    "semaphore": lambda: peers.SemaphoreQueue(2),
    "heap": lambda: peers.HeapSemaphore(2),
    "dispatcher": lambda: peers.LoopDispatcher(2),
    "permits": lambda: PermitQueue(2),
}
if peers.installed("priomesh"):
    QUEUES["priomesh"] = lambda: peers.Mesh(2)


class Counting:
    """A job that says how many of its kind run at once."""

    running = 0

    def __init__(self, number: int, seen: list[int]) -> None:
        self.number = number
        self.seen = seen

    async def __call__(self) -> int:
        Counting.running += 1
        self.seen.append(Counting.running)
        await asyncio.sleep(0)
        Counting.running -= 1
        return self.number


def close(queue: Any) -> None:
    if hasattr(queue, "close"):
        queue.close()


@pytest.mark.parametrize("name", QUEUES)
def test_at_most_as_many_jobs_run_as_there_are_slots(name: str) -> None:
    seen: list[int] = []

    async def main() -> list[int]:
        queue = QUEUES[name]()
        try:
            return list(await asyncio.gather(*(queue.call(Counting(number, seen), "t") for number in range(50))))
        finally:
            close(queue)

    results = asyncio.run(main())
    assert len(seen) == 50
    assert max(seen) == 2
    if name != "permits":
        assert results == list(range(50))


def test_a_caller_that_leaves_the_heap_and_semaphore_takes_nobody_with_it() -> None:
    async def main() -> list[Any]:
        queue = peers.HeapSemaphore(1)
        seen: list[int] = []
        tasks = [asyncio.ensure_future(queue.call(Counting(number, seen))) for number in range(6)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5.0)

    results = asyncio.run(main())
    assert isinstance(results.pop(3), asyncio.CancelledError)
    assert results == [0, 1, 2, 4, 5]


def test_the_keeper_answers_calls_of_threads_and_tasks() -> None:
    with KeeperQueue(2) as queue:
        answers = [queue.call_blocking(Service()) for _ in range(3)]
        answers.append(asyncio.run(queue.call(Service())))
        assert answers == sorted(set(answers))
        assert queue.taken() == 0


@pytest.mark.parametrize("name", MAKERS)
def test_a_queue_that_was_left_alone_has_lost_no_slot(name: str) -> None:
    queue = MAKERS[name]()

    def calls() -> None:
        for _ in range(20):
            queue.call_blocking(Service())

    threads = [threading.Thread(target=calls) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A permit comes back through the keeper's mailbox, a moment after its block was left.
    assert queue.taken() == 0
    close(queue)
