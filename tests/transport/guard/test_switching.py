"""Getting at the libraries and letting go of them: once, without a trace, beside others who do the same."""

from __future__ import annotations

import functools
import http.client
import importlib
import importlib.machinery
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3

from fairq_ipy.session import Session
from fairq_ipy.testing import ScriptedEndpoint
from fairq_ipy.transport.guard.imports import LateImports
from fairq_ipy.transport.guard.patches import Patch

from ..conftest import chat_body, settled  # noqa: TID252 - the tests of a room are no installed package
from .conftest import Guarded, Sender

SEAMS: list[tuple[type, str]] = [
    (httpx.HTTPTransport, "handle_request"),
    (httpx.AsyncHTTPTransport, "handle_async_request"),
    (httpx.Client, "send"),
    (httpx.AsyncClient, "send"),
    (httpx2.HTTPTransport, "handle_request"),
    (httpx2.AsyncHTTPTransport, "handle_async_request"),
    (httpx2.Client, "send"),
    (httpx2.AsyncClient, "send"),
    (requests.adapters.HTTPAdapter, "send"),
    (requests.Session, "send"),
    (urllib3.PoolManager, "urlopen"),
    (urllib3.HTTPConnectionPool, "urlopen"),
    (aiohttp.ClientSession, "_request"),
    (aiohttp.ClientSession, "_ws_connect"),
    (http.client.HTTPConnection, "putrequest"),
    (socket.socket, "connect"),
    (socket.socket, "connect_ex"),
]


def attributes() -> list[object]:
    """What stands at each place that the guard replaces, `None` where the class has nothing of its own."""
    return [vars(owner).get(name) for owner, name in SEAMS]


def test_what_stood_there_is_back_when_the_guard_is_off(queue: Callable[..., Session]):
    before = attributes()
    session = queue(1)
    for mode in ("warn", "route", "block"):
        session.guard.switch(mode)
        assert all(now is not then for now, then in zip(attributes(), before, strict=True))
        session.guard.switch("off")
        assert attributes() == before
    assert not [finder for finder in sys.meta_path if isinstance(finder, LateImports)]


def test_closing_the_session_takes_it_off(queue: Callable[..., Session]):
    before = attributes()
    session = queue(1)
    session.guard.switch("route")
    session.close()
    assert attributes() == before


def test_switching_again_replaces_nothing_a_second_time(queue: Callable[..., Session]):
    session = queue(1)
    session.guard.switch("warn")
    once = attributes()
    session.guard.switch("route")
    session.guard.switch("route")
    assert attributes() == once


def test_what_is_replaced_keeps_its_name_and_its_text(queue: Callable[..., Session]):
    texts = [(getattr(owner, name).__name__, getattr(owner, name).__doc__) for owner, name in SEAMS]
    queue(1).guard.switch("route")
    assert [(getattr(owner, name).__name__, getattr(owner, name).__doc__) for owner, name in SEAMS] == texts


def test_three_sessions_in_a_row_make_one_entry_per_call(
    sender: Sender, queue: Callable[..., Session], mock: ScriptedEndpoint, url: str
):
    for number in range(3):
        session = queue(1)
        session.guard.switch("route")
        assert sender.post(url, chat_body()).status == 200
        assert settled(session).submitted == 1
        assert [seen.calls for seen in session.guard.seen()] == [1]
        session.close()
        assert mock.arrivals == number + 1


def test_two_sessions_side_by_side_queue_a_call_once(
    sender: Sender, queue: Callable[..., Session], mock: ScriptedEndpoint, url: str
):
    sessions = [queue(1), queue(1)]
    for session in sessions:
        session.guard.switch("route")
    assert sender.post(url, chat_body()).status == 200
    assert [settled(session).submitted for session in sessions] == [0, 1]
    assert mock.arrivals == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_sessions_leave_no_trace_in_whatever_order_they_are_closed(queue: Callable[..., Session], order):
    before = attributes()
    sessions = [queue(1), queue(1)]
    for session in sessions:
        session.guard.switch("route")
    for number in order:
        sessions[number].close()
    assert attributes() == before


