"""How many calls the endpoint takes at once, found by asking.

Additive increase and multiplicative decrease (Chiu and Jain, "Analysis of the increase and decrease algorithms for
congestion avoidance", 1989), with a memory of where the endpoint said no:

* A **window** is `WINDOW` answers while every slot was in use. Each window without a refusal adds one slot.
* A **refusal** with ``n`` calls in flight says that ``n`` is too many. If the limit had been good until then, the
  endpoint has changed: the limit is halved. If ``n`` was just being tried, the limit goes back to what was good.
* The number that was refused is the **ceiling**. Trying it again costs a refused call, so it is tried only after
  `PATIENCE` good answers, and after twice as many when that was in vain, up to `MOST_PATIENCE`. So at most one call in
  `PATIENCE` is refused while the endpoint stays as it is, and a growing endpoint is found within
  ``MOST_PATIENCE / WINDOW`` windows.

Latency never drives it: the time of a whole answer measures its length, not the endpoint's load. An idle queue proves
nothing either, so only full use counts.
"""

from __future__ import annotations

from typing import Final

WINDOW: Final = 10
PATIENCE: Final = 60
MOST_PATIENCE: Final = 120


class AdaptiveLimit:
    """A concurrency limit that moves within bounds.

    Args:
        start: the limit at first.
        least: the lower bound, 1 or more.
        most: the upper bound.

    Attributes:
        limit: how many calls may be in flight.
    """

    __slots__ = ("_ceiling", "_good", "_least", "_most", "_patience", "_trying", "limit")

    def __init__(self, start: int, least: int, most: int) -> None:
        self._least = least
        self._most = most
        self._good = 0
        self._ceiling: int | None = None
        self._patience = PATIENCE
        self._trying = False
        self.limit = min(max(start, least), most)

    def bound(self, least: int, most: int) -> None:
        """Take new bounds, and keep what was learnt."""
        self._least = least
        self._most = most
        self.limit = min(max(self.limit, least), most)

    def answered(self, in_flight: int) -> bool:
        """Take in a good answer; return whether the limit rose.

        Args:
            in_flight: calls in flight, this one included.
        """
        if in_flight < self.limit:
            return False
        self._good += 1
        if self._trying and self._good >= WINDOW:
            self._trying = False
            self._ceiling = None
            self._patience = PATIENCE
        refused_before = self._ceiling is not None and self.limit + 1 >= self._ceiling
        if self.limit >= self._most or self._good < (self._patience if refused_before else WINDOW):
            return False
        self._good = 0
        self._trying = refused_before
        self.limit += 1
        return True

    def refused(self, in_flight: int) -> bool:
        """Take in a refusal; return whether a lower limit answers it.

        Calls that were sent together are refused together. Only what is refused at or below the present limit lowers it
        again, so that they count once.

        Args:
            in_flight: calls in flight, this one included.
        """
        self._good = 0
        if in_flight > self.limit:
            return True
        if self._trying:
            self._patience = min(2 * self._patience, MOST_PATIENCE)
            lower = in_flight - 1
        else:
            self._patience = PATIENCE
            lower = min(in_flight - 1, self.limit // 2)
        self._trying = False
        self._ceiling = in_flight
        before = self.limit
        self.limit = max(self._least, lower)
        return self.limit < before
