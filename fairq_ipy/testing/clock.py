"""A clock that stands still until a test moves it."""

from __future__ import annotations

__all__ = ["FakeClock"]


class FakeClock:
    """Seconds that pass only when told to; use it wherever ``time.monotonic`` is accepted.

    Args:
        start: the first reading, in seconds. Not 0 by default, so that code which takes 0 for "unset" is found out.
    """

    def __init__(self, start: float = 1000.0) -> None:
        self._now = float(start)

    def __call__(self) -> float:
        """Return the present reading in seconds, as ``time.monotonic()`` does."""
        return self._now

    def now(self) -> float:
        """Return the present reading in seconds."""
        return self._now

    def advance(self, seconds: float) -> float:
        """Let `seconds` pass and return the new reading.

        Raises:
            ValueError: when `seconds` is negative; a monotonic clock never goes back.
        """
        if not seconds >= 0:
            msg = f"a monotonic clock cannot go back by {seconds!r} s"
            raise ValueError(msg)
        self._now += seconds
        return self._now

    def __repr__(self) -> str:
        """Return the reading, as a failed test shows it."""
        return f"FakeClock({self._now:g})"
