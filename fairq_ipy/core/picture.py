"""The picture of the queue: the snapshot of all of it, and the place of one ticket."""

from __future__ import annotations

from types import MappingProxyType

from fairq_ipy.core.fairness import Lane
from fairq_ipy.core.lifecycle import Entry
from fairq_ipy.core.messages import Place, Snapshot, TenantSnapshot, TenantState, WaitsFor
from fairq_ipy.core.queue import NEVER, Queue
from fairq_ipy.core.roster import Tenant


def snapshot(queue: Queue, now: float, *, refusals: int, retries: int, strangers: int) -> Snapshot:
    """Return the whole queue at `now`. O(tenants and lanes).

    Args:
        queue: the queue.
        now: the time.
        refusals: how often the endpoint refused.
        retries: how often a call was sent again.
        strangers: calls of tenants that may not ask; they belong to no tenant's row.
    """
    rows = {name: _blank(queue, name) for name in queue.policy.tenants if name not in queue.tenants}
    rows |= {tenant.name: _row(tenant, now) for tenant in queue.tenants.values()}
    held = queue.pressure.held_until
    return Snapshot(
        in_flight=queue.in_flight,
        queued=queue.queued,
        cap=queue.slots,
        paused=queue.paused,
        held_until=held if held > now else None,
        submitted=sum(row.submitted for row in rows.values()) + strangers,
        completed=sum(row.completed for row in rows.values()),
        rejected=sum(row.rejected for row in rows.values()) + strangers,
        cancelled=sum(row.cancelled for row in rows.values()),
        failed=sum(row.failed for row in rows.values()),
        refusals_by_endpoint=refusals,
        retries=retries,
        tokens=sum(row.tokens for row in rows.values()),
        queue_bound=queue.policy.limits.queue,
        tenants=MappingProxyType(rows),
        why_held=queue.blocked_by,
    )


def _blank(queue: Queue, name: str) -> TenantSnapshot:
    rules = queue.policy.tenants[name]
    return TenantSnapshot(weight=rules.weight, level=rules.level)


def _row(tenant: Tenant, now: float) -> TenantSnapshot:
    lanes = tenant.lanes.values()
    heads = [lane.head() for lane in lanes if lane.live]
    return TenantSnapshot(
        queued=tenant.queued,
        in_flight=tenant.in_flight,
        state=_state(tenant),
        submitted=tenant.submitted,
        completed=tenant.completed,
        rejected=tenant.rejected,
        cancelled=tenant.cancelled,
        failed=tenant.failed,
        tokens=tenant.tokens,
        weight=tenant.rules.weight,
        level=tenant.rules.level,
        why=tenant.why,
        until=tenant.resumes_at(),
        budgets=tuple(meter.state() for meter in tenant.meters),
        last_wait=tenant.last_wait,
        oldest_wait=max((head.waited + now - head.since for head in heads), default=None),
    )


def _state(tenant: Tenant) -> TenantState:
    if tenant.paused:
        return "paused"
    if tenant.watch.stalled:
        return "probing" if tenant.watch.probing else "stalled"
    if any(lane.parked for lane in tenant.lanes.values()) or _spent(tenant):
        return "over_budget"
    if tenant.in_flight:
        return "running"
    return "waiting" if tenant.queued else "idle"


def _spent(tenant: Tenant) -> bool:
    return any(meter.used >= meter.budget.limit for meter in tenant.meters)


def place(queue: Queue, number: int, now: float) -> Place | None:
    """Return where a waiting ticket stands, and what it waits for. O(tickets before it in its lane, and lanes)."""
    entry = queue.entries.get(number)
    if entry is None or entry.state == "running":
        return None
    lane = entry.lane
    before = _before(lane, entry)
    sooner = sum(each.live for level in queue.levels if level.number < lane.level.number for each in level.lanes)
    beside = sum(min(each.live, before + 1) for each in lane.level.lanes if each is not lane and each.listed)
    return Place(sooner + before + beside, *_reason(queue, entry, now))


def _before(lane: Lane, entry: Entry) -> int:
    count = 0
    for other in lane.queue:
        if other.seq >= entry.seq:
            break
        count += other.state == "waiting"
    return count


def _reason(queue: Queue, entry: Entry, now: float) -> tuple[WaitsFor, float | None]:
    """Return the first thing on the way to a slot that keeps the ticket, and when that ends."""
    tenant = entry.lane.tenant
    own = tenant.rules.concurrency
    until = None if queue.blocked_until == NEVER else queue.blocked_until
    held = queue.pressure.held_until
    obstacles: tuple[tuple[bool, WaitsFor, float | None], ...] = (
        (queue.paused or tenant.paused, "paused", None),
        (tenant.watch.stalled, "stalled", tenant.resumes_at()),
        (held > now, "hold", held),
        (entry.state == "dormant", "offer", None),
        (entry.lane.parked, "budget", _turns_at(queue, entry.lane) if entry.lane.parked else None),
        (own is not None and tenant.in_flight >= own, "concurrency", None),
        (queue.blocked_by == "rate", "rate", until),
        (queue.blocked_by == "headroom" and tenant.in_flight > 0, "headroom", until),
    )
    return next(((why, when) for there, why, when in obstacles if there), ("slot", None))


def _turns_at(queue: Queue, lane: Lane) -> float | None:
    """Return when the last of the windows turns that keep a parked lane; ``None`` when that is not known."""
    head = lane.head().ticket
    most = queue.most(head)
    meters = lane.tenant.meters
    ends = [meter.resets_at for meter in meters if meter.verdict(meter.need(head, most)) == "exhausted"]
    known = [end for end in ends if end is not None]
    return max(known) if known and len(known) == len(ends) else None
