"""A second, plain account of the queue: kept in lists, and counted anew at every question."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from fairq_ipy.core.model import Policy, Ticket

NEVER = float("inf")


@dataclass
class Call:
    """One living ticket."""

    ticket: Ticket
    arrived: float
    since: float
    deadline: float
    state: str = "waiting"
    waited: float = 0.0
    attempts: int = 0
    held: int = 0
    sent: list[float] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)


@dataclass
class Row:
    """One tenant that asked."""

    counts: Counter[str] = field(default_factory=Counter)
    paused: bool = False
    empties: int = 0
    stalled: bool = False
    until: float | None = None
    cool_down: float | None = None
    probing: bool = False
    used: Counter[tuple[str, str]] = field(default_factory=Counter)
    left: float = -NEVER
    touched: float = -NEVER
    was_here: bool = False


class Account:
    """What is true of a queue; whoever keeps the account changes it, event by event."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.calls: dict[int, Call] = {}
        self.ended: set[int] = set()
        self.rows: defaultdict[str, Row] = defaultdict(Row)
        self.strangers = 0
        self.paused = self.closed = False
        self.held_until = -NEVER
        self.ramp: int | None = None
        self.granted: int | None = None
        self.adaptive: int | None = None
        self.last_admitted: defaultdict[int, float] = defaultdict(lambda: -NEVER)
        self.sent: list[list[float]] = []
        self.spent: list[list[float]] = []
        self.overall = 256.0
        self.averages: dict[str, float] = {}

    def ids(self, *states: str) -> list[int]:
        return [number for number, call in self.calls.items() if call.state in states]

    def of(self, tenant: str, *states: str) -> list[Call]:
        return [call for call in self.calls.values() if call.ticket.tenant == tenant and call.state in states]

    def running(self) -> list[Call]:
        return [call for call in self.calls.values() if call.state == "running"]

    @property
    def slots(self) -> int:
        cap = self.policy.limits.concurrency if self.adaptive is None else self.adaptive
        return cap if self.granted is None else min(cap, self.granted)

    @property
    def open(self) -> int:
        return self.slots if self.ramp is None else min(self.slots, self.ramp)

    def expected(self, ticket: Ticket) -> float:
        known = self.averages.get(ticket.tenant, self.overall)
        return known if ticket.max_tokens is None else min(known, ticket.max_tokens)

    def most(self, ticket: Ticket) -> int:
        return ticket.prompt_tokens + (int(self.expected(ticket)) if ticket.max_tokens is None else ticket.max_tokens)

    def need(self, unit: str, ticket: Ticket, tokens: int) -> int:
        return {"requests": 1, "messages": ticket.messages, "tokens": tokens}[unit]

    def budgets(self, tenant: str) -> list[tuple[Any, int, int]]:
        """Return each budget with what is used and what running calls have set aside."""
        return [
            (
                budget,
                self.rows[tenant].used[budget.unit, budget.per],
                sum(self.need(budget.unit, call.ticket, call.held) for call in self.of(tenant, "running")),
            )
            for budget in self.policy.tenant(tenant).budgets
        ]

    def affordable(self, ticket: Ticket) -> bool:
        return all(
            used < budget.limit and used + aside + self.need(budget.unit, ticket, self.most(ticket)) <= budget.limit
            for budget, used, aside in self.budgets(ticket.tenant)
        )

    def hopeless(self, ticket: Ticket) -> bool:
        for budget, used, _ in self.budgets(ticket.tenant):
            need = self.need(budget.unit, ticket, self.most(ticket))
            if used >= budget.limit or used + need > budget.limit:
                no_window_helps = budget.per == "session" or budget.limit == 0 or need > budget.limit
                if no_window_helps or self.policy.tenant(ticket.tenant).on_exhausted == "refuse":
                    return True
        return False

    def blocked(self, tenant: str) -> bool:
        row, count, own = self.rows[tenant], len(self.of(tenant, "running")), self.policy.tenant(tenant).concurrency
        return row.paused or (row.stalled and (not row.probing or count > 0)) or (own is not None and count >= own)

    def heads(self, *, affordable: bool = True) -> list[Call]:
        """Return the first waiting call of each lane whose tenant may go."""
        first: dict[tuple[str, int], Call] = {}
        for call in sorted(self.calls.values(), key=lambda call: call.ticket.id):
            if call.state == "waiting" and not self.blocked(call.ticket.tenant):
                first.setdefault((call.ticket.tenant, call.ticket.level), call)
        return [call for call in first.values() if not affordable or self.affordable(call.ticket)]

    def crowding(self, tenant: str, now: float, *, loosely: bool) -> bool:
        """Return whether headroom keeps the last slot from a tenant."""
        if self.open - len(self.running()) != 1 or self.open < 2 or self.policy.headroom_for <= 0:
            return False
        if {call.ticket.tenant for call in self.running()} != {tenant}:
            return False
        others = [row for name, row in self.rows.items() if name != tenant]
        if any(row.was_here for row in others):
            return True
        lately = [max(row.left, row.touched) if loosely else row.left for row in others]
        return any(now < when + self.policy.headroom_for for when in lately)

    def reserved(self, level: int) -> tuple[int, int]:
        """Return the slots that a level must leave free, and those that it must leave free when it is late."""
        left, unmet, kept, sooner = self.open - 1, 0, 0, 0
        for rule in sorted(self.policy.levels, key=lambda rule: rule.number):
            if rule.number < level:
                share = min(rule.reserve, left - kept)
                used = sum(call.ticket.level == rule.number for call in self.running())
                kept, sooner, unmet = kept + share, sooner + used, unmet + max(0, share - used)
        return unmet, kept - sooner

    def late(self, level: int, now: float, *, affordable: bool) -> bool:
        bound = self.policy.starve_after
        arrived = [call.arrived for call in self.heads(affordable=affordable) if call.ticket.level == level]
        return bound is not None and bool(arrived) and now >= max(min(arrived), self.last_admitted[level]) + bound

    def may_go(self, now: float, *, loosely: bool) -> list[Call]:
        """Return the heads that reserve and headroom let go now, on time or because their level is late."""
        free = self.open - len(self.running())
        found = []
        for call in self.heads():
            level = call.ticket.level
            unmet, when_late = self.reserved(level)
            late = self.late(level, now, affordable=True)
            if (free > unmet or (late and free > when_late)) and not self.crowding(
                call.ticket.tenant, now, loosely=loosely
            ):
                found.append(call)
        return found

    def in_time(self, call: Call, now: float) -> bool:
        limits = self.policy.limits
        requests = sum(amount for at, amount in self.sent if at + 60.0 > now)
        lines = [amount for at, amount in self.spent if at + 60.0 > now]
        tokens = call.ticket.prompt_tokens + self.expected(call.ticket)
        if limits.requests_per_minute is not None and (
            limits.requests_per_minute == 0 or (requests and requests + 1 > limits.requests_per_minute)
        ):
            return False
        limit = limits.tokens_per_minute
        return limit is None or (limit > 0 and (not lines or sum(lines) + tokens <= limit + 1e-6))

    def clear(self, row: Row) -> None:
        """Forget a stall."""
        row.empties, row.stalled, row.probing, row.until, row.cool_down = 0, False, False, None, None
