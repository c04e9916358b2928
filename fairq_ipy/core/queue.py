"""The queue: every ticket that waits or runs, and who is eligible.

A lane is *listed*, that is, in its level's heap, exactly when it has a waiting ticket, its tenant is not blocked and
its head is not parked for a budget. What every tenant shares (slots, holds, rates, the pause of all) is asked once per
admission instead, so that a change of it costs nothing per lane.
"""

from __future__ import annotations

from bisect import insort
from heapq import heapify, heappop, heappush
from typing import Any, Final, Literal

from fairq_ipy.core import budgets
from fairq_ipy.core.adaptive import AdaptiveLimit
from fairq_ipy.core.fairness import SMOOTHING, Estimates, Lane, Level
from fairq_ipy.core.lifecycle import WAITING, Entry
from fairq_ipy.core.limits import Pressure, RateWindow
from fairq_ipy.core.messages import Effect, Refuse
from fairq_ipy.core.model import Policy, Reason, Receipt, Ticket
from fairq_ipy.core.roster import Presence, Tenant

NEVER: Final = float("inf")
_SLACK: Final = 64


class Queue:
    """The state of the core and its elementary moves. `Scheduler` says which event makes which move."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.tenants: dict[str, Tenant] = {}
        self.levels: list[Level] = []
        self.by_number: dict[int, Level] = {}
        self.entries: dict[int, Entry] = {}
        self.busy: dict[Tenant, None] = {}
        self.presence = Presence()
        self.pressure = Pressure()
        self.estimates = Estimates()
        self.requests = RateWindow(policy.limits.requests_per_minute)
        self.tokens = RateWindow(policy.limits.tokens_per_minute)
        self.window_ends: dict[str, float] = {}
        self.granted: int | None = None
        self.slots = 0
        self.open = 0
        self.paused = False
        self.why_paused = ""
        self.closed = False
        self.queued = 0
        self.in_flight = 0
        self.listed = 0
        self.arrivals = 0
        self.lanes_made = 0
        self.turns = 0
        self.service = 0.0
        self.blocked_until = NEVER
        self.blocked_by: Literal["", "hold", "rate", "headroom"] = ""
        self.deadlines: list[tuple[float, int, Entry]] = []
        self.cooling: list[tuple[float, int, Tenant]] = []
        self.adaptive: AdaptiveLimit | None = None
        self.adapt()
        self.recap()
        self.reserve()

    # ---------------------------------------------------------------------------------------------- who is there

    def tenant(self, name: str) -> Tenant:
        """Return the tenant of that name, made on its first ticket."""
        found = self.tenants.get(name)
        if found is None:
            rules = self.policy.tenant(name)
            meters = budgets.meters(rules.budgets, (), self.window_ends)
            found = Tenant(name, rules, meters, len(self.tenants))
            self.tenants[name] = found
        return found

    def level(self, number: int) -> Level:
        """Return the level of that number, made on its first ticket."""
        found = self.by_number.get(number)
        if found is None:
            found = self.by_number[number] = Level(number)
            insort(self.levels, found, key=lambda level: level.number)
        return found

    def adapt(self) -> None:
        """Take the policy's bounds for an adaptive concurrency, and keep what was learnt under the policy before."""
        bounds = self.policy.limits.adaptive
        if bounds is None:
            self.adaptive = None
        elif self.adaptive is None:
            self.adaptive = AdaptiveLimit(self.policy.limits.concurrency, bounds.least, bounds.most)
        else:
            self.adaptive.bound(bounds.least, bounds.most)

    def reserve(self) -> None:
        """Take the policy's reserves; one holds also before the first call of its level has come."""
        reserves = {level.number: level.reserve for level in self.policy.levels}
        for number, reserve in reserves.items():
            if reserve:
                self.level(number)
        for level in self.levels:
            level.reserve = reserves.get(level.number, 0)
            level.guard_at = float("-inf")

    def lane(self, tenant: Tenant, number: int) -> Lane:
        """Return the lane of a tenant at a level, made on its first ticket."""
        found = tenant.lanes.get(number)
        if found is None:
            level = self.level(number)
            self.lanes_made += 1
            found = tenant.lanes[number] = Lane(tenant, level, tenant.rules.weight, self.lanes_made)
            level.lanes.append(found)
        return found

    def recap(self) -> None:
        """Work out anew what the policy, the slot source and the ramp make of the limits.

        `slots` is how many there are, `open` how many of them while the endpoint is tried again.
        """
        limits = self.policy.limits
        limit = limits.concurrency if self.adaptive is None else self.adaptive.limit
        self.requests.limit = limits.requests_per_minute
        self.tokens.limit = limits.tokens_per_minute
        self.rated = self.requests.limit is not None or self.tokens.limit is not None
        self.exclusive = self.policy.unknown_tenants == "refuse"
        self.slots = limit if self.granted is None else min(limit, self.granted)
        ramp = self.pressure.ramp
        self.open = self.slots if ramp is None else min(self.slots, ramp)

    # ----------------------------------------------------------------------------------------------- eligibility

    def enlist(self, lane: Lane) -> None:
        """Put a lane that was not eligible into the heap of its level, if it is eligible now."""
        tenant = lane.tenant
        if not lane.live or lane.parked or tenant.blocked():
            return
        level = lane.level
        lane.lift()
        self.listed += 1
        tenant.listed += 1
        starve_after = self.policy.starve_after
        if starve_after is not None:
            due = max(lane.head().arrived, level.last_admitted) + starve_after
            level.guard_at = min(level.guard_at, due)
        level.enter(lane)

    def unlist(self, lane: Lane) -> None:
        """Take a lane out of the heap of its level."""
        if lane.listed:
            lane.level.leave(lane)
            self.listed -= 1
            lane.tenant.listed -= 1

    def refresh(self, tenant: Tenant, now: float) -> None:
        """Look anew at the lanes of a tenant whose pause, budget, limit or load has changed."""
        blocked = tenant.blocked()
        for lane in tenant.lanes.values():
            if blocked:
                self.unlist(lane)
            elif not lane.listed and lane.live:
                lane.parked = False
                self.enlist(lane)
        self.presence.update(tenant, now)

    # ------------------------------------------------------------------------------------------- in, out and back

    def enqueue(self, ticket: Ticket, tenant: Tenant, now: float) -> Entry:
        """Put a new ticket at the end of its lane."""
        lane = self.lane(tenant, ticket.level)
        self.arrivals += 1
        entry = Entry(ticket, lane, self.arrivals, now, lane.level.v)
        entry.move("enqueue")
        self.entries[ticket.id] = entry
        wait = self.policy.limits.max_wait if ticket.max_wait is None else ticket.max_wait
        if wait is not None:
            self.set_deadline(entry, now + wait)
        lane.queue.append(entry)
        lane.live += 1
        self.queued += 1
        tenant.queued += 1
        if lane.live == 1:
            self.enlist(lane)
            self.presence.update(tenant, now)
        return entry

    def set_deadline(self, entry: Entry, deadline: float) -> None:
        """Note when a ticket has waited too long; lines of tickets that are gone are swept now and then."""
        entry.deadline = deadline
        lines = self.deadlines
        heappush(lines, (deadline, entry.seq, entry))
        if len(lines) > _SLACK + 2 * self.queued:
            lines[:] = [line for line in lines if line[2].deadline == line[0] and line[2].state in WAITING]
            heapify(lines)

    def put_back(self, entry: Entry, now: float) -> None:
        """Let a ticket that had been admitted wait again, at its old place and with the rest of its patience."""
        lane = entry.lane
        if entry.deadline is not None:
            self.set_deadline(entry, entry.deadline + now - entry.since)
        entry.since = now
        self.queued += 1
        lane.tenant.queued += 1
        if entry.state == "waiting":
            self.line_up(entry)

    def line_up(self, entry: Entry) -> None:
        """Put a ticket back into its lane, at the place that its order of arrival gives it.

        A lane that was not eligible meanwhile is lifted as any other: its refund would else pay for a burst.
        """
        lane = entry.lane
        lane.put_back(entry)
        lane.parked = False
        if not lane.listed:
            self.enlist(lane)

    def drop(self, entry: Entry, now: float) -> None:
        """Take a waiting ticket, whose end was already noted in its state, out of the queue."""
        lane = entry.lane
        tenant = lane.tenant
        del self.entries[entry.ticket.id]
        self.queued -= 1
        tenant.queued -= 1
        if lane.listed and not lane.live:
            self.unlist(lane)
        elif lane.parked:
            lane.parked = False
            self.enlist(lane)
        self.presence.update(tenant, now)

    def refuse(self, entry: Entry, reason: Reason, facts: dict[str, Any], now: float, effects: list[Effect]) -> None:
        """End a waiting ticket with a refusal."""
        was_waiting = entry.state == "waiting"
        entry.move("refuse")
        if was_waiting:
            entry.lane.take_out(entry)
        self.drop(entry, now)
        entry.lane.tenant.rejected += 1
        effects.append(Refuse(entry.ticket.id, reason, facts))

    def turn_away(self, entry: Entry, reason: Reason, facts: dict[str, Any], effects: list[Effect]) -> None:
        """End with a refusal a ticket that was running; its slot was released before."""
        entry.move("refuse")
        del self.entries[entry.ticket.id]
        entry.lane.tenant.rejected += 1
        effects.append(Refuse(entry.ticket.id, reason, facts))

    def release(self, entry: Entry, receipt: Receipt | None, now: float) -> None:
        """Take a running ticket's slot back, and correct what it was charged; ``None`` gives all of it back."""
        lane = entry.lane
        tenant = lane.tenant
        ticket = entry.ticket
        policy = self.policy
        sent = receipt is not None and receipt.outcome != "unsent"
        if receipt is not None and sent:
            actual = policy.prompt_weight * receipt.prompt_tokens + policy.output_weight * receipt.output_tokens
            used = receipt.prompt_tokens + receipt.output_tokens
        else:
            actual, used = 0.0, 0
        self.correct(entry, actual)
        if entry.spent is not None:
            self.tokens.correct(entry.spent, used, now)
        if entry.sent is not None and receipt is not None and not sent:
            self.requests.correct(entry.sent, 0, now)
        if tenant.meters:
            budgets.settle(tenant.meters, ticket, entry.held_tokens, receipt)
        self.in_flight -= 1
        lane.level.in_flight -= 1
        tenant.in_flight -= 1
        tenant.tokens += used
        if not tenant.in_flight:
            del self.busy[tenant]

    def correct(self, entry: Entry, actual: float) -> None:
        """Bring the charge of a running ticket to `actual`, and its lane to its new place."""
        lane = entry.lane
        delta = actual - entry.charged
        if delta > 0:
            lane.charge(delta, entry)
        elif delta < 0:
            lane.refund(-delta, entry)
        if lane.listed and delta:
            lane.level.enter(lane)

    # ---------------------------------------------------------------------------------------------- what a call may use

    def hopeless(self, tenant: Tenant, ticket: Ticket, most: int) -> budgets.Meter | None:
        """Return the budget that refuses a ticket now: no window will help, or the policy says not to wait for one."""
        verdict, meter = budgets.tightest(tenant.meters, ticket, most)
        if verdict == "never" or (verdict == "exhausted" and tenant.rules.on_exhausted == "refuse"):
            return meter
        return None

    def most(self, ticket: Ticket) -> int:
        """Return the tokens that a call may use at the most, as far as that is known."""
        if ticket.max_tokens is not None:
            return ticket.prompt_tokens + ticket.max_tokens
        return ticket.prompt_tokens + int(self.estimates.expect(ticket.tenant, ticket.model, None))

    # ------------------------------------------------------------------------------------------------ the endpoint

    def answered(self, now: float) -> None:
        """Take in that the endpoint answered, while the call still counts as in flight."""
        if self.pressure.ramp is not None:
            self.pressure.succeeded(self.slots, now)
            self.recap()
        elif self.adaptive is not None and self.adaptive.answered(self.in_flight):
            self.recap()

    def pushed_back(self, retry_after: float | None, jitter: float, now: float) -> bool:
        """Take in that the endpoint refused, likewise; return whether the hold became longer.

        Where fewer calls at once answer it, and the endpoint asks for no time, nobody need wait.
        """
        lowered = self.adaptive is not None and self.adaptive.refused(self.in_flight)
        longer = False
        if not lowered or retry_after is not None:
            longer = self.pressure.refused(retry_after, jitter, self.policy.backpressure, now)
        self.recap()
        return longer

    # ------------------------------------------------------------------------------------------------------ timers

    def learn_service(self, seconds: float) -> None:
        """Take in how long a call ran, for the hint when a full queue is worth another try."""
        self.service = seconds if not self.service else self.service + SMOOTHING * (seconds - self.service)

    def come_back_in(self) -> float | None:
        """Return the seconds after which a full queue is likely to have room; ``None`` when nothing has run yet."""
        if not self.service:
            return None
        return self.service * max(1, self.queued) / max(1, self.slots)

    def next_expired(self, now: float) -> Entry | None:
        """Take out and return a ticket that has waited too long by `now`."""
        lines = self.deadlines
        while lines and lines[0][0] <= now:
            deadline, _, entry = heappop(lines)
            if entry.deadline == deadline and entry.state in WAITING:
                return entry
        return None

    def due_at(self) -> float:
        """Return when a deadline or a cool-down passes next."""
        at = self.deadlines[0][0] if self.deadlines else NEVER
        return min(at, self.cooling[0][0]) if self.cooling else at

    def wake_at(self) -> float:
        """Return when time alone changes something."""
        return min(self.blocked_until, self.due_at())
