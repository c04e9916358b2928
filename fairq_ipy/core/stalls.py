"""What carries no information: a tenant whose answers come back empty, one after the other, is stuck.

An answer is empty when its text is shorter than ``min_chars`` and it neither calls a tool nor reasons: ``content`` is
null in both of those, and both are work. Only answers that came count; a failed, cancelled or unsent call says nothing
about the tenant. One informative answer ends the row.

A paused tenant comes back by hand, or through a half-open probe (Nygard, "Release It!", the circuit breaker): when the
cool-down is over one call may go; a good answer resumes the tenant, an empty one doubles the cool-down.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from fairq_ipy.core.model import Receipt, Stall

Verdict: TypeAlias = Literal["fine", "warn", "stall", "recovered"]


class StallWatch:
    """The row of empty answers of one tenant.

    Attributes:
        streak: empty answers in a row.
        stalled: whether the rule paused the tenant.
        until: when a probe may go; ``None`` while nothing is stalled, or when only a person resumes it.
        probing: whether the cool-down is over and one call at a time may go.
    """

    __slots__ = ("_cool_down", "probing", "stalled", "streak", "until")

    def __init__(self) -> None:
        self.streak = 0
        self.stalled = False
        self.until: float | None = None
        self.probing = False
        self._cool_down: float | None = None

    def judge(self, receipt: Receipt, rule: Stall, now: float) -> Verdict:
        """Take in one answer and say what follows."""
        if receipt.outcome != "ok":
            return "fine"
        if receipt.acted or receipt.chars >= rule.min_chars:
            recovered = self.stalled
            self.clear()
            return "recovered" if recovered else "fine"
        self.streak += 1
        # A call that was in flight when the tenant was paused adds nothing; the probe's answer decides.
        if self.streak < rule.threshold or (self.stalled and not self.probing):
            return "fine"
        if rule.action == "warn":
            self.streak = 0
            return "warn"
        self._pause(rule, now)
        return "stall"

    def cooled(self, now: float) -> bool:
        """Return whether the cool-down is over now, and let a probe go if so."""
        if self.until is None or self.probing or now < self.until:
            return False
        self.probing = True
        return True

    def clear(self) -> None:
        """Forget all of it: the tenant did something, or a person resumed it."""
        self.streak = 0
        self.stalled = False
        self.until = None
        self.probing = False
        self._cool_down = None

    def why(self) -> str:
        """Return one line for people."""
        return f"{self.streak} empty answers in a row"

    def _pause(self, rule: Stall, now: float) -> None:
        self.stalled = True
        self.probing = False
        if rule.resume_after is None:
            self.until = None
            return
        cool_down = rule.resume_after if self._cool_down is None else 2 * self._cool_down
        self._cool_down = min(cool_down, rule.resume_max)
        self.until = now + self._cool_down
