"""How things are measured: side by side, interleaved, and as ratios.

A repetition measures each side once, one after the other, so that whatever slows the machine down for a while slows all
of them down. A ratio is taken within each repetition; what is shown is the median of the ratios, and their range.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """How thorough a run is. Not even a quick one has fewer than five repetitions."""

    quick: bool = False

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
    for side in sides.values():
        side()
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repetitions):
        for name, side in sides.items():
            taken[name].append(side())
    return taken


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
