"""What the guard does when it does not route: it counts and names, or it refuses; and what it does when it is off."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace

import httpx
import openai
import pytest
import requests

from fairq_ipy import policy
from fairq_ipy.errors import BypassBlockedError, ConfigurationError
from fairq_ipy.session import Bypassed, Session
from fairq_ipy.testing import ScriptedEndpoint, error
from fairq_ipy.transport import clients
from fairq_ipy.transport.guard import Seen

from ..conftest import chat_body, settled  # noqa: TID252 - the tests of a room are no installed package
from .conftest import Guarded, OnLoop, Sender


def told(session: Session) -> list[Bypassed]:
    """Return a list that fills with what listeners are told of bypasses."""
    heard: list[Bypassed] = []
    session.listeners.append(lambda notice: heard.append(notice) if isinstance(notice, Bypassed) else None)
    return heard


def rows(session: Session) -> list[tuple[str, str, str, int]]:
    return [(at.library, at.module.rpartition(".")[2], at.fate, calls) for at, calls in session.guard.seen()]


# --------------------------------------------------------------------------------------------------------------- warn


def test_a_call_that_goes_by_is_counted_and_named_once(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(guard="warn")
    heard = told(session)
    for _ in range(3):
        assert sender.post(url, chat_body()).status == 200
    assert rows(session) == [(sender.library, "conftest", "let go", 3)]
    assert session.guard.bypasses() == 3
    assert [notice.sighting for notice in heard] == [session.guard.seen()[0].sighting]
    assert heard[0].sighting.host == "127.0.0.1"
    assert (session.snapshot().submitted, mock.arrivals) == (0, 3)


def test_what_goes_by_is_not_touched(sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str):
    guarded(guard="warn")
    mock.reply(error(429, "busy"))
    got = sender.post(url, chat_body(), **{"x-fairq-tenant": "logs"})
    assert (got.status, "x-should-retry" in got.headers, mock.arrivals) == (429, False, 1)
    assert mock.requests[0].headers["x-fairq-tenant"] == "logs"


def test_the_io_of_a_permit_is_no_bypass(sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str):
    session = guarded(guard="block")
    if isinstance(sender, OnLoop):

        async def ask() -> int:
            async with session.permit():
                return (await sender.apost(url, chat_body())).status

        assert sender.do(ask()) == 200
    else:
        with session.permit():
            assert sender.post(url, chat_body()).status == 200
    assert session.guard.seen() == ()


@pytest.mark.parametrize("mode", ["warn", "route", "block"])
def test_our_own_clients_are_none_of_the_guards_business(
    queue: Callable[..., Session], library: str, mock: ScriptedEndpoint, url: str, mode: str
):
    session = queue(1)
    session.guard.switch(mode)
    with clients.http_client(session, library=library) as client:
        assert client.post(url, json=chat_body()).status_code == 200
        assert client.get(f"{mock.base_url}/models").status_code == 200
    assert (session.guard.seen(), settled(session).submitted) == ((), 1)


@pytest.mark.parametrize("mode", ["warn", "route", "block"])
def test_nor_is_a_transport_that_one_of_them_was_given(
    queue: Callable[..., Session], library: str, url: str, mode: str
):
    session = queue(1)
    session.guard.switch(mode)
    transport = __import__(library).HTTPTransport()
    with clients.http_client(session, library=library, transport=transport) as client:
        assert client.post(url, json=chat_body()).status_code == 200
    assert (session.guard.seen(), settled(session).submitted) == ((), 1)


def test_calls_from_two_places_are_told_apart(queue: Callable[..., Session], url: str):
    session = queue(1)
    session.guard.switch("warn")
    heard = told(session)
    for name in ("agent_one", "agent_two"):
        module: dict[str, object] = {"__name__": name, "requests": requests, "url": url}
        exec("def ask():\n    requests.post(url, json={}, timeout=30)\nask()\nask()", module)  # noqa: S102 - a module of its own
    assert [(at.module, calls) for at, calls in session.guard.seen()] == [("agent_one", 2), ("agent_two", 2)]
    assert len(heard) == 2


def test_an_sdk_is_named_together_with_the_code_that_uses_it(queue: Callable[..., Session], mock: ScriptedEndpoint):
    session = queue(1)
    session.guard.switch("warn")
    with openai.OpenAI(base_url=mock.base_url, api_key="key") as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
    (seen,) = session.guard.seen()
    assert (seen.sighting.library, seen.sighting.module) == ("httpx2", "openai._base_client")
    assert seen.sighting.user == __name__
    assert seen.sighting.place == f"httpx2 in openai._base_client, called from {__name__}"


def test_a_place_is_counted_once_however_many_libraries_a_call_passes(queue: Callable[..., Session], url: str):
    session = queue(1)
    session.guard.switch("warn")
    requests.post(url, json=chat_body(), timeout=30)
    assert rows(session) == [("requests", "test_modes", "let go", 1)]


def test_kinds_of_calls_are_counted_up_to_a_bound(queue: Callable[..., Session], url: str):
    session = queue(1)
    session.guard.switch("warn")
    watch = session.guard._watch
    for number in range(600):
        module = {"__name__": f"module_{number}", "watch": watch}
        exec("watch.book('requests', 'host', frozenset(), 'let go')", module)  # noqa: S102 - a module of its own
    seen = session.guard.seen()
    assert len(seen) == 501
    assert (seen[-1].sighting.module, seen[-1].calls) == ("(others)", 100)


# -------------------------------------------------------------------------------------------------------------- block


def test_a_blocked_call_raises_and_says_how_to_attach(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(guard="block")
    with pytest.raises(BypassBlockedError, match=r"http_client=fairq.http_client\(\)") as caught:
        sender.post(url, chat_body())
    refused = caught.value
    assert (refused.reason, refused.library, refused.host) == ("bypass", sender.library, "127.0.0.1")
    assert refused.module.endswith("conftest")
    assert mock.arrivals == 0
    assert rows(session) == [(sender.library, "conftest", "blocked", 1)]
    assert session.guard.bypasses() == 0


def test_an_sdk_gets_an_answer_that_it_does_not_repeat(queue: Callable[..., Session], mock: ScriptedEndpoint):
    session = queue(1)
    session.guard.switch("block")
    with (
        openai.OpenAI(base_url=mock.base_url, api_key="key") as client,
        pytest.raises(openai.PermissionDeniedError, match="guard blocks that") as caught,
    ):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
    assert caught.value.response.headers["x-fairq-reason"] == "bypass"
    assert [seen.calls for seen in session.guard.seen()] == [1]
    assert mock.arrivals == 0


def test_what_is_no_model_call_is_not_blocked(sender: Sender, guarded: Guarded, mock: ScriptedEndpoint):
    guarded(guard="block")
    assert sender.get(f"{mock.base_url}/models") == 200


# ----------------------------------------------------------------------------------------------------- who asks (route)


def test_a_call_that_names_no_tenant_is_refused_where_the_policy_says_so(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(guard="route", default_tenant=None)
    got = sender.post(url, chat_body())
    assert (got.status, got.headers["x-fairq-reason"]) == (429, "unknown_tenant")
    assert json.loads(got.body)["error"]["code"] == "unknown_tenant"
    assert (mock.arrivals, session.snapshot().submitted) == (0, 0)


def test_a_level_that_is_not_there_is_an_error_of_the_set_up(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(guard="route")
    with pytest.raises(ConfigurationError, match="priority"):
        sender.post(url, chat_body(), **{"x-fairq-priority": "highest"})
    assert (mock.arrivals, session.snapshot().submitted) == (0, 0)


# -------------------------------------------------------------------------------------------------- policy and by hand


def test_the_policy_switches_and_what_a_person_switched_holds_until_it_says_something_else(
    queue: Callable[..., Session],
):
    session = queue(1)
    session.guard.switch("block")
    session._adopt(replace(session.settings, digest="new"), by_hand=True)
    assert session.guard.mode == "block"
    session._adopt(replace(session.settings, guard="route"), by_hand=True)
    assert session.guard.mode == "route"


def test_warn_is_what_holds_without_a_policy():
    session = Session(policy.builtin(environ={}), watch=None)
    assert session.guard.mode == "warn"
    session.close()
    assert session.guard.mode == "off"
    session.guard.switch("route")
    assert session.guard.mode == "off", "a closed session guards nothing"


def test_a_guard_that_is_off_sees_nothing(sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str):
    session = guarded(guard="off")
    assert sender.post(url, chat_body()).status == 200
    assert session.guard.seen() == ()


def test_a_call_under_way_ends_as_it_began_when_the_guard_is_switched(
    queue: Callable[..., Session], mock: ScriptedEndpoint, url: str
):
    session = queue(1)
    session.guard.switch("route")
    mock.hold()
    done = threading.Event()

    def ask() -> None:
        assert httpx.post(url, json=chat_body(), timeout=30).status_code == 200
        done.set()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    mock.wait_for(held=1)
    session.guard.switch("off")
    mock.release()
    assert done.wait(10)
    thread.join()
    assert settled(session).completed == 1
    assert isinstance(session.guard.seen()[0], Seen)
