"""The one loop that admits: while a slot is open and somebody is eligible, the fairest of them goes.

What keeps a free slot from an eligible ticket, besides a pause and a hold, is exactly this: a *reserve* (later levels
leave that many slots to a sooner one, but one slot is always left to them), *headroom* (no tenant takes every slot of
more than one while another was active lately), and the *rates*. Each of them says until when.
"""

from __future__ import annotations

from fairq_ipy.core import budgets
from fairq_ipy.core.fairness import Lane, Level
from fairq_ipy.core.lifecycle import Entry
from fairq_ipy.core.messages import Admit, Effect
from fairq_ipy.core.queue import NEVER, Queue
from fairq_ipy.core.roster import Tenant


def admit(queue: Queue, now: float, effects: list[Effect]) -> None:
    """Admit whoever may go, until nobody may. Afterwards `blocked_until` says when time alone changes that."""
    queue.blocked_until = NEVER
    queue.blocked_by = ""
    while queue.listed and queue.in_flight < queue.open and not queue.paused and not queue.closed:
        if now < queue.pressure.held_until:
            queue.blocked_until, queue.blocked_by = queue.pressure.held_until, "hold"
            return
        lane = _pick(queue, now)
        if lane is None:
            return
        entry = lane.head()
        ticket = entry.ticket
        expected = queue.estimates.expect(ticket.tenant, ticket.model, ticket.max_tokens)
        most = ticket.prompt_tokens + (int(expected) if ticket.max_tokens is None else ticket.max_tokens)
        if lane.tenant.meters and not _affordable(queue, entry, most, now, effects):
            queue.blocked_until, queue.blocked_by = NEVER, ""
            continue
        if queue.rated and not _in_time(queue, entry, ticket.prompt_tokens + expected, now):
            return
        entry.held_tokens = most
        _go(queue, entry, expected, now)
        queue.blocked_until, queue.blocked_by = NEVER, ""
        effects.append(Admit(ticket.id, entry.attempts, entry.waited))


def _in_time(queue: Queue, entry: Entry, likely: float, now: float) -> bool:
    """Return whether the rates let a ticket go now, and note in their windows that it goes."""
    at = max(queue.requests.free_at(1, now), queue.tokens.free_at(likely, now))
    if at > now:
        # The guard may prefer a smaller call before there is room for this one.
        queue.blocked_until, queue.blocked_by = min(at, _next_guard(queue, now, entry.lane.level)), "rate"
        return False
    entry.sent = queue.requests.spend(1, now)
    entry.spent = queue.tokens.spend(likely, now)
    return True


def _go(queue: Queue, entry: Entry, expected: float, now: float) -> None:
    lane = entry.lane
    level = lane.level
    tenant = lane.tenant
    policy = queue.policy
    lane.queue.popleft()
    lane.live -= 1
    entry.move("admit")
    entry.attempts += 1
    entry.waited += now - entry.since
    entry.since = now
    level.v = max(level.v, lane.c)
    entry.share = lane.weight
    entry.charged = 0.0
    entry.charged_output = expected
    lane.charge(policy.prompt_weight * entry.ticket.prompt_tokens + policy.output_weight * expected, entry)
    queue.turns += 1
    lane.last = queue.turns
    level.last_admitted = now
    if policy.starve_after is not None:
        level.guard_at = now + policy.starve_after
    queue.queued -= 1
    queue.in_flight += 1
    level.in_flight += 1
    tenant.queued -= 1
    if not tenant.in_flight:
        queue.busy[tenant] = None
    tenant.in_flight += 1
    tenant.last_wait = entry.waited
    if tenant.meters:
        budgets.reserve(tenant.meters, entry.ticket, entry.held_tokens)
    if tenant.loose or not tenant.blocked():
        if lane.live:
            level.enter(lane)
        else:
            queue.unlist(lane)
    else:
        for each in tenant.lanes.values():
            queue.unlist(each)


def _pick(queue: Queue, now: float) -> Lane | None:
    """Return the lane that is next: the starving level's first, else the soonest level that may take a slot.

    What a level has in flight counts against its reserve. For a starving level the calls of all sooner levels count:
    a flood from above and an unused reserve in between would else keep it out for ever.
    """
    free = queue.open - queue.in_flight
    crowd = _crowd(queue, now) if free == 1 and queue.open > 1 else None
    if queue.levels[0].listed == queue.listed:
        return queue.levels[0].first(crowd)
    found: Lane | None = None
    longest = -1.0
    kept = sooner = unmet = 0
    for level in queue.levels:
        if level.listed and free > kept - sooner:
            late = _late(queue, level, now) if now >= level.guard_at else None
            may = found is None and free > unmet if late is None else late > longest
            lane = level.first(crowd) if may else None
            if lane is not None:
                found = lane
                longest = longest if late is None else late
            elif late is None and free <= unmet and now < level.guard_at:
                # Time alone will make it late, and the reserve then keeps it no longer.
                queue.blocked_until = min(queue.blocked_until, level.guard_at)
        sooner += level.in_flight
        if level.reserve:
            share = min(level.reserve, queue.open - 1 - kept)
            kept += share
            unmet += max(0, share - level.in_flight)
    return found


def _crowd(queue: Queue, now: float) -> Tenant | None:
    """Return the tenant that holds every slot but the last, if headroom keeps that one from it."""
    headroom_for = queue.policy.headroom_for
    if headroom_for <= 0 or len(queue.busy) != 1:
        return None
    tenant = next(iter(queue.busy))
    if not tenant.listed:
        return None
    until = queue.presence.others_until(tenant, headroom_for, now)
    if until <= now:
        return None
    queue.blocked_until, queue.blocked_by = until, "headroom"
    return tenant


def _late(queue: Queue, level: Level, now: float) -> float | None:
    """Return how long a level waits for an admission that the starvation guard owes it; ``None`` when it owes none."""
    starve_after = queue.policy.starve_after
    if starve_after is None:
        return None
    since = max(level.starving_since(), level.last_admitted)
    level.guard_at = since + starve_after
    return None if now < level.guard_at else now - since


def _next_guard(queue: Queue, now: float, chosen: Level) -> float:
    """Return when the guard may at the soonest prefer a level that is passed over now."""
    passed = (level for level in queue.levels if level.listed and level is not chosen)
    return min((level.guard_at for level in passed if level.guard_at > now), default=NEVER)


def _affordable(queue: Queue, entry: Entry, most: int, now: float, effects: list[Effect]) -> bool:
    """Return whether the head fits its tenant's budgets; if not, refuse it or park its lane."""
    lane = entry.lane
    verdict, _ = budgets.tightest(lane.tenant.meters, entry.ticket, most)
    if verdict == "fits":
        return True
    meter = queue.hopeless(lane.tenant, entry.ticket, most)
    if meter is not None:
        queue.refuse(entry, "budget", meter.facts(), now, effects)
    else:
        lane.parked = True
        queue.unlist(lane)
        queue.presence.update(lane.tenant, now)
    return False


def sweep(queue: Queue, tenant: Tenant, now: float, effects: list[Effect]) -> None:
    """Refuse the first waiting tickets of a tenant for which there is nothing left to wait for."""
    for lane in tenant.lanes.values():
        while lane.live:
            entry = lane.head()
            meter = queue.hopeless(tenant, entry.ticket, queue.most(entry.ticket))
            if meter is None:
                break
            queue.refuse(entry, "budget", meter.facts(), now, effects)
