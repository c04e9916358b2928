"""Says when a minute, an hour, a day or a month begins where the team lives, so that budgets can begin anew.

Windows are those of the clock on the wall of the policy's time zone: a day may have 23 or 25 hours, and an hour that
is lived twice, when summer time ends, is two windows. A window's beginning, as an instant, is its identity.

The wall's clock may jump: it is set, or the machine sleeps. So it is looked at twice a minute while there are windows
to watch. A step back of less than a window waits until the clock has come round again, lest a budget be given twice;
after a longer one the windows of the new time hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple
from zoneinfo import ZoneInfo

from fairq_ipy.core.messages import WindowTurned
from fairq_ipy.core.model import Per, Policy

if TYPE_CHECKING:
    import asyncio

    from fairq_ipy.runtime.keeper import Keeper

__all__ = ["Calendar", "Window", "used", "window"]

LOOK: Final = 30.0
"""Seconds between two looks at the wall's clock, at the most."""

MINUTE: Final = 60
HOUR: Final = 3600


class Window(NamedTuple):
    """One window of a budget, in seconds since the epoch: from `start`, up to `end`."""

    start: float
    end: float


def window(per: Per, zone: ZoneInfo, at: float) -> Window:
    """Return the window that holds the instant `at` (seconds since the epoch).

    Raises:
        ValueError: `per` is ``session``, which has no windows.
    """
    match per:
        case "minute":
            start = at - at % MINUTE
            return Window(start, start + MINUTE)
        case "hour":
            return _hour(zone, at)
        case "day":
            day = datetime.fromtimestamp(at, zone).date()
            return Window(_midnight(zone, day.year, day.month, day.day), _next_day(zone, at))
        case "month":
            day = datetime.fromtimestamp(at, zone).date()
            year, month = (day.year, day.month + 1) if day.month < 12 else (day.year + 1, 1)  # noqa: PLR2004 - months
            return Window(_midnight(zone, day.year, day.month, 1), _midnight(zone, year, month, 1))
        case "session":
            raise ValueError("a session's budget has no windows")


def used(rules: Policy) -> frozenset[Per]:
    """Return the windows that the budgets of a policy count in."""
    every = (rules.defaults, *rules.tenants.values())
    return frozenset(budget.per for tenant in every for budget in tenant.budgets if budget.per != "session")


def _midnight(zone: ZoneInfo, year: int, month: int, day: int) -> float:
    # The first of two midnights where there are two; the moment of the jump where there is none (fold=0, PEP 495).
    return datetime(year, month, day, tzinfo=zone).timestamp()


def _next_day(zone: ZoneInfo, at: float) -> float:
    day = datetime.fromtimestamp(at, zone).date() + timedelta(days=1)
    return _midnight(zone, day.year, day.month, day.day)


def _hour(zone: ZoneInfo, at: float) -> Window:
    local = datetime.fromtimestamp(at, zone).replace(minute=0, second=0, microsecond=0)
    start = local.timestamp()
    # The next full hour on the wall, either time it is shown; or an hour of real time, whichever comes first.
    following = local + timedelta(hours=1)
    ends = (following.replace(fold=0).timestamp(), following.replace(fold=1).timestamp(), start + HOUR)
    return Window(start, min(end for end in ends if end > at))


class Calendar:
    """Tells a keeper when the windows of its budgets turn. Everything here runs on the keeper's thread.

    Args:
        keeper: whom to tell.
        wall: the time of day, in seconds since the epoch.
    """

    def __init__(self, keeper: Keeper, wall: Callable[[], float] = time.time) -> None:
        self._keeper = keeper
        self._wall = wall
        self._zone = ZoneInfo("UTC")
        self._pers: frozenset[Per] = frozenset()
        self._windows: dict[Per, Window] = {}
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, zone: ZoneInfo, pers: Iterable[Per]) -> None:
        """Watch these windows in this zone from now on. What is known of a window's beginning stays known."""
        self._pers = frozenset(pers)
        if zone.key != self._zone.key:
            # Budgets go on to the end of the window as the new zone has it, and are not given anew for the move.
            now = self._wall()
            self._windows = {per: window(per, zone, now) for per in self._windows}
        self._zone = zone
        self._windows = {per: known for per, known in self._windows.items() if per in self._pers}
        self.look()

    def look(self) -> None:
        """Tell what has turned, and look again in time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pers:
            return
        now = self._wall()
        for per in sorted(self._pers):
            known, current = self._windows.get(per), window(per, self._zone, now)
            if known is None or _turned(known, current, now):
                self._windows[per] = current
                self._keeper.feed(WindowTurned(per, self._keeper.now() + current.end - now))
        soonest = min(known.end for known in self._windows.values())
        self._timer = self._keeper.loop.call_later(min(max(soonest - now, 0.0), LOOK), self.look)


def _turned(known: Window, current: Window, now: float) -> bool:
    return current.start > known.start or now < known.start - (known.end - known.start)
