"""What a benchmark says: lines of one row of the table, each with the target it was held against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from benchmarks.measure import Scale, Spread

TIMES: Final = "\u00d7"
"""The unit of a ratio."""

Verdict: TypeAlias = Literal["met", "missed", ""]


@dataclass(frozen=True, slots=True)
class Target:
    """What was promised for a value."""

    bound: float
    sense: Literal["at most", "at least"] = "at most"

    def met_by(self, value: float) -> bool:
        return value <= self.bound if self.sense == "at most" else value >= self.bound

    def __str__(self) -> str:
        return f"{'≤' if self.sense == 'at most' else '≥'} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Line:
    """One measured value.

    Attributes:
        what: what was measured, and under which load.
        value: the measured value, a ratio where `unit` is `TIMES`; ``None`` when it could not be measured.
        unit: what the value counts.
        low, high: the range of the repetitions; ``None`` when there is only one value.
        target: what was promised.
        clock: what the value was taken with.
        detail: the values behind a ratio.
        note: what else a reader should know.
    """

    what: str
    value: float | None
    unit: str = TIMES
    low: float | None = None
    high: float | None = None
    target: Target | None = None
    clock: str = ""
    detail: str = ""
    note: str = ""

    @classmethod
    def of(
        cls,
        what: str,
        value: Spread,
        *,
        clock: str,
        unit: str = TIMES,
        target: Target | None = None,
        detail: str = "",
        note: str = "",
    ) -> Line:
        """Make a line of a median and its range."""
        return cls(what, value.median, unit, value.low, value.high, target, clock, detail, note)

    @property
    def verdict(self) -> Verdict:
        if self.target is None or self.value is None:
            return ""
        return "met" if self.target.met_by(self.value) else "missed"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"target": None if self.target is None else asdict(self.target), "verdict": self.verdict}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Line:
        known = {name: value for name, value in fields.items() if name != "verdict"}
        target = known.pop("target")
        return cls(**known, target=None if target is None else Target(**target))


def missing(what: str, why: str = "not installed") -> Line:
    """Return the line of a peer that is not there."""
    return Line(what, None, note=why)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table of targets.

    Attributes:
        name: for ``--only``.
        title: what the row is about.
        lines: measures, and yields each line as soon as it is known.
    """

    name: str
    title: str
    lines: Callable[[Scale], Iterator[Line]]


def micro(seconds: float) -> str:
    """Return a duration in microseconds, for a line's detail."""
    return f"{seconds * 1e6:.3g} µs" if seconds < 999.5e-6 else f"{seconds * 1e6:,.0f} µs"
