"""The clients: of the right class, with every setting of theirs in force, and longer-lived than a session."""

from __future__ import annotations

import gc
import ssl
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import httpx2
import openai
import pytest

from fairq_ipy.errors import ConfigurationError
from fairq_ipy.session import Session
from fairq_ipy.testing import Gate, ScriptedEndpoint, stream
from fairq_ipy.transport import clients
from fairq_ipy.transport import library as libraries

from .conftest import CONTEXT, async_client, chat_body, run, settled

Queue = Callable[..., Session]
Client = Callable[..., Any]

MODULES: dict[str, Any] = {"httpx": httpx, "httpx2": httpx2}


@pytest.fixture
def fresh() -> Iterator[None]:
    """Look for libraries anew, before and after."""
    libraries.load.cache_clear()
    yield
    libraries.load.cache_clear()


def post(client: Any, mock: ScriptedEndpoint) -> int:
    return int(client.post(f"{mock.base_url}/chat/completions", json=chat_body()).status_code)


# ------------------------------------------------------------------------------------------------------ which library


def test_the_clients_are_the_librarys_own(queue: Queue, library: str):
    session, module = queue(), MODULES[library]
    with clients.http_client(session, library=library, verify=CONTEXT) as made:
        assert isinstance(made, module.Client)
    asynchronous = clients.async_http_client(session, library=library, verify=CONTEXT)
    assert isinstance(asynchronous, module.AsyncClient)
    run(asynchronous.aclose())
    with clients.http_client(session, library=library, verify=CONTEXT) as other:
        assert type(other) is type(made)


@pytest.mark.parametrize(
    ("versions", "name"),
    [
        ({"openai": "3.57.0"}, "httpx2"),
        ({"openai": "2.9.1"}, "httpx"),
        ({"anthropic": "1.0"}, "httpx2"),
        ({"anthropic": "0.80.0", "openai": "2.0"}, "httpx"),
        ({"openai": "dev"}, "httpx"),
        ({}, "httpx"),
    ],
)
def test_the_installed_sdk_decides(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], name: str):
    def version(distribution: str) -> str:
        if distribution in versions:
            return versions[distribution]
        raise libraries.importlib.metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(libraries.importlib.metadata, "version", version)
    assert libraries.choose("auto").name == name


@pytest.mark.usefixtures("fresh")
def test_a_library_that_is_missing_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch, queue: Queue):
    session = queue()
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(ConfigurationError, match="pip install httpx2"):
        clients.http_client(session, library="httpx2")
    assert libraries.choose("auto").name == "httpx"


def test_a_library_of_another_name_is_said(queue: Queue):
    with pytest.raises(ConfigurationError, match="requests"):
        clients.http_client(queue(), library="requests")


@pytest.mark.parametrize("sdk", ["httpx", "httpx2"])
def test_openais_clients_take_either(mock: ScriptedEndpoint, queue: Queue, client: Client, sdk: str):
    session = queue(concurrency=1)
    made = openai.OpenAI(base_url=mock.base_url, api_key="k", http_client=client(session, library=sdk))
    assert made.timeout == httpx2.Timeout(600, connect=5.0)
    assert made.chat.completions.create(model="m", messages=[]).choices
    assert made.embeddings.create(model="m", input="x", encoding_format="float")
    assert made.models.list() is not None
    assert session.snapshot().submitted == 2


# ------------------------------------------------------------------------------------------------------------ settings


def test_an_answer_has_ten_minutes_and_redirects_are_followed_unless_told_otherwise(client: Client, library: str):
    made = client(library=library)
    assert made.timeout == MODULES[library].Timeout(600, connect=5.0)
    assert made.follow_redirects
    told = client(library=library, timeout=3.0, follow_redirects=False)
    assert told.timeout == MODULES[library].Timeout(3.0)
    assert not told.follow_redirects


def test_headers_auth_hooks_and_base_url_of_the_user_stay_in_force(
    mock: ScriptedEndpoint, client: Client, library: str
):
    seen: list[str] = []
    made = client(
        library=library,
        base_url=mock.base_url,
        auth=("u", "p"),
        headers={"x-mine": "1"},
        params={"v": "2"},
        event_hooks={"request": [lambda _: seen.append("request")], "response": [lambda _: seen.append("response")]},
    )
    assert made.post("chat/completions", json=chat_body()).status_code == 200
    request = mock.requests[0]
    assert request.path == "/v1/chat/completions?v=2"
    assert request.headers["x-mine"] == "1"
    assert request.headers["authorization"].startswith("Basic ")
    assert seen == ["request", "response"]


def test_a_proxy_is_used_and_the_call_is_governed(mock: ScriptedEndpoint, queue: Queue, client: Client, library: str):
    session = queue(base_url="http://model.invalid/v1")
    made = client(session, library=library, proxy=mock.base_url.removesuffix("/v1"))
    assert made.post("http://model.invalid/v1/chat/completions", json=chat_body()).status_code == 200
    assert mock.requests[0].path == "http://model.invalid/v1/chat/completions"
    assert session.snapshot().completed == 1