def test_a_guard_that_another_one_took_off_with_it_goes_on_again(
    sender: Sender, queue: Callable[..., Session], url: str
):
    before = attributes()
    first, second = queue(1), queue(1)
    first.guard.switch("route")
    second.guard.switch("route")
    first.guard.switch("off")
    second.close()
    assert attributes() == before
    first.guard.switch("route")
    assert sender.post(url, chat_body()).status == 200
    assert settled(first).submitted == 1
    first.close()
    assert attributes() == before


# ------------------------------------------------------------------------------------------------- others who do this


class Instrumented:
    """What tracing packages do to a method, noting the calls that come by."""

    def __init__(self, owner: type, name: str) -> None:
        self.owner, self.name, self.calls = owner, name, 0
        self.before = vars(owner)[name]
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return original(*args, **kwargs)

        self.wrapper = wrapper
        setattr(owner, name, wrapper)

    def remove(self) -> None:
        setattr(self.owner, self.name, self.before)


def test_an_instrumentation_below_sees_what_is_sent(
    sender: Sender, queue: Callable[..., Session], mock: ScriptedEndpoint, url: str
):
    watched = [Instrumented(owner, name) for owner, name in SEAMS if name in vars(owner)]
    here = attributes()
    try:
        session = queue(1)
        session.guard.switch("route")
        assert sender.post(url, chat_body()).status == 200
        assert settled(session).submitted == 1
        assert sum(each.calls for each in watched if each.owner.__module__.startswith(sender.library)) > 0
        session.close()
        assert attributes() == here
    finally:
        for each in reversed(watched):
            each.remove()


def test_an_instrumentation_above_stays_where_it_is_and_we_let_everything_through(
    sender: Sender, queue: Callable[..., Session], mock: ScriptedEndpoint, url: str
):
    before = attributes()
    session = queue(1)
    session.guard.switch("route")
    watched = [Instrumented(owner, name) for owner, name in SEAMS]
    try:
        assert sender.post(url, chat_body()).status == 200
        assert settled(session).submitted == 1
        session.close()
        assert [vars(owner)[name] for owner, name in SEAMS] == [each.wrapper for each in watched]
        assert sender.post(url, chat_body()).status == 200
        assert mock.arrivals == 2

        another = queue(1)
        another.guard.switch("route")
        assert sender.post(url, chat_body()).status == 200
        assert settled(another).submitted == 1
        another.close()
    finally:
        for each, (owner, name), then in zip(watched, SEAMS, before, strict=True):
            each.remove()
            if then is None:
                delattr(owner, name)
            else:
                setattr(owner, name, then)


def test_what_could_not_be_taken_off_is_live_again_when_the_guard_is_switched_on(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    before = attributes()
    session = guarded()
    watched = [Instrumented(owner, name) for owner, name in SEAMS]
    try:
        session.guard.switch("off")
        assert sender.post(url, chat_body()).status == 200
        session.guard.switch("route")
        assert sender.post(url, chat_body()).status == 200
        assert settled(session).submitted == 1
        assert [vars(owner)[name] for owner, name in SEAMS] == [each.wrapper for each in watched]
    finally:
        for each in watched:
            each.remove()
        session.guard.switch("off")
        assert attributes() == before


def test_a_subclass_that_overrides_the_method_is_seen_when_it_calls_its_base(
    queue: Callable[..., Session], mock: ScriptedEndpoint, url: str
):
    class Custom(requests.adapters.HTTPAdapter):
        def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            request.headers["x-mine"] = "1"
            return super().send(request, *args, **kwargs)

    session = queue(1)
    session.guard.switch("route")
    with requests.Session() as client:
        client.mount("http://", Custom())
        assert client.post(url, json=chat_body(), timeout=30).status_code == 200
    assert mock.requests[0].headers["x-mine"] == "1"
    assert settled(session).submitted == 1


def test_an_inherited_method_is_taken_off_the_class_again():
    class Base:
        def ask(self) -> str:
            return "base"

    class Heir(Base):
        pass

    patch = Patch(Heir, "ask", lambda original: lambda self: f"patched {original(self)}")
    assert (Heir().ask(), Base().ask()) == ("patched base", "base")
    assert patch.take_off()
    assert "ask" not in vars(Heir)


# ------------------------------------------------------------------------------------------------------ late imports


def run(code: str, *args: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *args],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


LATE = """
import importlib, sys
from dataclasses import replace
from fairq_ipy import policy
from fairq_ipy.session import Session

url, name = sys.argv[1:]
settings = policy.builtin(environ={})
endpoint = replace(settings.endpoint, base_url=url, api_key_env=None)
session = Session(replace(settings, endpoint=endpoint, guard="route"), watch=None)
assert name not in sys.modules
module = importlib.import_module(name)
"""


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("httpx", "module.post(url + '/chat/completions', json={})"),
        ("httpx2", "module.post(url + '/chat/completions', json={})"),
        ("requests", "module.post(url + '/chat/completions', json={}, timeout=9)"),
        ("urllib3", "module.PoolManager().request('POST', url + '/chat/completions', body=b'{}')"),
    ],
)
def test_a_library_that_is_imported_later_is_seen(mock: ScriptedEndpoint, name: str, ask: str):
    out = run(
        f"""{LATE}
{ask}
print([seen.sighting.library for seen in session.guard.seen()], session.snapshot().submitted)
print(type(module.__spec__.loader).__name__, type(module.__loader__).__name__)
session.close()
""",
        mock.base_url,
        name,
    )
    assert out.splitlines() == [f"['{name}'] 1", "SourceFileLoader SourceFileLoader"]


