"""From the core's word of refusal to the error that the caller reads: what happened, and what to do about it."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from fairq_ipy.core.model import Policy, Reason, Ticket
from fairq_ipy.errors import FairqError, UnknownTenantError, refusal_types

__all__ = ["nearest", "refusal", "unknown_tenant", "untagged"]

Sentence = Callable[[Ticket, Mapping[str, Any], Policy, str], str]

TYPES: Final = refusal_types()

MINUTE: Final = 60.0
HOUR: Final = 3600.0


def refusal(reason: Reason, ticket: Ticket, facts: Mapping[str, Any], policy: Policy, source: str) -> FairqError:
    """Return the error for a refused ticket.

    Args:
        reason: the core's word.
        ticket: the call.
        facts: what becomes the error's attributes; its times are seconds since the epoch.
        policy: the rules that refused it.
        source: how people call the file those rules are from.
    """
    if reason == "unknown_tenant":
        return unknown_tenant(ticket.tenant, policy, source, ticket=ticket.id)
    sentence = _SENTENCES[reason](ticket, facts, policy, source)
    return TYPES[reason](sentence, tenant=ticket.tenant, ticket=ticket.id, **facts)


def unknown_tenant(name: str, policy: Policy, source: str, *, ticket: int | None = None) -> UnknownTenantError:
    """Return the error for a tenant that the policy does not let ask."""
    near = nearest(name, policy.tenants)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    text = f"{name!r} is no tenant of {source}, which lets only named tenants ask{meant or '; add it under tenants'}"
    return UnknownTenantError(text, tenant=name, ticket=ticket, nearest=near)


def untagged(source: str) -> UnknownTenantError:
    """Return the error for a call that names no tenant where the policy wants one."""
    return UnknownTenantError(
        f"this call names no tenant, and {source} has no default_tenant; say who asks: tenant=..., or "
        "`with fairq.tenant(...):` around it (threads of an executor do not inherit that)"
    )


def nearest(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return up to three of `names` that look like `name`, the most similar first."""
    folded = {each.casefold(): each for each in names}
    return tuple(folded[each] for each in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.5))


def _queue_full(ticket: Ticket, facts: Mapping[str, Any], policy: Policy, source: str) -> str:
    bound = facts["bound"]
    own = policy.tenant(ticket.tenant).queue
    if bound == policy.limits.queue:
        whose, key = "queue full", "limits.queue"
    elif own is not None:
        whose, key = f"queue of {ticket.tenant} full", f"tenants.{ticket.tenant}.queue"
    else:
        whose, key = f"queue of {ticket.tenant} full", "limits.queue_per_tenant"
    after = facts.get("retry_after")
    when = "in a few seconds" if after is None else f"in about {_span(after)}"
    return f"{whose}: {facts['depth']} of {bound} waiting; try again {when}, or raise {key} in {source}"


def _budget(ticket: Ticket, facts: Mapping[str, Any], policy: Policy, source: str) -> str:
    del policy
    used, limit, budget = facts["used"], facts["limit"], facts["budget"]
    at = facts.get("resets_at")
    when = "it lasts for the session" if at is None else f"it resets at {_clock(at)}"
    return f"{ticket.tenant} has used {used} of {limit} {budget}, which leaves no room; {when}; {source} sets its size"


def _context(ticket: Ticket, facts: Mapping[str, Any], policy: Policy, source: str) -> str:
    del policy
    unit, size, limit = facts["unit"], facts["size"], facts["limit"]
    return (
        f"the request carries {size} {unit}, and {ticket.tenant} may send {limit} at once; "
        f"shorten it, or raise context.{unit} in {source}"
    )


def _paused(ticket: Ticket, facts: Mapping[str, Any], policy: Policy, source: str) -> str:
    del policy, source
    at = facts.get("resumes_at")
    when = "" if at is None else f" until {_clock(at)}"
    why = f": {facts['why']}" if facts.get("why") else ""
    return f"{ticket.tenant} is paused{when}{why}; fairq.resume({ticket.tenant!r}) lets it run again"


def _evicted(ticket: Ticket, facts: Mapping[str, Any], policy: Policy, source: str) -> str:
    del policy, source
    why = f": {facts['why']}" if facts.get("why") else ""
    return (
        f"{ticket.tenant} was paused and what it had queued was dropped{why}; "
        f"mend the caller, then fairq.resume({ticket.tenant!r})"
    )


def _queue_timeout(ticket: Ticket, facts: Mapping[str, Any], policy: Policy, source: str) -> str:
    del policy
    key = f"raise limits.max_wait in {source}" if ticket.max_wait is None else "allow it more time"
    return f"waited {_span(facts['waited'])} in the queue and was not sent; try again when less is queued, or {key}"


def _would_deadlock(ticket: Ticket, facts: Mapping[str, Any], policy: Policy, source: str) -> str:
    del policy, source
    return (
        f"call {ticket.id} waits for the slot of call {facts['outer']}, which its own caller holds; "
        "leave the inner permit() block first, or make the call inside it"
    )


def _shut_down(ticket: Ticket, facts: Mapping[str, Any], policy: Policy, source: str) -> str:
    del ticket, facts, policy, source
    return "the session was closed while the call waited; it was not sent"


def _endpoint(ticket: Ticket, facts: Mapping[str, Any], policy: Policy, source: str) -> str:
    del ticket, policy
    status, attempts = facts.get("status"), facts.get("attempts", 1)
    what = "refused" if status is None else f"answered {status}"
    times = "once" if attempts == 1 else f"{attempts} times"
    return f"the endpoint {what} {times}, which is as often as backpressure.retries in {source} allows; try again later"


_SENTENCES: Final[Mapping[Reason, Sentence]] = {
    "queue_full": _queue_full,
    "budget": _budget,
    "context": _context,
    "paused": _paused,
    "evicted": _evicted,
    "queue_timeout": _queue_timeout,
    "would_deadlock": _would_deadlock,
    "shut_down": _shut_down,
    "endpoint": _endpoint,
}


def _span(seconds: float) -> str:
    for size, unit in ((HOUR, "h"), (MINUTE, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _clock(at: float) -> str:
    """Return a time of day, with its date when that is not today's."""
    then, today = time.localtime(at), time.localtime()
    return time.strftime("%H:%M" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)
