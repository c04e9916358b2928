"""How many, how fast, and when next: the slots, the rate windows, and the calm that a refusing endpoint gets.

**Rates** are kept over a sliding minute, exactly: what was sent in *any* 60 s never exceeds the limit. A token bucket
of the same rate lets twice the limit pass within one minute (a full bucket, then its refill), which a server that
counts fixed or sliding minutes answers with 429. A request larger than the whole limit goes when the window is empty;
a limit of 0 lets nothing go.

**Holds** follow a refusal by the endpoint: as long as it asked for, or exponential, with jitter upward only, so that
nothing is sent too early and not all kernels come back at once. After a hold one probe goes; each success doubles how
many may, until the cap is reached (after the slow start of TCP, RFC 5681, section 3.1).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from fairq_ipy.core.model import Backpressure

MINUTE: Final = 60.0

_JITTER_ON_REQUEST: Final = 0.1
"""How much longer than asked for a hold may last: enough to spread kernels, too little to be felt."""


class Spent:
    """One line of a rate window: when, and how much; the amount is corrected when the true one is known."""

    __slots__ = ("amount", "at")

    def __init__(self, at: float, amount: float) -> None:
        self.at = at
        self.amount = amount


class RateWindow:
    """What was spent in the last 60 s, against a limit that may change."""

    __slots__ = ("_lines", "_total", "limit")

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._lines: deque[Spent] = deque()
        self._total = 0.0

    def free_at(self, amount: float, now: float) -> float:
        """Return the earliest time at which `amount` fits: `now` for at once, infinity for never."""
        if self.limit is None:
            return now
        if self.limit == 0:
            return float("inf")
        self._forget(now)
        excess = self._total + amount - self.limit
        at = now
        for line in self._lines:
            if excess <= 0:
                break
            excess -= line.amount
            at = line.at + MINUTE
        return at

    def spend(self, amount: float, now: float) -> Spent | None:
        """Note that `amount` is sent now."""
        if self.limit is None:
            return None
        line = Spent(now, amount)
        self._lines.append(line)
        self._total += amount
        return line

    def correct(self, line: Spent, amount: float, now: float) -> None:
        """Replace an estimate by the true amount."""
        self._forget(now)
        if self._lines and line.at >= self._lines[0].at:
            self._total += amount - line.amount
        line.amount = amount

    def _forget(self, now: float) -> None:
        lines = self._lines
        while lines and lines[0].at + MINUTE <= now:
            self._total -= lines.popleft().amount
        if not lines:
            self._total = 0.0


class Pressure:
    """What the endpoint's refusals ask of us.

    Attributes:
        held_until: nothing is admitted before.
        streak: holds in a row without a success.
        ramp: how many may be in flight while the endpoint is tried again; ``None`` when it is trusted.
    """

    __slots__ = ("held_until", "ramp", "streak")

    def __init__(self) -> None:
        self.held_until = float("-inf")
        self.streak = 0
        self.ramp: int | None = None

    def refused(self, retry_after: float | None, jitter: float, rules: Backpressure, now: float) -> bool:
        """Take in a refusal; return whether the hold became longer.

        Calls that were sent together are refused together: only the first of them begins a new hold, the others may
        at most lengthen it by what they were told.
        """
        self.ramp = 1
        asked = retry_after if retry_after is not None and retry_after > 0 else None
        if asked is None and now < self.held_until:
            return False
        if now >= self.held_until:
            self.streak += 1
        if asked is not None:
            delay = min(asked, rules.max_hold) * (1 + _JITTER_ON_REQUEST * jitter)
        else:
            delay = min(rules.base * 2.0 ** min(self.streak - 1, 30) * (1 + jitter), rules.max_hold)
        return self.hold(now + delay)

    def hold(self, until: float) -> bool:
        """Leave the endpoint alone until then; return whether that is later than before."""
        if until <= self.held_until:
            return False
        self.ramp = 1
        self.held_until = until
        return True

    def succeeded(self, cap: int, now: float) -> None:
        """Take in an answer: the endpoint is back, or nearly.

        An answer that comes during a hold belongs to a call that was sent before the refusal: it proves nothing.
        """
        if now < self.held_until or self.ramp is None:
            return
        self.streak = 0
        self.ramp = 2 * self.ramp if 2 * self.ramp < cap else None
