"""Who is here: every tenant with its lanes, meters and counts, and who was active lately.

A tenant is *present* while it runs something or has an eligible ticket waiting. Headroom asks whether anybody else was
present in the last ``headroom_for`` seconds; the two latest departures of different tenants answer that in O(1).
"""

from __future__ import annotations

from fairq_ipy.core.budgets import Meter
from fairq_ipy.core.fairness import Lane
from fairq_ipy.core.model import Context, TenantPolicy
from fairq_ipy.core.stalls import StallWatch

_NEVER = float("-inf")


class Tenant:
    """One tenant: its rules, its lanes by level, its meters, its counts."""

    __slots__ = (
        "cancelled",
        "completed",
        "failed",
        "here",
        "in_flight",
        "lanes",
        "last_wait",
        "listed",
        "loose",
        "meters",
        "name",
        "paused",
        "plain",
        "queued",
        "rejected",
        "rules",
        "submitted",
        "tokens",
        "uid",
        "watch",
        "why",
    )

    def __init__(self, name: str, rules: TenantPolicy, meters: tuple[Meter, ...], uid: int) -> None:
        self.name = name
        self.uid = uid
        self.obey(rules, meters)
        self.lanes: dict[int, Lane] = {}
        self.watch = StallWatch()
        self.paused = False
        self.why = ""
        self.queued = 0
        self.in_flight = 0
        self.listed = 0
        self.here = False
        self.submitted = 0
        self.completed = 0
        self.rejected = 0
        self.cancelled = 0
        self.failed = 0
        self.tokens = 0
        self.last_wait: float | None = None

    def obey(self, rules: TenantPolicy, meters: tuple[Meter, ...]) -> None:
        """Take new rules; work out which questions need not be asked of every call.

        `plain`: nothing about a single call can refuse it. `loose`: the number of its calls in flight never blocks it.
        """
        self.rules = rules
        self.meters = meters
        self.plain = not meters and rules.on_paused == "wait" and rules.context == Context()
        self.loose = rules.concurrency is None and rules.stall is None

    def blocked(self) -> bool:
        """Return whether nothing of this tenant may go now, whatever slots are free."""
        if self.paused:
            return True
        watch = self.watch
        if watch.stalled and (not watch.probing or self.in_flight > 0):
            return True
        own = self.rules.concurrency
        return own is not None and self.in_flight >= own

    def resumes_at(self) -> float | None:
        """Return when its pause ends by itself, with a probe; ``None`` when it does not."""
        watch = self.watch
        return watch.until if watch.stalled and not watch.probing and not self.paused else None

    def waits_for_person_or_probe(self) -> bool:
        """Return whether it is paused, by hand or by the stall rule, so that a new call would not go soon."""
        return self.paused or (self.watch.stalled and not self.watch.probing)


class Presence:
    """How many tenants are here, and who left last and last but one."""

    __slots__ = ("_before", "_last", "here")

    def __init__(self) -> None:
        self.here = 0
        self._last: tuple[Tenant | None, float] = (None, _NEVER)
        self._before: tuple[Tenant | None, float] = (None, _NEVER)

    def update(self, tenant: Tenant, now: float) -> None:
        """Note whether `tenant` has anything running or eligible, and when it left."""
        here = tenant.listed > 0 or tenant.in_flight > 0
        if here is tenant.here:
            return
        tenant.here = here
        if here:
            self.here += 1
            return
        self.here -= 1
        if self._last[0] is not tenant:
            self._before = self._last
        self._last = (tenant, now)

    def others_until(self, tenant: Tenant, headroom_for: float, now: float) -> float:
        """Return until when somebody other than `tenant` counts as active; `now` or before means nobody does."""
        if self.here > tenant.here:
            return float("inf")
        who, when = self._last
        if who is tenant:
            _, when = self._before
        return max(now, when + headroom_for)
