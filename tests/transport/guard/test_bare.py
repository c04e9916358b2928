"""What nothing can hold up: it is counted and named, and refused where the policy blocks."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
import websocket

from fairq_ipy.errors import BypassBlockedError
from fairq_ipy.session import Session
from fairq_ipy.testing import ScriptedEndpoint

from ..conftest import run  # noqa: TID252 - the tests of a room are no installed package
from .conftest import Sender


@pytest.fixture
def session(queue: Callable[..., Session]) -> Session:
    made = queue(1)
    made.guard.switch("route")
    return made


def rows(session: Session) -> list[tuple[str, str, int]]:
    return [(at.library, at.fate, calls) for at, calls in session.guard.seen()]


def ask(url: str, method: str = "POST") -> None:
    request = urllib.request.Request(url, data=b"{}" if method == "POST" else None, method=method)  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - loopback
        response.read()


# --------------------------------------------------------------------------------------------------------- http.client


def test_a_call_by_the_standard_library_is_counted_as_out_of_reach(session: Session, mock: ScriptedEndpoint, url: str):
    ask(url)
    ask(url)
    assert rows(session) == [("http.client", "out of reach", 2)]
    assert session.guard.seen()[0].sighting.module == __name__
    assert session.guard.bypasses() == 2
    assert mock.arrivals == 2


def test_what_is_no_model_call_is_not_counted(session: Session, mock: ScriptedEndpoint, url: str):
    ask(url, "GET")
    ask(f"{mock.base_url}/models", "GET")
    ask(f"{mock.base_url}/files")
    assert rows(session) == []


def test_a_blocked_call_is_not_sent(session: Session, mock: ScriptedEndpoint, url: str):
    session.guard.switch("block")
    with pytest.raises(BypassBlockedError, match=r"http\.client in"):
        ask(url)
    assert (mock.arrivals, rows(session)) == (0, [("http.client", "blocked", 1)])


@pytest.mark.parametrize(
    ("base_url", "make", "path"),
    [
        ("https://llm.example/v1", lambda: http.client.HTTPSConnection("llm.example"), "/v1/completions"),
        ("https://llm.example:8443/v1", lambda: http.client.HTTPSConnection("LLM.example", 8443), "/v1/completions"),
        ("http://[::1]:8000/v1", lambda: http.client.HTTPConnection("::1", 8000), "/v1/completions"),
        ("http://llm.example/v1", lambda: http.client.HTTPConnection("proxy", 3128), "http://llm.example/v1/messages"),
        ("https://llm.example/v1", lambda: tunnel("llm.example"), "/v1/messages"),
        ("https://llm.example:8443/v1", lambda: tunnel("llm.example", 8443), "/v1/messages"),
    ],
)
def test_it_is_recognised_by_its_whole_address(
    queue: Callable[..., Session], base_url: str, make: Callable[[], http.client.HTTPConnection], path: str
):
    session = queue(1, base_url=base_url)
    session.guard.switch("warn")
    connection = make()
    connection.putrequest("POST", path)  # what is put is sent later
    connection.close()
    elsewhere = http.client.HTTPConnection("llm.example", 8001)
    elsewhere.putrequest("POST", "/v1/completions")
    assert rows(session) == [("http.client", "out of reach", 1)]


def tunnel(host: str, port: int | None = None) -> http.client.HTTPConnection:
    connection = http.client.HTTPSConnection("proxy", 3128, context=ssl.create_default_context())
    connection.set_tunnel(host, port)
    return connection


# ------------------------------------------------------------------------------------------------------------- sockets


def connect(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
        talk(raw)


def talk(raw: socket.socket) -> None:
    """Have the endpoint take notice of the connection, and end it."""
    raw.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    while raw.recv(4096):
        pass


def test_a_socket_to_the_endpoint_is_counted_as_a_connection(session: Session, mock: ScriptedEndpoint):
    connect(mock.port)
    with socket.socket() as raw:
        assert raw.connect_ex(("127.0.0.1", mock.port)) == 0
        talk(raw)
    assert rows(session) == [("a socket", "out of reach", 2)]
    assert session.guard.seen()[0].sighting.module == __name__


def test_so_is_a_stream_of_asyncio(session: Session, mock: ScriptedEndpoint):
    async def main() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", mock.port)
        writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        await reader.read()
        writer.close()
        await writer.wait_closed()

    run(main())
    assert rows(session) == [("a socket", "out of reach", 1)]


def test_so_is_a_websocket(session: Session, mock: ScriptedEndpoint):
    with pytest.raises(websocket.WebSocketBadStatusException):
        websocket.create_connection(f"ws://127.0.0.1:{mock.port}/v1/realtime", timeout=10)
    assert [(row, at.sighting.module) for row, at in zip(rows(session), session.guard.seen(), strict=True)] == [
        (("a socket", "out of reach", 1), "websocket._http")
    ]
    assert session.guard.seen()[0].sighting.user == __name__


def test_so_is_one_of_aiohttp(session: Session, mock: ScriptedEndpoint):
    async def main() -> None:
        async with aiohttp.ClientSession() as client:
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await client.ws_connect(f"ws://127.0.0.1:{mock.port}/v1/realtime")
            with pytest.raises(aiohttp.InvalidURL):
                await client.ws_connect("ws://:/")

    run(main())
    assert rows(session) == [("aiohttp's websocket", "out of reach", 1)]


def test_other_ports_and_other_kinds_of_sockets_are_not_looked_at(session: Session, tmp_path):
    with ScriptedEndpoint() as other:
        connect(other.port)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(str(tmp_path / "s"))
    assert rows(session) == []


def test_a_blocked_connection_is_not_made(session: Session, mock: ScriptedEndpoint):
    session.guard.switch("block")
    with pytest.raises(BypassBlockedError, match="a socket in"):
        connect(mock.port)


def test_the_io_of_a_permit_is_out_of_nobodys_reach(session: Session, mock: ScriptedEndpoint, url: str):
    session.guard.switch("block")
    with session.permit():
        connect(mock.port)
        ask(url)
    assert rows(session) == []


def test_the_connections_of_the_libraries_are_met_elsewhere(sender: Sender, session: Session, mock: ScriptedEndpoint):
    assert sender.get(f"{mock.base_url}/models") == 200
    assert rows(session) == []


# --------------------------------------------------------------------------------------------------- hosts with a name


def test_a_socket_by_the_name_of_the_endpoint_is_recognised(queue: Callable[..., Session], mock: ScriptedEndpoint):
    session = queue(1, base_url=f"http://localhost:{mock.port}/v1")
    session.guard.switch("block")
    with socket.socket() as raw, pytest.raises(BypassBlockedError):
        raw.connect(("LocalHost", mock.port))


def test_a_socket_by_its_address_is_counted_once_the_addresses_are_known_and_never_blocked(
    queue: Callable[..., Session], mock: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
):
    asked: list[Any] = []
    known, look_up = threading.Event(), socket.getaddrinfo

    def slow(host: Any, *args: Any, **settings: Any) -> Any:
        if host != "llm.example":
            return look_up(host, *args, **settings)
        asked.append(host)
        assert known.wait(10)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    session = queue(1, base_url=f"http://llm.example:{mock.port}/v1")
    session.guard.switch("block")
    connect(mock.port)
    connect(mock.port)
    assert (rows(session), session.guard.mode) == ([], "block")
    (thread,) = [each for each in threading.enumerate() if each.name == "fairq-resolve"]
    known.set()
    thread.join()
    assert rows(session) == [("a socket", "out of reach", 2)]
    connect(mock.port)
    assert (rows(session), asked) == ([("a socket", "out of reach", 3)], ["llm.example"])


def test_a_socket_to_another_address_is_not_the_endpoints(
    queue: Callable[..., Session], mock: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
):
    look_up = socket.getaddrinfo

    def unknown(host: Any, *args: Any, **settings: Any) -> Any:
        if host == "llm.example":
            raise socket.gaierror
        return look_up(host, *args, **settings)

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    session = queue(1, base_url=f"http://llm.example:{mock.port}/v1")
    session.guard.switch("warn")
    connect(mock.port)
    for thread in threading.enumerate():
        if thread.name == "fairq-resolve":
            thread.join()
    connect(mock.port)
    assert rows(session) == []
