"""What each word of ``%fairq`` does: ask the session, hand the facts to a view."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from IPython.core.error import UsageError

from fairq_ipy import policy as policies
from fairq_ipy.errors import PolicyError
from fairq_ipy.notebook import bypasses, views
from fairq_ipy.notebook.arguments import unknown
from fairq_ipy.notebook.calls import latest
from fairq_ipy.notebook.document import Document, shorten
from fairq_ipy.notebook.hub import Hub
from fairq_ipy.notebook.wording import plural, seconds

if TYPE_CHECKING:
    from fairq_ipy.demo.experiment import Progress

__all__ = ["ACTIONS"]

# an action returns what the cell shows: a document, or the demo's report, which shows itself
Action: TypeAlias = Callable[[Hub, Mapping[str, Any]], object]


def _status(hub: Hub, _values: Mapping[str, Any]) -> Document:
    session = hub.session()
    remarks = [] if session.broken is None else [f"{views.broken_line(session.broken)}; the rules before it hold on"]
    gone_by = session.guard.bypasses()
    if gone_by:
        remarks.append(f"not governed: {plural(gone_by, 'call')}; %fairq guard says whose")
    return views.status(session.snapshot(), session.settings, time.time(), remarks)


def _tenants(hub: Hub, _values: Mapping[str, Any]) -> Document:
    session = hub.session()
    return views.tenants(session.snapshot(), session.settings.rules, time.time())


def _policy(hub: Hub, _values: Mapping[str, Any]) -> Document:
    return views.policy(hub.session().settings)


def _load(hub: Hub, values: Mapping[str, Any]) -> Document:
    return views.note(views.loaded_line(hub.load(values["path"]).settings))


def _reload(hub: Hub, _values: Mapping[str, Any]) -> Document:
    return views.note(views.loaded_line(hub.reload().settings))


def _validate(hub: Hub, values: Mapping[str, Any]) -> Document:
    path = values["path"] or hub.policy_path()
    if path is None:
        return views.note("there is no policy file in use; %fairq validate PATH checks one")
    try:
        policies.load(path)
    except PolicyError as error:
        return views.findings(path, error.findings)
    return views.findings(path, ())


def _pause(hub: Hub, values: Mapping[str, Any]) -> Document:
    tenant = values["tenant"]
    if tenant is not None:
        _check_known(hub, "%fairq pause", tenant)
    hub.session().pause(tenant)
    running = "what runs goes on"
    if tenant is None:
        return views.note(f"everything is paused; {running}, and %fairq resume admits again")
    return views.note(f"{shorten(tenant)} is paused; {running}, and %fairq resume admits it again")


def _resume(hub: Hub, values: Mapping[str, Any]) -> Document:
    tenant = values["tenant"]
    if tenant is not None:
        _check_known(hub, "%fairq resume", tenant)
    session = hub.session()
    session.resume(tenant)
    if tenant is not None:
        return views.note(f"{shorten(tenant)} runs again")
    still = [name for name, row in session.snapshot().tenants.items() if row.state in {"paused", "stalled"}]
    if not still:
        return views.note("everything runs again")
    return views.note(f"the pause of all is over; still paused by name: {', '.join(map(shorten, still))}")


def _check_known(hub: Hub, who: str, tenant: str) -> None:
    """Refuse a tenant that nobody has heard of: a typo would pause nobody, silently."""
    known = hub.tenants()
    if tenant not in known:
        raise UsageError(unknown(who, "tenant", tenant, known))


def _guard(hub: Hub, values: Mapping[str, Any]) -> Document:
    guard, word = hub.session().guard, values["mode"]
    if word is not None:
        if word not in bypasses.MODES:
            raise UsageError(unknown("%fairq guard", "mode", word, list(bypasses.MODES)))
        guard.switch(bypasses.MODES[word])
    return bypasses.table(guard.mode, guard.seen())


def _log(hub: Hub, values: Mapping[str, Any]) -> Document:
    session = hub.session()
    if values["tenant"] is not None:
        _check_known(hub, "%fairq log", values["tenant"])
    keeper = session.keeper
    lines = keeper.call(lambda _core, _now: list(keeper.journal))  # copied there, read here: the queue goes on
    calls = latest(lines, values["number"], values["tenant"])
    return views.log(calls, session.settings.rules, keeper.wall.shift())


def _story(hub: Hub, values: Mapping[str, Any]) -> Document:
    text = values["ticket"].lstrip("#")
    if not text.isdecimal():
        raise UsageError(f"%fairq story: {values['ticket']!r} is no number of a call; %fairq log shows them")
    ticket = int(text)
    return views.story(ticket, hub.session().keeper.story(ticket))


def _demo(hub: Hub, values: Mapping[str, Any]) -> object:
    from fairq_ipy.demo import command

    surface = hub.surface()

    def progress(now: Progress) -> None:
        how = "each for itself" if now.mode == "uncoordinated" else "through one queue"
        surface.waiting(f"{how}: {now.done} of {now.total} done, {now.refused} refused, {seconds(now.seconds)}")

    try:
        report = command.run(fast=values["fast"], seed=values["seed"], progress=progress)
    except BaseException:
        surface.ended("stopped")
        raise
    surface.ended("100 requests, twice: each for itself, and through one queue")
    return report


ACTIONS: Mapping[str, Action] = {
    "status": _status,
    "tenants": _tenants,
    "policy": _policy,
    "load": _load,
    "reload": _reload,
    "validate": _validate,
    "pause": _pause,
    "resume": _resume,
    "guard": _guard,
    "log": _log,
    "story": _story,
    "demo": _demo,
}