def test_so_is_aiohttp(mock: ScriptedEndpoint):
    out = run(
        f"""{LATE}
import asyncio
async def main():
    async with module.ClientSession() as client, client.post(url + '/chat/completions', json={{}}) as response:
        await response.read()
asyncio.run(main())
print([seen.sighting.library for seen in session.guard.seen()], session.snapshot().submitted)
session.close()
""",
        mock.base_url,
        "aiohttp",
    )
    assert out == "['aiohttp'] 1\n"


def test_a_library_that_is_imported_after_the_guard_was_switched_off_is_as_it_is(mock: ScriptedEndpoint):
    out = run(
        f"""{LATE.partition("assert name")[0]}
session.guard.switch("off")
import requests
print(requests.adapters.HTTPAdapter.send.__module__, hasattr(requests.adapters.HTTPAdapter.send, "__wrapped__"))
session.close()
""",
        mock.base_url,
        "requests",
    )
    assert out == "requests.adapters False\n"


def test_the_guard_imports_no_library_by_itself(mock: ScriptedEndpoint):
    out = run(
        f"""{LATE.partition("assert name")[0]}
print([name for name in ("httpx", "httpx2", "requests", "urllib3", "aiohttp", "http.client") if name in sys.modules])
session.close()
""",
        mock.base_url,
        "requests",
    )
    assert out == "[]\n"


def test_a_module_that_fails_to_import_fails_as_it_would(tmp_path, monkeypatch):
    (tmp_path / "broken_late.py").write_text("raise ValueError('as it is')")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[Any] = []
    late = LateImports(["broken_late", "not_there_late"], seen.append)
    late.begin()
    late.begin()
    try:
        assert sys.meta_path.count(late) == 1
        with pytest.raises(ValueError, match="as it is"):
            importlib.import_module("broken_late")
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("not_there_late")
    finally:
        late.end()
        late.end()
    assert (seen, late in sys.meta_path) == ([], False)


def test_an_import_does_not_fail_for_what_is_looked_for_in_it(tmp_path, monkeypatch, caplog):
    (tmp_path / "odd_late.py").write_text("value = 1")
    monkeypatch.syspath_prepend(tmp_path)

    def fail(module: Any) -> None:
        raise LookupError(module.__name__)

    late = LateImports(["odd_late"], fail)
    late.begin()
    try:
        module = importlib.import_module("odd_late")
    finally:
        late.end()
    assert module.value == 1
    assert isinstance(module.__loader__, importlib.machinery.SourceFileLoader)
    assert "odd_late cannot be looked after" in caplog.text


def test_a_version_of_a_library_that_is_not_as_expected_is_left_alone(
    queue: Callable[..., Session], monkeypatch, caplog
):
    monkeypatch.delattr(aiohttp.ClientSession, "_ws_connect")
    before = aiohttp.ClientSession._request
    queue(1).guard.switch("route")
    assert aiohttp.ClientSession._request is before
    assert "calls made with this version of aiohttp cannot be seen" in caplog.text
