"""What each command shows: facts in, a `Document` out. Nothing here asks the session for anything."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairq_ipy.core.messages import BudgetState, Snapshot, TenantSnapshot
from fairq_ipy.core.model import Policy
from fairq_ipy.errors import Finding, PolicyError
from fairq_ipy.notebook.calls import Call
from fairq_ipy.notebook.document import Block, Cell, Chip, Document, Lines, Number, Paragraph, Pre, Table, Tone, shorten
from fairq_ipy.notebook.wording import count, hold_words, level_name, plural, seconds, state_chip
from fairq_ipy.policy import Settings

__all__ = [
    "broken_line",
    "dry_run",
    "endpoint_name",
    "findings",
    "level_names",
    "loaded_line",
    "log",
    "note",
    "policy",
    "source_name",
    "status",
    "story",
    "tenants",
]

_OUTCOMES: dict[str, Tone] = {"ok": "good", "running": "busy", "waiting": "busy", "cancelled": "idle", "unsent": "idle"}


def note(text: str) -> Document:
    """Return one sentence."""
    return Document(Paragraph(text))


def level_names(rules: Policy) -> dict[int, str]:
    """Return the names of the levels, by number."""
    return {level.number: level.name for level in rules.levels}


def source_name(settings: Settings) -> str:
    """Return how people call the policy: its path from here, or that there is no file."""
    return settings.name or "built-in policy"


def endpoint_name(settings: Settings) -> str:
    """Return how people call the endpoint."""
    return "the built-in demo endpoint" if settings.endpoint.base_url == "demo" else settings.endpoint.base_url


def loaded_line(settings: Settings) -> str:
    """Return the one line that says what was loaded."""
    rules = settings.rules
    who = ", ".join(shorten(name, 30) for name in list(rules.tenants)[:6])
    more = f" and {len(rules.tenants) - 6} more" if len(rules.tenants) > 6 else ""  # noqa: PLR2004 - as many as fit a line
    parts = [
        source_name(settings),
        endpoint_name(settings),
        f"{plural(rules.limits.concurrency, 'call')} at once",
        f"tenants {who}{more}" if who else "no tenants named",
    ]
    return f"fairq: {' · '.join(parts)}"


# ------------------------------------------------------------------------------------------------------------- status


def status(snapshot: Snapshot, settings: Settings, now: float, remarks: Sequence[str] = ()) -> Document:
    """Return the present state in a few lines.

    Args:
        snapshot: its times in seconds since the epoch.
        settings: the policy in use.
        now: likewise.
        remarks: further lines, as about a policy file that cannot be used.
    """
    room = "" if snapshot.queue_bound is None else f" (room for {count(snapshot.queue_bound)})"
    blocks: list[Block] = [
        Paragraph(f"{source_name(settings)} · {endpoint_name(settings)}", soft=True),
        Paragraph(f"{snapshot.in_flight} of {snapshot.cap} running, {count(snapshot.queued)} waiting{room}"),
    ]
    why = hold_words(snapshot, now)
    if why:
        blocks.append(Paragraph(why, chip=Chip("paused" if snapshot.paused else "on hold", "warn")))
    blocks += [Paragraph(remark, chip=Chip("note", "warn")) for remark in remarks]
    blocks.append(Paragraph(_counts(snapshot), soft=True))
    rows = [_status_row(name, row) for name, row in snapshot.tenants.items() if row.submitted or row.state != "idle"]
    if rows:
        blocks.append(
            Table(("tenant", "state", "running", "waiting", "done", "refused", "tokens", "last wait"), tuple(rows))
        )
    return Document(*blocks)


def _counts(snapshot: Snapshot) -> str:
    parts = [f"{plural(snapshot.submitted, 'call')} so far", f"{count(snapshot.completed)} done"]
    if snapshot.failed:
        parts.append(f"{count(snapshot.failed)} of them failed")
    if snapshot.rejected:
        parts.append(f"{count(snapshot.rejected)} refused")
    if snapshot.cancelled:
        parts.append(f"{count(snapshot.cancelled)} left")
    if snapshot.refusals_by_endpoint:
        times = plural(snapshot.refusals_by_endpoint, "time")
        parts.append(f"the endpoint was busy {times}, {count(snapshot.retries)} sent again")
    return ", ".join([*parts, f"{count(snapshot.tokens)} tokens"])


def _status_row(name: str, row: TenantSnapshot) -> tuple[Cell, ...]:
    wait = "" if row.last_wait is None else seconds(row.last_wait)
    counts = (row.in_flight, row.queued, row.completed, row.rejected, row.tokens)
    return (shorten(name), state_chip(row), *(Number(count(value)) for value in counts), Number(wait))


def tenants(snapshot: Snapshot, rules: Policy, now: float) -> Document:
    """Return one row for each tenant that asked or is named."""
    names = level_names(rules)
    rows = [
        (
            shorten(name),
            state_chip(row),
            level_name(row.level, names),
            Number(f"{row.weight:g}"),
            Number(count(row.in_flight)),
            Number(count(row.queued)),
            Number(count(row.tokens)),
            "; ".join(_budget(budget, now) for budget in row.budgets) or "no limit",
            _why(row, now),
        )
        for name, row in snapshot.tenants.items()
    ]
    if not rows:
        return note("nobody has asked yet, and the policy names nobody")
    headings = ("tenant", "state", "level", "weight", "running", "waiting", "tokens", "budgets", "why")
    return Document(Table(headings, tuple(rows)))


def _budget(budget: BudgetState, now: float) -> str:
    used = f"{count(budget.used + budget.reserved)} of {count(budget.limit)} {budget.unit} per {budget.per}"
    if budget.resets_at is None or budget.resets_at <= now:
        return used
    return f"{used}, {seconds(budget.resets_at - now)} to go"


def _why(row: TenantSnapshot, now: float) -> str:
    if row.until is None or row.until <= now:
        return shorten(row.why, 200)
    return f"{shorten(row.why, 200)}, {seconds(row.until - now)} to go".lstrip(", ")


# ------------------------------------------------------------------------------------------------------------- policy


def policy(settings: Settings) -> Document:
    """Return the rules in force, in words."""
    rules, limits, names = settings.rules, settings.rules.limits, level_names(settings.rules)
    facts = {
        "policy": source_name(settings),
        "endpoint": endpoint_name(settings),
        "model": settings.endpoint.model or "named by each call",
        "at once": plural(limits.concurrency, "call"),
        "queue": "no limit" if limits.queue is None else plural(limits.queue, "call"),
        "queue of one tenant": None if limits.queue_per_tenant is None else plural(limits.queue_per_tenant, "call"),
        "longest wait": None if limits.max_wait is None else seconds(limits.max_wait),
        "requests per minute": None if limits.requests_per_minute is None else count(limits.requests_per_minute),
        "tokens per minute": None if limits.tokens_per_minute is None else count(limits.tokens_per_minute),
        "levels": ", ".join(_level(level.name, level.number, level.reserve) for level in rules.levels),
        "starvation guard": "off" if rules.starve_after is None else f"after {seconds(rules.starve_after)}",
        "headroom": f"for {seconds(rules.headroom_for)}" if rules.headroom_for else "off",
        "without a tenant": rules.default_tenant or "refused",
        "tenants not named": "allowed" if rules.unknown_tenants == "allow" else "refused",
        "clients not ours": settings.guard,
    }
    table = Table(("rule", "value"), tuple((name, value) for name, value in facts.items() if value is not None))
    rows = [
        (
            shorten(name),
            level_name(tenant.level, names),
            Number(f"{tenant.weight:g}"),
            Number("" if tenant.concurrency is None else count(tenant.concurrency)),
            "; ".join(f"{count(each.limit)} {each.unit} per {each.per}" for each in tenant.budgets) or "no limit",
        )
        for name, tenant in [*rules.tenants.items(), ("(all others)", rules.defaults)]
    ]
    return Document(table, Table(("tenant", "level", "weight", "at once", "budgets"), tuple(rows)))


def _level(name: str, number: int, reserve: int) -> str:
    kept = f", keeps {plural(reserve, 'slot')}" if reserve else ""
    return f"{name} ({number}{kept})"


def findings(path: str | os.PathLike[str], found: Sequence[Finding]) -> Document:
    """Return what is wrong with the policy file at `path`, or that nothing is."""
    name = _short(path)
    if not found:
        return Document(Paragraph(f"{name} is a good policy", chip=Chip("ok", "good")))
    rows = tuple((Number(f"{each.line}:{each.column}"), each.path, each.message, each.hint) for each in found)
    head = Paragraph(f"{plural(len(found), 'problem')} in {name}", chip=Chip("not usable", "bad"))
    return Document(head, Table(("line", "where", "what is wrong", "what to do"), rows))


def broken_line(error: PolicyError) -> str:
    """Return the first thing that is wrong with a policy, in one line."""
    if not error.findings:
        return str(error)
    first, more = error.findings[0], len(error.findings) - 1
    return f"{replace(first, file=_short(first.file))}{f' and {more} more' if more else ''}"


def _short(path: str | os.PathLike[str]) -> str:
    """Return a path from here: a whole one would name the machine in a notebook that is saved."""
    try:
        return os.path.relpath(path)
    except ValueError:  # on another drive
        return os.fspath(path)


# -------------------------------------------------------------------------------------------------------------- calls


def log(calls: Sequence[Call], rules: Policy, shift: float) -> Document:
    """Return the latest calls, the newest last.

    Args:
        calls: their times on the keeper's clock.
        rules: for the names of the levels.
        shift: seconds from that clock to the epoch.
    """
    if not calls:
        return note("no calls yet")
    names = level_names(rules)
    rows = tuple(_log_row(call, names, shift) for call in calls)
    headings = ("ticket", "time", "tenant", "level", "outcome", "wait", "service", "tokens", "attempts")
    return Document(Table(headings, rows))


def _log_row(call: Call, names: Mapping[int, str], shift: float) -> tuple[Cell, ...]:
    about = "" if call.exact or not call.tokens else "about "
    return (
        Number(str(call.ticket)),
        time.strftime("%H:%M:%S", time.localtime(call.asked + shift)),
        shorten(call.tenant),
        level_name(call.level, dict(names)),
        Chip(call.outcome, _OUTCOMES.get(call.outcome, "bad")),
        Number("" if call.waited is None else seconds(call.waited)),
        Number("" if call.service is None else seconds(call.service)),
        Number("" if call.tokens is None else f"{about}{count(call.tokens)}"),
        Number(count(call.attempts)),
    )


def story(ticket: int, lines: Sequence[str]) -> Document:
    """Return what happened to one call."""
    if not lines:
        return note(f"nothing is known of call {ticket} (any more)")
    return Document(Paragraph(f"call {ticket}", soft=True), Pre("\n".join(lines)))


def dry_run(request: Mapping[str, Any], facts: Mapping[str, str]) -> Document:
    """Return what would be sent, and as whom."""
    lines = Lines(tuple(f"{name}: {value}" for name, value in facts.items()))
    return Document(Paragraph("nothing was sent"), lines, Pre(json.dumps(request, indent=2, ensure_ascii=False)))