def test_so_is_a_proxy_of_the_environment(
    mock: ScriptedEndpoint, queue: Queue, client: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HTTP_PROXY", mock.base_url.removesuffix("/v1"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    session = queue(base_url="http://model.invalid/v1")
    url = "http://model.invalid/v1/chat/completions"

    async def main() -> int:
        async with async_client(session) as made:
            return int((await made.post(url, json=chat_body())).status_code)

    assert client(session).post(url, json=chat_body()).status_code == run(main()) == 200
    assert session.snapshot().completed == 2
    assert [request.path for request in mock.requests] == [url, url]
    with pytest.raises(Exception, match=r"invalid|known|resolve"):
        client(session, trust_env=False).post(url, json=chat_body())


def test_mounts_of_the_user_are_used_and_governed(mock: ScriptedEndpoint, queue: Queue, client: Client, library: str):
    module = MODULES[library]
    session = queue(base_url="http://mounted.invalid/v1")

    def answer(request: Any) -> Any:
        return module.Response(200, json={"choices": [], "to": str(request.url)})

    made = client(
        session, library=library, mounts={"http://mounted.invalid": module.MockTransport(answer), "all://x": None}
    )
    response = made.post("http://mounted.invalid/v1/chat/completions", json=chat_body())
    assert response.json()["to"] == "http://mounted.invalid/v1/chat/completions"
    assert settled(session).completed == 1
    assert mock.arrivals == 0


def test_certificates_are_checked_as_the_user_says(queue: Queue, library: str):
    session = queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # httpx from 0.28 on would rather have a context
        with pytest.raises(OSError, match=r"No such file|invalid path"):
            clients.http_client(session, library=library, verify=str(__file__) + ".missing")
    with clients.http_client(session, library=library, verify=False) as made:
        context = made._transport._pool.inner(session.keeper)._pool._ssl_context
        assert context.verify_mode is ssl.CERT_NONE


def test_each_client_has_its_own_connections_and_keeps_them(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue()
    one, two = client(session), client(session)
    for made in (one, one, one, two):
        post(made, mock)
    pools = [made._transport._pool.inner(session.keeper)._pool for made in (one, two)]
    assert [len(pool.connections) for pool in pools] == [1, 1]


# -------------------------------------------------------------------------------------------------------- life and end


def test_a_closed_client_leaves_no_connection(mock: ScriptedEndpoint, queue: Queue, library: str):
    session = queue()
    with clients.http_client(session, library=library, verify=CONTEXT) as made:
        post(made, mock)
        inner = made._transport._pool.inner(session.keeper)
    session.keeper.call(lambda *_: None)
    session.keeper.call(lambda *_: None)
    with pytest.raises(RuntimeError, match="closed"):
        post(made, mock)
    while inner._pool.connections:
        session.keeper.call(lambda *_: None)


def test_a_forgotten_client_leaves_no_connection_and_no_warning(mock: ScriptedEndpoint, queue: Queue, library: str):
    session = queue()
    made = clients.http_client(session, library=library, verify=CONTEXT)
    post(made, mock)
    inner = made._transport._pool.inner(session.keeper)
    del made
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
        while inner._pool.connections:
            session.keeper.call(lambda *_: None)


def test_a_client_goes_on_with_the_session_that_holds_now(mock: ScriptedEndpoint, queue: Queue, library: str):
    present = queue()
    with clients.http_client(lambda: present, library=library, verify=CONTEXT) as made:
        assert post(made, mock) == 200
        first, present = present, queue()
        first.close()
        assert post(made, mock) == 200
        assert present.snapshot().completed == 1


def test_a_closed_session_refuses_and_ends_what_runs(mock: ScriptedEndpoint, queue: Queue, library: str):
    session = queue(concurrency=1)
    gate = Gate()
    mock.reply(stream("a ", gate, "b"))
    url = f"{mock.base_url}/chat/completions"
    with clients.http_client(session, library=library, verify=CONTEXT) as made:
        refused: list[Any] = []
        with made.stream("POST", url, json=chat_body(stream=True)) as response:
            waiting = threading.Thread(target=lambda: refused.append(made.post(url, json=chat_body())))
            waiting.start()
            while session.snapshot().queued < 1:
                pass
            closing = threading.Thread(target=session.close)
            closing.start()
            with pytest.raises(Exception, match="closed"):
                response.read()
            closing.join()
            waiting.join()
        assert refused[0].headers["x-fairq-reason"] == "shut_down"
        assert made.post(url, json=chat_body()).headers["x-fairq-reason"] == "shut_down"
    mock.wait_for(disconnects=1)
    gate.open()
