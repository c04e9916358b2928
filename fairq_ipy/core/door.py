"""Who comes in: what is refused before it waits, and what does not find room."""

from __future__ import annotations

from typing import Any

from fairq_ipy.core import budgets
from fairq_ipy.core.model import Reason, Ticket
from fairq_ipy.core.queue import Queue
from fairq_ipy.core.roster import Tenant


def unwelcome(queue: Queue, ticket: Ticket, tenant: Tenant) -> tuple[Reason, dict[str, Any]] | None:
    """Return why a ticket is refused before it waits, and the facts of that; ``None`` when it may wait."""
    if queue.closed:
        return "shut_down", {}
    large = budgets.too_large(tenant.rules.context, ticket)
    if large is not None:
        return "context", large
    if tenant.rules.on_paused == "refuse" and (queue.paused or tenant.waits_for_person_or_probe()):
        if queue.paused:
            return "paused", {"why": queue.why_paused, "resumes_at": None}
        return "paused", {"why": tenant.why, "resumes_at": tenant.resumes_at()}
    if tenant.meters:
        meter = queue.hopeless(tenant, ticket, queue.most(ticket))
        if meter is not None:
            return "budget", meter.facts()
    return None


def overfull(queue: Queue, tenant: Tenant) -> tuple[int, int] | None:
    """Return how many wait beside the newest ticket, and the bound that it passes; ``None`` when it has room."""
    limits = queue.policy.limits
    own = limits.queue_per_tenant if tenant.rules.queue is None else tenant.rules.queue
    if own is not None and tenant.queued > own:
        return tenant.queued - 1, own
    if limits.queue is not None and queue.queued > limits.queue:
        return queue.queued - 1, limits.queue
    return None
