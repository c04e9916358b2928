"""One entry point: `Scheduler.handle` takes an event and the time, changes the state, and returns what must be done.

Invariants, held by `check()` after every test, and by a state machine test:

1. Every ticket ends exactly once: settled, refused or cancelled; the counts add up.
2. In flight never exceeds the open slots at admission.
3. FIFO within a lane, also after a retry.
4. If a slot is free and an eligible ticket waits, it is admitted at once (headroom, reserve and rates aside).
5. Paused tenants get nothing; a held endpoint gets nothing.
6. What is used and reserved never exceeds a budget at admission.
7. Replaying the same events at the same times gives the same effects.

What never lives here: a clock, a thread, I/O, randomness. The time is handed in; it may stand still, and must not go
back. Races of the outside are ordinary: cancelling a ticket that has just ended, or asking again for a dead one, does
nothing; but settling a ticket that is not running is a mistake of the caller and raises `ValueError` before anything
is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Any

from fairq_ipy.core import audit, budgets, door, picture
from fairq_ipy.core.admission import admit, sweep
from fairq_ipy.core.lifecycle import Entry
from fairq_ipy.core.messages import (
    Backoff,
    Cancel,
    Capacity,
    Close,
    Effect,
    Event,
    Held,
    Hold,
    Pause,
    Paused,
    Place,
    PolicyChanged,
    Progress,
    Ready,
    Refuse,
    Resume,
    Resumed,
    Settle,
    Snapshot,
    Submit,
    Tick,
    Unclaimed,
    Warned,
    WindowTurned,
)
from fairq_ipy.core.model import CREDIBLE, Policy, Receipt, Stall
from fairq_ipy.core.queue import NEVER, Queue
from fairq_ipy.core.roster import Tenant

_Handler = Callable[[Any, float, list[Effect]], None]


class Scheduler:
    """The queue's mind.

    Args:
        policy: the rules that hold at first.
        now: the time, in seconds of the clock that every later event is stamped with.
    """

    def __init__(self, policy: Policy, now: float = 0.0) -> None:
        self._queue = Queue(policy)
        self._now = now
        self._refusals = 0
        self._retries = 0
        self._strangers = 0
        self._handlers: Mapping[type, _Handler] = {
            Submit: self._submit,
            Cancel: self._cancel,
            Progress: self._progress,
            Settle: self._settle,
            Backoff: self._backoff,
            Unclaimed: self._unclaimed,
            Ready: self._ready,
            Pause: self._pause,
            Resume: self._resume,
            Hold: self._hold,
            Capacity: self._capacity,
            PolicyChanged: self._policy_changed,
            WindowTurned: self._window_turned,
            Tick: self._tick,
            Close: self._close,
        }

    @property
    def policy(self) -> Policy:
        """The rules that hold now."""
        return self._queue.policy

    @property
    def wake_at(self) -> float | None:
        """When a `Tick` is due at the latest; ``None`` when only events change anything."""
        at = self._queue.wake_at()
        return None if at == NEVER else at

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in what happened at `now`, and return what must be done, in order.

        Args:
            event: one of the events of `fairq_ipy.core.messages`.
            now: seconds; never before the time of the event before.

        Raises:
            ValueError: the event cannot happen in this state; nothing was changed.
        """
        effects: list[Effect] = []
        queue = self._queue
        if (queue.deadlines or queue.cooling) and queue.due_at() <= now:
            self._reject_impossible(event)
            self._tick(event, now, effects)
        self._handlers[type(event)](event, now, effects)
        self._now = now
        if queue.listed and queue.in_flight < queue.open:
            admit(queue, now, effects)
        else:
            queue.blocked_until = NEVER
            queue.blocked_by = ""
        return effects

    def snapshot(self, now: float) -> Snapshot:
        """Return the picture of the queue at `now`."""
        counts = {"refusals": self._refusals, "retries": self._retries, "strangers": self._strangers}
        return picture.snapshot(self._queue, now, **counts)

    def place(self, id: int, now: float) -> Place | None:  # noqa: A002 - the ticket's own word for it
        """Return where a waiting ticket stands; ``None`` when it does not wait."""
        return picture.place(self._queue, id, now)

    def check(self) -> None:
        """Raise `AssertionError` when an invariant does not hold. O(tickets): for tests."""
        audit.check(self._queue, self._now)

    # ----------------------------------------------------------------------------------------------- one's own call

    def _submit(self, event: Submit, now: float, effects: list[Effect]) -> None:
        queue = self._queue
        ticket = event.ticket.credible()
        if ticket.id in queue.entries:
            self._reject_impossible(event)
        if queue.exclusive and not queue.policy.admits(ticket.tenant):
            self._strangers += 1
            effects.append(Refuse(ticket.id, "unknown_tenant", {}))
            return
        tenant = queue.tenants.get(ticket.tenant) or queue.tenant(ticket.tenant)
        tenant.submitted += 1
        refusal = None if tenant.plain and not queue.closed else door.unwelcome(queue, ticket, tenant)
        if refusal is not None:
            tenant.rejected += 1
            effects.append(Refuse(ticket.id, *refusal))
            return
        entry = queue.enqueue(ticket, tenant, now)
        if queue.in_flight < queue.open:
            admit(queue, now, effects)
        full = door.overfull(queue, tenant)
        if full is not None and entry.state == "waiting":
            facts = {"depth": full[0], "bound": full[1], "retry_after": queue.come_back_in()}
            queue.refuse(entry, "queue_full", facts, now, effects)

    def _cancel(self, event: Cancel, now: float, effects: list[Effect]) -> None:
        del effects
        entry = self._queue.entries.get(event.id)
        if entry is None or entry.state == "running":
            return
        was_waiting = entry.state == "waiting"
        entry.move("cancel")
        if was_waiting:
            entry.lane.take_out(entry)
        entry.lane.tenant.cancelled += 1
        self._queue.drop(entry, now)

    def _progress(self, event: Progress, now: float, effects: list[Effect]) -> None:
        del now, effects
        entry = self._queue.entries.get(event.id)
        if entry is None or entry.state != "running":
            return
        produced = min(event.output_tokens, CREDIBLE)
        excess = produced - entry.charged_output
        if excess > 0:
            entry.charged_output = float(produced)
            self._queue.correct(entry, entry.charged + self._queue.policy.output_weight * excess)

    def _settle(self, event: Settle, now: float, effects: list[Effect]) -> None:
        queue = self._queue
        receipt = event.receipt.credible()
        entry = self._running(event.id)
        entry.move("settle")
        tenant = entry.lane.tenant
        del queue.entries[event.id]
        if receipt.answered:
            queue.answered(now)
        queue.release(entry, receipt, now)
        if receipt.outcome == "cancelled":
            tenant.cancelled += 1
        else:
            tenant.completed += 1
            tenant.failed += receipt.outcome != "ok"
        if receipt.outcome in ("ok", "truncated"):
            queue.learn_service(now - entry.since)
        if receipt.outcome == "ok":
            queue.estimates.learn(tenant.name, entry.ticket.model, receipt.output_tokens)
        if tenant.rules.stall is not None:
            self._judge(tenant, tenant.rules.stall, receipt, now, effects)
        self._freed(tenant, now, effects)

    def _backoff(self, event: Backoff, now: float, effects: list[Effect]) -> None:
        queue = self._queue
        entry = self._running(event.id)
        tenant = entry.lane.tenant
        rules = queue.policy.backpressure
        self._refusals += 1
        longer = queue.pushed_back(event.retry_after, event.jitter, now)
        queue.release(entry, None, now)
        if entry.attempts > rules.retries or queue.closed:
            wait = max(0.0, queue.pressure.held_until - now)
            facts = {"status": event.status, "attempts": entry.attempts, "retry_after": wait}
            queue.turn_away(entry, "endpoint", facts, effects)
        else:
            self._retries += 1
            entry.move("requeue")
            queue.put_back(entry, now)
        self._freed(tenant, now, effects)
        if longer:
            effects.append(Held(queue.pressure.held_until))

    def _unclaimed(self, event: Unclaimed, now: float, effects: list[Effect]) -> None:
        queue = self._queue
        entry = self._running(event.id)
        entry.attempts -= 1
        queue.release(entry, Receipt("unsent"), now)
        if queue.closed:
            queue.turn_away(entry, "shut_down", {}, effects)
        else:
            entry.move("unclaim")
            queue.put_back(entry, now)
        self._freed(entry.lane.tenant, now, effects)

    def _ready(self, event: Ready, now: float, effects: list[Effect]) -> None:
        del effects
        entry = self._queue.entries.get(event.id)
        if entry is None or entry.state != "dormant":
            return
        entry.move("wake")
        self._queue.line_up(entry)
        self._queue.presence.update(entry.lane.tenant, now)

    def _running(self, id: int) -> Entry:  # noqa: A002 - the ticket's own word for it
        entry = self._queue.entries.get(id)
        if entry is None or entry.state != "running":
            text = f"ticket {id} is not running: {'unknown or over' if entry is None else entry.state}"
            raise ValueError(text)
        return entry

    def _reject_impossible(self, event: Event) -> None:
        """Raise `ValueError` before anything is changed: what time has done would be lost together with the event."""
        if isinstance(event, Submit) and event.ticket.id in self._queue.entries:
            text = f"ticket {event.ticket.id} was submitted before"
            raise ValueError(text)
        if isinstance(event, Settle | Backoff | Unclaimed):
            self._running(event.id)

    def _freed(self, tenant: Tenant, now: float, effects: list[Effect]) -> None:
        """Look again at a tenant that has one call less in flight and may have used up a budget."""
        queue = self._queue
        if tenant.loose and not tenant.meters:
            if not tenant.in_flight:
                queue.presence.update(tenant, now)
            return
        if tenant.meters:
            sweep(queue, tenant, now, effects)
        queue.refresh(tenant, now)

    # ------------------------------------------------------------------------------------------------- the tenants

    def _judge(self, tenant: Tenant, rule: Stall, receipt: Receipt, now: float, effects: list[Effect]) -> None:
        verdict = tenant.watch.judge(receipt, rule, now)
        if verdict == "warn":
            effects.append(Warned(tenant.name, f"{rule.threshold} empty answers in a row"))
        elif verdict == "recovered":
            _recovered(tenant, effects)
        elif verdict == "stall":
            why, until = tenant.watch.why(), tenant.watch.until
            if not tenant.paused:
                tenant.why = why
            effects.append(Paused(tenant.name, why, until))
            if until is not None:
                heappush(self._queue.cooling, (until, tenant.uid, tenant))
            if rule.action == "evict":
                self._evict(tenant, why, now, effects)

    def _evict(self, tenant: Tenant, why: str, now: float, effects: list[Effect]) -> None:
        waiting = [entry for entry in self._queue.entries.values() if entry.lane.tenant is tenant]
        for entry in waiting:
            if entry.state != "running":
                self._queue.refuse(entry, "evicted", {"why": why}, now, effects)

    def _pause(self, event: Pause, now: float, effects: list[Effect]) -> None:
        queue = self._queue
        if event.tenant is None:
            queue.paused, queue.why_paused = True, event.why
        else:
            tenant = queue.tenant(event.tenant)
            tenant.paused, tenant.why = True, event.why
            queue.refresh(tenant, now)
        effects.append(Paused(event.tenant, event.why, None))

    def _resume(self, event: Resume, now: float, effects: list[Effect]) -> None:
        queue = self._queue
        if event.tenant is None:
            queue.paused, queue.why_paused = False, ""
        else:
            tenant = queue.tenant(event.tenant)
            tenant.paused, tenant.why = False, ""
            tenant.watch.clear()
            queue.refresh(tenant, now)
        effects.append(Resumed(event.tenant))

    # -------------------------------------------------------------------------------------------- what all share

    def _hold(self, event: Hold, now: float, effects: list[Effect]) -> None:
        queue = self._queue
        if event.until > now and queue.pressure.hold(event.until):
            effects.append(Held(event.until))
            queue.recap()

    def _capacity(self, event: Capacity, now: float, effects: list[Effect]) -> None:
        del now, effects
        self._queue.granted = event.slots
        self._queue.recap()

    def _policy_changed(self, event: PolicyChanged, now: float, effects: list[Effect]) -> None:
        queue = self._queue
        policy = queue.policy = event.policy
        queue.adapt()
        queue.recap()
        queue.reserve()
        for tenant in queue.tenants.values():
            rules = policy.tenant(tenant.name)
            tenant.obey(rules, budgets.meters(rules.budgets, tenant.meters, queue.window_ends))
            if tenant.watch.stalled and (rules.stall is None or rules.stall.action == "warn"):
                tenant.watch.clear()
                _recovered(tenant, effects)
            for lane in tenant.lanes.values():
                lane.weight = rules.weight
        for entry in queue.entries.values():
            if entry.state == "running":
                budgets.reserve(entry.lane.tenant.meters, entry.ticket, entry.held_tokens)
        for tenant in queue.tenants.values():
            queue.refresh(tenant, now)

    def _window_turned(self, event: WindowTurned, now: float, effects: list[Effect]) -> None:
        del effects
        queue = self._queue
        queue.window_ends[event.per] = event.ends
        for tenant in queue.tenants.values():
            turned = [meter for meter in tenant.meters if meter.budget.per == event.per]
            for meter in turned:
                meter.used, meter.resets_at = 0, event.ends
            if turned:
                queue.refresh(tenant, now)

    def _tick(self, event: Event, now: float, effects: list[Effect]) -> None:
        """Let time do its work: what has waited too long is refused, who has cooled down may probe."""
        del event
        queue = self._queue
        while (entry := queue.next_expired(now)) is not None:
            waited = entry.waited + now - entry.since
            queue.refuse(entry, "queue_timeout", {"waited": waited}, now, effects)
        while queue.cooling and queue.cooling[0][0] <= now:
            tenant = heappop(queue.cooling)[2]
            if tenant.watch.cooled(now):
                queue.refresh(tenant, now)

    def _close(self, event: Close, now: float, effects: list[Effect]) -> None:
        del event
        queue = self._queue
        queue.closed = True
        for entry in list(queue.entries.values()):
            if entry.state != "running":
                queue.refuse(entry, "shut_down", {}, now, effects)


def _recovered(tenant: Tenant, effects: list[Effect]) -> None:
    """Say that a stalled tenant runs again, unless a person has paused it as well."""
    if not tenant.paused:
        tenant.why = ""
        effects.append(Resumed(tenant.name))
