"""How things are measured: side by side, interleaved, and as ratios.

A repetition measures each side once, one after the other, so that whatever slows the machine down for a while slows all
of them down. A ratio is taken within each repetition; what is shown is the median of the ratios, and their range. Where
a single call takes long enough to be timed by itself, the sides take turns call by call (`Turns`).
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

THREAD_CPU: Final = "thread CPU"
PROCESS_CPU: Final = "process CPU"
WALL: Final = "wall"
SIMULATED: Final = "simulated"
TRACED: Final = "traced bytes"
COUNTED: Final = "counted"


@dataclass(frozen=True, slots=True)
class Scale:
    """How thorough a run is. Not even a quick one has fewer than five repetitions (but for the demo's experiment)."""

    quick: bool = False
    few: int = 5
    """Repetitions of what takes long."""

    @property
    def repetitions(self) -> int:
        return 5 if self.quick else 7

    def of(self, full: int, quick: int) -> int:
        """Return a size: the first one for a full run, the second for a quick one."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and the range that it was taken from."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return ours over theirs, taken within each repetition."""
    return spread([mine / other for mine, other in zip(ours, theirs, strict=True)])


def interleaved(sides: Mapping[str, Callable[[], float]], repetitions: int) -> dict[str, list[float]]:
    """Measure each side once per repetition, in turn, after a warm-up that does not count.

    Args:
        sides: by name, a function that sets up, measures, clears up, and returns what it measured.
        repetitions: how often.
    """
    # What stands already, such as a million tickets, is no garbage, and need not be looked through every time.
    gc.freeze()
    try:
        for side in sides.values():
            side()
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(repetitions):
            for name, side in sides.items():
                taken[name].append(side())
    finally:
        gc.unfreeze()
    return taken


class Turns:
    """Times single calls of several sides that take turns, by the wall and by the process's CPU.

    A repetition counts the median call of each side, so that a call which something else interrupted does not count.
    """

    def __init__(self, sides: Iterable[str]) -> None:
        self.wall: dict[str, list[float]] = {side: [] for side in sides}
        self.cpu: dict[str, list[float]] = {side: [] for side in self.wall}
        self._calls: dict[str, list[tuple[float, float]]] = {side: [] for side in self.wall}

    @contextmanager
    def call(self, side: str) -> Iterator[None]:
        """Time one call of a side."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        cpu_taken = time.process_time() - cpu
        self._calls[side].append((time.perf_counter() - wall, cpu_taken))

    def repeated(self) -> None:
        """End a repetition."""
        for side, calls in self._calls.items():
            self.wall[side].append(statistics.median(wall for wall, _ in calls))
            self.cpu[side].append(statistics.median(cpu for _, cpu in calls))
            calls.clear()

    def forget(self) -> None:
        """Let what was timed so far be a warm-up."""
        for calls in self._calls.values():
            calls.clear()


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Keep the cyclic garbage collector out of a measurement, as `timeit` does.

    It scans all that is alive, so that it would charge the side that is measured for the others' million tickets.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
