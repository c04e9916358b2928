"""The oracle: it hears every event with its effects, keeps its own account, and says what must not be.

It knows what may happen, not what the core would choose among equals: the order between tenants of one level is judged
elsewhere. Where the core may keep a slot free for a reason that the oracle cannot know exactly (a call that is larger
than what the token rate has left stands before a smaller one), the oracle lets the reason count when it could hold.
"""

from __future__ import annotations

from typing import Any

import pytest
from account import NEVER, Account, Call

from fairq_ipy.core.messages import (
    Admit,
    Backoff,
    Cancel,
    Capacity,
    Close,
    Held,
    Hold,
    Pause,
    Paused,
    PolicyChanged,
    Ready,
    Refuse,
    Resume,
    Resumed,
    Settle,
    Submit,
    Unclaimed,
    Warned,
    WindowTurned,
)


class Oracle(Account):
    """Watches a core."""

    def watch(self, event: Any, now: float, effects: list[Any], core: Any) -> None:
        self.now, self.event = now, event
        self.adapt(core._queue.adaptive)
        left = list(effects)
        self.let_time_pass(left)
        getattr(self, type(event).__name__.lower(), lambda _event, _left: None)(event, left)
        for effect in left:
            getattr(self, "on_" + type(effect).__name__.lower())(effect)
        self.after(core)

    def adapt(self, limit: Any) -> None:
        """Believe the core how many slots it has found, within the policy's bounds."""
        before, self.adaptive = self.adaptive, None if limit is None else limit.limit
        self.lowered = None not in (before, self.adaptive) and (self.adaptive < before or len(self.running()) > before)
        bounds = self.policy.limits.adaptive
        if isinstance(self.event, PolicyChanged):
            bounds = self.event.policy.limits.adaptive
        assert (bounds is None) == (self.adaptive is None)
        assert bounds is None or bounds.least <= self.adaptive <= bounds.most

    def let_time_pass(self, left: list[Any]) -> None:
        late = {
            number: call
            for number, call in self.calls.items()
            if call.state in ("waiting", "dormant") and call.deadline <= self.now
        }
        for _ in range(len(late)):
            refusal = left.pop(0)
            call = late.pop(refusal.id)
            assert refusal.reason == "queue_timeout"
            assert refusal.facts["waited"] == pytest.approx(call.waited + self.now - call.since)
            self.end(refusal.id, "rejected")
        for row in self.rows.values():
            row.probing = row.probing or (row.stalled and row.until is not None and row.until <= self.now)

    def end(self, number: int, how: str) -> None:
        assert number not in self.ended, f"ticket {number} ended twice"
        self.ended.add(number)
        call = self.calls.pop(number)
        self.rows[call.ticket.tenant].counts[how] += 1
        self.rows[call.ticket.tenant].touched = self.now

    def submit(self, event: Submit, left: list[Any]) -> None:
        ticket = event.ticket
        rules, limits = self.policy.tenant(ticket.tenant), self.policy.limits
        if not self.policy.admits(ticket.tenant):
            self.strangers += 1
            assert left.pop(0) == Refuse(ticket.id, "unknown_tenant", {})
            self.ended.add(ticket.id)
            return
        row = self.rows[ticket.tenant]
        row.counts["submitted"] += 1
        row.touched = self.now
        patience = limits.max_wait if ticket.max_wait is None else ticket.max_wait
        deadline = NEVER if patience is None else self.now + patience
        self.calls[ticket.id] = Call(ticket, self.now, self.now, deadline)
        context = rules.context
        stopped = self.paused or row.paused or (row.stalled and not row.probing)
        reasons = {
            "shut_down": self.closed,
            "context": (context.messages is not None and ticket.messages > context.messages)
            or (context.tokens is not None and ticket.prompt_tokens > context.tokens),
            "paused": rules.on_paused == "refuse" and stopped,
            "budget": self.hopeless(ticket),
        }
        expected = next((reason for reason, there in reasons.items() if there), None)
        if expected is not None:
            refusal = left.pop(0)
            assert (refusal.id, refusal.reason) == (ticket.id, expected)
            self.end(ticket.id, "rejected")

    def cancel(self, event: Cancel, _left: list[Any]) -> None:
        if event.id in self.calls and self.calls[event.id].state != "running":
            self.end(event.id, "cancelled")

    def release(self, number: int, receipt: Any) -> Call:
        call = self.calls[number]
        sent = receipt is not None and receipt.outcome != "unsent"
        row = self.rows[call.ticket.tenant]
        row.touched = self.now
        for budget, _, _ in self.budgets(call.ticket.tenant) if sent else ():
            tokens = receipt.prompt_tokens + receipt.output_tokens
            need = tokens if budget.unit == "tokens" else self.need(budget.unit, call.ticket, call.held)
            row.used[budget.unit, budget.per] += need
        row.counts["tokens"] += receipt.prompt_tokens + receipt.output_tokens if sent else 0
        call.spent[1:] = [receipt.prompt_tokens + receipt.output_tokens if sent else 0]
        if receipt is not None and not sent:
            call.sent[1:] = [0]
        return call

    def settle(self, event: Settle, left: list[Any]) -> None:
        receipt = event.receipt
        call = self.release(event.id, receipt)
        tenant = call.ticket.tenant
        self.end(event.id, "cancelled" if receipt.outcome == "cancelled" else "completed")
        self.rows[tenant].counts["failed"] += receipt.outcome not in ("ok", "cancelled")
        if receipt.outcome == "ok":
            known = self.averages.get(tenant)
            tokens = receipt.output_tokens
            self.averages[tenant] = tokens if known is None else known + 0.2 * (tokens - known)
            self.overall += 0.2 * (tokens - self.overall)
            self.judge(tenant, receipt, left)
        answered = receipt.outcome == "ok" if receipt.status is None else receipt.status in (200, 400)
        if answered and self.ramp is not None and self.now >= self.held_until:
            self.ramp = None if self.ramp * 2 >= self.slots else self.ramp * 2

    def judge(self, tenant: str, receipt: Any, left: list[Any]) -> None:
        rule, row = self.policy.tenant(tenant).stall, self.rows[tenant]
        if rule is None:
            return
        if receipt.acted or receipt.chars >= rule.min_chars:
            if row.stalled and not row.paused:
                assert left.pop(0) == Resumed(tenant)
            self.clear(row)
            return
        row.empties += 1
        if row.empties < rule.threshold or (row.stalled and not row.probing):
            return
        if rule.action == "warn":
            row.empties = 0
            assert isinstance(left.pop(0), Warned)
            return
        row.stalled, row.probing, row.until = True, False, None
        if rule.resume_after is not None:
            double = rule.resume_after if row.cool_down is None else 2 * row.cool_down
            row.cool_down = min(double, rule.resume_max)
            row.until = self.now + row.cool_down
        paused = left.pop(0)
        assert (type(paused), paused.tenant, paused.until) == (Paused, tenant, row.until)
        for call in self.of(tenant, "waiting", "dormant") if rule.action == "evict" else ():
            refusal = next(effect for effect in left if isinstance(effect, Refuse) and effect.id == call.ticket.id)
            assert refusal.reason == "evicted"
            left.remove(refusal)
            self.end(call.ticket.id, "rejected")

    def backoff(self, event: Backoff, left: list[Any]) -> None:
        call = self.release(event.id, None)
        asked = event.retry_after
        rules = self.policy.backpressure
        was_held = self.now < self.held_until
        for effect in [effect for effect in left if isinstance(effect, Held)]:
            left.remove(effect)
            assert effect.until > self.held_until
            self.held_until = effect.until
        if asked is not None and asked > 0:
            assert self.held_until >= self.now + min(asked, rules.max_hold), "it comes back too early"
        elif not was_held and not self.lowered:
            assert self.now + rules.base <= self.held_until <= self.now + rules.max_hold
        self.ramp = self.ramp if self.lowered and asked is None else 1
        if call.attempts > rules.retries or self.closed:
            refusal = left.pop(0)
            assert (refusal.id, refusal.reason, refusal.facts["attempts"]) == (event.id, "endpoint", call.attempts)
            self.end(event.id, "rejected")
        else:
            self.wait_again(call, "waiting")

    def wait_again(self, call: Call, state: str) -> None:
        call.state = state
        call.deadline += self.now - call.since
        call.since = self.now

    def unclaimed(self, event: Unclaimed, left: list[Any]) -> None:
        call = self.calls[event.id]
        call.attempts -= 1
        call.sent[1:], call.spent[1:] = [0], [0]
        if self.closed:
            assert left.pop(0) == Refuse(event.id, "shut_down", {})
            self.end(event.id, "rejected")
        else:
            self.wait_again(call, "dormant")

    def ready(self, event: Ready, _left: list[Any]) -> None:
        if event.id in self.calls and self.calls[event.id].state == "dormant":
            self.calls[event.id].state = "waiting"

    def pause(self, event: Pause, left: list[Any]) -> None:
        assert left.pop(0) == Paused(event.tenant, event.why, None)
        if event.tenant is None:
            self.paused = True
        else:
            self.rows[event.tenant].paused = True

    def resume(self, event: Resume, left: list[Any]) -> None:
        assert left.pop(0) == Resumed(event.tenant)
        if event.tenant is None:
            self.paused = False
        else:
            self.clear(self.rows[event.tenant])
            self.rows[event.tenant].paused = False

    def hold(self, event: Hold, left: list[Any]) -> None:
        if event.until > max(self.now, self.held_until):
            assert left.pop(0) == Held(event.until)
            self.held_until, self.ramp = event.until, 1

    def capacity(self, event: Capacity, _left: list[Any]) -> None:
        self.granted = event.slots

    def policychanged(self, event: PolicyChanged, left: list[Any]) -> None:
        self.policy = event.policy
        for tenant, row in self.rows.items():
            rules = self.policy.tenant(tenant)
            kept = {(budget.unit, budget.per) for budget in rules.budgets}
            row.used = type(row.used)({key: used for key, used in row.used.items() if key in kept})
            if row.stalled and (rules.stall is None or rules.stall.action == "warn"):
                self.clear(row)
                if not row.paused:
                    left.remove(Resumed(tenant))

    def windowturned(self, event: WindowTurned, _left: list[Any]) -> None:
        for row in self.rows.values():
            row.used = type(row.used)({key: used for key, used in row.used.items() if key[1] != event.per})

    def close(self, _event: Close, _left: list[Any]) -> None:
        self.closed = True

    # --------------------------------------------------------------------------------------------------------- promises

    def on_admit(self, effect: Admit) -> None:
        call = self.calls[effect.id]
        ticket, now = call.ticket, self.now
        assert not self.paused, "all is paused"
        assert not self.closed, "the queue is closed"
        assert now >= self.held_until, "the endpoint is held"
        assert len(self.running()) < self.open, "no slot is free"
        heads = self.heads()
        assert call in heads, "it is not first in its lane, or its tenant may not go, or cannot pay"
        assert not self.crowding(ticket.tenant, now, loosely=False), "it takes the last slot from another"
        assert self.in_time(call, now), "it goes too fast"
        free = self.open - len(self.running())
        if not any(ticket.level == self.soonest(heads, free, loosely=loosely) for loosely in (False, True)):
            assert self.late(ticket.level, now, affordable=False), "a sooner level waits, or a slot is reserved"
            assert free > self.reserved(ticket.level)[1], "it takes a slot that is reserved"
        may = [head for head in heads if not self.crowding(head.ticket.tenant, now, loosely=True)]
        late = {head.ticket.level for head in may if free > self.reserved(head.ticket.level)[1]}
        if any(self.late(level, now, affordable=True) for level in late):
            assert self.late(ticket.level, now, affordable=False), "a level starves"
        call.state = "running"
        call.attempts += 1
        call.waited += now - call.since
        assert (effect.attempt, effect.waited) == (call.attempts, pytest.approx(call.waited))
        call.since, call.held = now, self.most(ticket)
        call.sent, call.spent = [now, 1], [now, ticket.prompt_tokens + self.expected(ticket)]
        if self.policy.limits.requests_per_minute is not None:
            self.sent.append(call.sent)
        if self.policy.limits.tokens_per_minute is not None:
            self.spent.append(call.spent)
        self.last_admitted[ticket.level] = now
        for budget, used, aside in self.budgets(ticket.tenant):
            assert used + aside <= budget.limit, "more than the budget is spoken for"

    def soonest(self, heads: list[Call], free: int, *, loosely: bool) -> int | None:
        """Return the soonest level that may take a slot on time."""
        allowed = [head.ticket for head in heads if not self.crowding(head.ticket.tenant, self.now, loosely=loosely)]
        return min((ticket.level for ticket in allowed if free > self.reserved(ticket.level)[0]), default=None)

    def on_refuse(self, effect: Refuse) -> None:
        call = self.calls[effect.id]
        if effect.reason == "queue_full":
            assert isinstance(self.event, Submit)
            assert self.event.ticket is call.ticket
            own = self.policy.tenant(call.ticket.tenant).queue
            own = self.policy.limits.queue_per_tenant if own is None else own
            beside = [
                len(self.of(call.ticket.tenant, "waiting", "dormant")) - 1,
                len(self.ids("waiting", "dormant")) - 1,
            ]
            bounds = [own, self.policy.limits.queue]
            assert any(bound is not None and count >= bound for count, bound in zip(beside, bounds, strict=True))
        elif effect.reason == "budget":
            assert self.hopeless(call.ticket), "it could have waited"
        else:
            assert effect.reason == "shut_down", f"refused for {effect.reason} without a cause"
            assert self.closed
        self.end(effect.id, "rejected")

    def after(self, core: Any) -> None:
        now = self.now
        for row in self.rows.values():
            row.was_here, before = False, row.was_here
            row.left = now if before else row.left
        present = {call.ticket.tenant for call in self.running()}
        present |= {call.ticket.tenant for call in self.heads()}
        for tenant in present:
            self.rows[tenant].was_here = True
        self.nobody_forgotten(core)
        self.picture(core.snapshot(now))

    def nobody_forgotten(self, core: Any) -> None:
        wake = NEVER if core.wake_at is None else core.wake_at
        waiting = [call for call in self.calls.values() if call.state != "running"]
        assert not (self.closed and waiting), "somebody waits at a closed queue"
        assert all(wake <= call.deadline for call in waiting), "a deadline wakes nobody"
        stalled = [row.until for row in self.rows.values() if row.stalled and row.until is not None and not row.probing]
        assert all(wake <= until for until in stalled), "the end of a cool-down wakes nobody"
        ready = self.may_go(self.now, loosely=True)
        if not ready or self.paused or self.closed or len(self.running()) >= self.open:
            return
        if self.now < self.held_until:
            assert wake <= self.held_until, "the end of a hold wakes nobody"
            return
        assert any(not self.in_time(call, self.now) for call in ready), "somebody waits beside a free slot"

    def picture(self, shown: Any) -> None:
        totals = dict.fromkeys(("submitted", "rejected"), self.strangers)
        for tenant, row in self.rows.items():
            there = shown.tenants[tenant]
            for name in ("submitted", "completed", "rejected", "cancelled", "failed", "tokens"):
                assert getattr(there, name) == row.counts[name], (tenant, name)
                totals[name] = totals.get(name, 0) + row.counts[name]
            waiting, running = self.of(tenant, "waiting", "dormant"), self.of(tenant, "running")
            assert (there.queued, there.in_flight) == (len(waiting), len(running))
            assert there.submitted == there.completed + there.rejected + there.cancelled + len(waiting) + len(running)
            assert [(b.limit, b.used, b.reserved) for b in there.budgets] == [
                (budget.limit, used, aside) for budget, used, aside in self.budgets(tenant)
            ]
            paused = "paused" if row.paused else "probing" if row.probing else "stalled" if row.stalled else None
            assert there.state == paused or (paused is None and there.state not in ("paused", "probing", "stalled"))
            assert there.until == (row.until if row.stalled and not row.probing and not row.paused else None)
        assert all(getattr(shown, name) == total for name, total in totals.items())
        assert (shown.queued, shown.in_flight) == (len(self.ids("waiting", "dormant")), len(self.running()))
        assert (shown.cap, shown.paused) == (self.slots, self.paused)
        assert shown.held_until == (self.held_until if self.held_until > self.now else None)
