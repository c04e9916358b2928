"""The orders of service that fairness is compared with, for the simulation: who of those that wait is next."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from typing import Any, Protocol


class Sized(Protocol):
    """What an order may know of a call before it ran."""

    @property
    def tenant(self) -> str: ...
    @property
    def level(self) -> int: ...


class Fifo:
    """First come, first served."""

    def __init__(self) -> None:
        self._queue: deque[Any] = deque()

    def push(self, call: Sized) -> None:
        self._queue.append(call)

    def pop(self) -> Any:
        return self._queue.popleft()

    def __len__(self) -> int:
        return len(self._queue)


class PriorityHeap:
    """The soonest level first, and first come, first served within it."""

    def __init__(self) -> None:
        self._sequence = itertools.count()
        self._heap: list[tuple[int, int, Any]] = []

    def push(self, call: Sized) -> None:
        heapq.heappush(self._heap, (call.level, next(self._sequence), call))

    def pop(self) -> Any:
        return heapq.heappop(self._heap)[2]

    def __len__(self) -> int:
        return len(self._heap)


class RoundRobin:
    """One call of each tenant in turn, whatever it costs."""

    def __init__(self) -> None:
        self._lanes: dict[str, deque[Any]] = {}
        self._size = 0

    def push(self, call: Sized) -> None:
        self._lanes.setdefault(call.tenant, deque()).append(call)
        self._size += 1

    def pop(self) -> Any:
        tenant = next(iter(self._lanes))
        lane = self._lanes.pop(tenant)
        call = lane.popleft()
        if lane:
            self._lanes[tenant] = lane
        self._size -= 1
        return call

    def __len__(self) -> int:
        return self._size
