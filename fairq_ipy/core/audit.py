"""What must always hold; asked after every test, never in production."""

from __future__ import annotations

from fairq_ipy.core.fairness import Lane, Level
from fairq_ipy.core.lifecycle import WAITING
from fairq_ipy.core.queue import Queue
from fairq_ipy.core.roster import Tenant


def check(queue: Queue, now: float) -> None:
    """Raise `AssertionError` when the state of the queue contradicts itself or an invariant of `scheduler`.

    Args:
        queue: the queue.
        now: time of the latest event.
    """
    _counts(queue)
    for tenant in queue.tenants.values():
        _tenant(queue, tenant)
        for lane in tenant.lanes.values():
            _lane(queue, lane)
    for level in queue.levels:
        _level(level)
    _nobody_forgotten(queue, now)


def _counts(queue: Queue) -> None:
    entries = queue.entries.values()
    waiting = [entry for entry in entries if entry.state in WAITING]
    running = [entry for entry in entries if entry.state == "running"]
    assert len(waiting) + len(running) == len(queue.entries), "an ended ticket is still kept"
    assert queue.queued == len(waiting) == sum(tenant.queued for tenant in queue.tenants.values())
    assert queue.in_flight == len(running) == sum(tenant.in_flight for tenant in queue.tenants.values())
    assert queue.in_flight == sum(level.in_flight for level in queue.levels)
    assert queue.listed == sum(level.listed for level in queue.levels)
    assert queue.presence.here == sum(tenant.here for tenant in queue.tenants.values())
    assert set(queue.busy) == {tenant for tenant in queue.tenants.values() if tenant.in_flight}
    assert 0 <= queue.open <= queue.slots


def _tenant(queue: Queue, tenant: Tenant) -> None:
    ended = tenant.completed + tenant.rejected + tenant.cancelled
    assert tenant.submitted == ended + tenant.queued + tenant.in_flight, f"{tenant.name}: a ticket was lost or doubled"
    assert tenant.failed <= tenant.completed
    assert tenant.listed == sum(lane.listed for lane in tenant.lanes.values())
    assert tenant.here == (tenant.listed > 0 or tenant.in_flight > 0), f"{tenant.name}: presence"
    for meter in tenant.meters:
        assert meter.reserved >= 0
        assert meter.reserved == sum(
            meter.need(entry.ticket, entry.held_tokens)
            for entry in queue.entries.values()
            if entry.state == "running" and entry.lane.tenant is tenant
        ), f"{tenant.name}: {meter.budget} reserves {meter.reserved}"


def _lane(queue: Queue, lane: Lane) -> None:
    waiting = [entry for entry in lane.queue if entry.state == "waiting"]
    assert lane.live == len(waiting)
    assert lane.dead == len(lane.queue) - len(waiting)
    assert [entry.seq for entry in waiting] == sorted(entry.seq for entry in waiting), "not FIFO"
    assert all(queue.entries[entry.ticket.id] is entry for entry in waiting)
    eligible = lane.live > 0 and not lane.parked and not lane.tenant.blocked()
    assert lane.listed == eligible, f"{lane.tenant.name}/{lane.level.number}: listed is {lane.listed}"
    if lane.listed:
        assert (lane.c, lane.last, lane.uid, lane) in lane.level.heap, "a listed lane is not in the heap"


def _level(level: Level) -> None:
    assert level.listed == sum(lane.listed for lane in level.lanes)
    assert level.in_flight >= 0
    assert all(lane.level is level for lane in level.lanes)


def _nobody_forgotten(queue: Queue, now: float) -> None:
    """No eligible ticket waits beside a slot that it may take."""
    free = queue.open - queue.in_flight
    if free <= 0 or queue.paused or queue.closed or now < queue.pressure.held_until or queue.blocked_by == "rate":
        return
    kept = unmet = 0
    for level in queue.levels:
        for lane in level.lanes:
            if lane.listed and free > unmet:
                crowding = free == 1 and queue.open > 1 and set(queue.busy) == {lane.tenant}
                assert crowding, f"{lane.tenant.name} waits at level {level.number} beside {free} free slots"
                assert queue.policy.headroom_for > 0
        share = min(level.reserve, queue.open - 1 - kept)
        kept += share
        unmet += max(0, share - level.in_flight)
