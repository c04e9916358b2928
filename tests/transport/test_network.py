"""The keeper's own sockets: what httpcore expects of a connection, in all its ways to go well and wrong."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpcore
import httpx
import pytest

from fairq_ipy.session import Session
from fairq_ipy.testing import ScriptedEndpoint, chat, raw
from fairq_ipy.transport import network
from fairq_ipy.transport.network import Backend, Stream, settle_in

from .conftest import chat_body, run, settled

Queue = Callable[..., Session]
Client = Callable[..., Any]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

CERTIFICATE = Path(__file__).with_name("localhost.pem")


@contextlib.asynccontextmanager
async def connected(serve: Serve, **options: Any) -> AsyncIterator[Stream]:
    """A connection to a server that does `serve`."""
    done = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
            await done.wait()
        finally:
            writer.transport.abort()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        stream = await Backend(httpcore).connect_tcp("127.0.0.1", server.sockets[0].getsockname()[1], **options)
        try:
            yield stream
        finally:
            done.set()
            await stream.aclose()
            await asyncio.sleep(0)


async def everything(stream: Stream, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := await stream.read(65_536, 5.0)):
        data += part
    return data


def test_what_is_written_bit_by_bit_arrives_in_order():
    async def main() -> bytes:
        got = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            got.set_result(await reader.readexactly(7))

        async with connected(serve) as stream:
            for part in (b"one", b"", b"two", b"!"):
                await stream.write(part, 5.0)
            return bytes(await got)

    assert run(main()) == b"onetwo!"


def test_a_read_gives_no_more_than_it_is_asked_for_and_nothing_at_the_end():
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"0123456789")
        writer.write_eof()

    async def main() -> list[bytes]:
        async with connected(serve) as stream:
            return [await stream.read(4, 5.0) for _ in range(5)]

    parts = run(main())
    assert b"".join(parts) == b"0123456789"
    assert max(len(part) for part in parts) == 4
    assert parts[-1] == b""


def held_up(stream: Stream) -> None:
    while stream._transport is None or stream._transport.is_reading():
        time.sleep(0.001)


def test_a_reader_who_is_slow_holds_the_sender_up_and_loses_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(network, "HIGH_WATER", 10_000)
    size = 5_000_000

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * size)
        await writer.drain()

    async def main() -> int:
        async with connected(serve) as stream:
            await asyncio.to_thread(held_up, stream)
            assert stream._size < 1_000_000
            return len(await everything(stream, size))

    assert run(main()) == size


def test_a_large_request_is_sent_as_fast_as_it_is_taken():
    size = 5_000_000

    async def main() -> int:
        got = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            got.set_result(len(await reader.readexactly(size)))

        async with connected(serve) as stream:
            for _ in range(50):
                await stream.write(b"x" * (size // 50), 5.0)
            return int(await got)

    assert run(main()) == size


@pytest.mark.parametrize("act", ["read", "write"])
def test_each_wait_has_its_own_limit(act: str):
    async def serve(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        """Neither read nor write."""

    async def main() -> None:
        async with connected(serve) as stream:
            if act == "read":
                with pytest.raises(httpcore.ReadTimeout):
                    await stream.read(10, 0.02)
            else:
                with pytest.raises(httpcore.WriteTimeout):
                    await stream.write(b"x" * 100_000_000, 0.02)

    run(main())


def test_a_connection_that_is_reset_is_an_error_for_both_sides_of_it():
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.get_extra_info("socket").setsockopt(1, 13, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # SO_LINGER 0
        writer.transport.abort()

    async def main() -> None:
        async with connected(serve) as stream:
            with pytest.raises(httpcore.ReadError):
                await stream.read(10, 5.0)
            with pytest.raises(httpcore.WriteError):
                await stream.write(b"x", 5.0)
            assert stream.get_extra_info("is_readable")

    run(main())


def test_a_cancelled_read_leaves_the_connection_as_it_was():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2)
        writer.write(b"late")

    async def main() -> bytes:
        async with connected(serve) as stream:
            reading = asyncio.create_task(stream.read(10, 5.0))
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await stream.write(b"go", 5.0)
            return await stream.read(10, 5.0)

    assert run(main()) == b"late"


def test_a_connection_says_where_it_goes():
    async def serve(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        """Be there."""

    async def main() -> None:
        options = {"local_address": "127.0.0.1", "socket_options": [(1, 9, 1)], "timeout": 5.0}
        async with connected(serve, **options) as stream:
            assert stream.get_extra_info("server_addr")[0] == "127.0.0.1"
            assert stream.get_extra_info("client_addr")[0] == "127.0.0.1"
            assert stream.get_extra_info("socket").getsockopt(1, 9) == 1
            assert stream.get_extra_info("ssl_object") is None
            assert not stream.get_extra_info("is_readable")
        assert Stream(httpcore).get_extra_info("socket") is None

    run(main())


def test_who_cannot_be_reached_is_a_connect_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def never(*_args: Any, **_options: Any) -> Any:
        await asyncio.Event().wait()

    async def main() -> None:
        backend = Backend(httpcore)
        with pytest.raises(httpcore.ConnectError):
            await backend.connect_tcp("127.0.0.1", 9)
        with pytest.raises(httpcore.ConnectError):
            await backend.connect_unix_socket(str(tmp_path / "none"))
        monkeypatch.setattr(network, "connected_socket", never)
        with pytest.raises(httpcore.ConnectTimeout):
            await backend.connect_tcp("127.0.0.1", 9, timeout=0.01)
        await backend.sleep(0)

    run(main())


def test_a_unix_socket_is_a_connection_too(tmp_path: Path):
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hi")
        writer.close()

    async def main() -> bytes:
        path = str(tmp_path / "s")
        async with await asyncio.start_unix_server(serve, path):
            stream = await Backend(httpcore).connect_unix_socket(path, timeout=5.0)
            data = await stream.read(10, 5.0)
            await stream.aclose()
            await asyncio.sleep(0)
            return data

    assert run(main()) == b"hi"


# ---------------------------------------------------------------------------------------------------------------- TLS


@pytest.fixture
def secure() -> Iterator[str]:
    """The URL of a TLS endpoint with a certificate that nobody trusts by itself; answers every request the same."""
    ready: list[Any] = []
    started = threading.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-l")
                )
                await reader.readexactly(length)
                body = b'{"choices": [{"message": {"content": "secret"}, "finish_reason": "stop"}]}'
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
                    + body
                )
                await writer.drain()

    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        stop = asyncio.Event()
        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
            ready.extend([asyncio.get_running_loop(), stop, server.sockets[0].getsockname()[1]])
            started.set()
            await stop.wait()
            server.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    started.wait()
    loop, stop, port = ready
    yield f"https://127.0.0.1:{port}/v1"
    loop.call_soon_threadsafe(stop.set)
    thread.join()


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(CERTIFICATE))


def test_a_governed_call_goes_over_tls_to_whom_the_client_trusts(
    secure: str, queue: Queue, client: Client, library: str
):
    session = queue(base_url=secure)
    made = client(session, library=library, verify=trusting())
    for _ in range(2):
        response = made.post(f"{secure}/chat/completions", json=chat_body())
        assert response.json()["choices"][0]["message"]["content"] == "secret"
    pool = made._transport._pool.inner(session.keeper)._pool
    assert len(pool.connections) == 1
    assert settled(session).completed == 2


def test_and_to_nobody_else(secure: str, queue: Queue, client: Client, library: str):
    session = queue(base_url=secure)
    made = client(session, library=library)
    with pytest.raises(Exception, match=r"(?i)certificate") as caught:
        made.post(f"{secure}/chat/completions", json=chat_body())
    assert (type(caught.value).__name__, type(caught.value).__module__) == ("ConnectError", library)
    assert settled(session).tokens == 0


def test_tls_that_does_not_begin_in_time_or_at_all_is_a_connect_error():
    async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        """Say nothing."""

    async def gone(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def main() -> None:
        async with connected(silent) as stream:
            with pytest.raises(httpcore.ConnectTimeout):
                await stream.start_tls(trusting(), "localhost", 0.02)
        async with connected(gone) as stream:
            with pytest.raises(httpcore.ConnectError):
                await stream.start_tls(trusting(), "localhost", 5.0)
            with pytest.raises(httpcore.ConnectError):
                await stream.start_tls(trusting(), "localhost", 5.0)
        async with connected(silent) as stream:
            starting = asyncio.create_task(stream.start_tls(trusting(), "localhost", 5.0))
            await asyncio.sleep(0.01)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting

    run(main())


# ------------------------------------------------------------------------------------------------------------ in place


def test_a_connection_that_the_server_closed_is_not_used_again(
    mock: ScriptedEndpoint, queue: Queue, client: Client, library: str
):
    session = queue()
    made = client(session, library=library)
    mock.reply(raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"), chat("next"))
    url = f"{mock.base_url}/chat/completions"
    assert made.post(url, json=chat_body()).json() == {}
    pool = made._transport._pool.inner(session.keeper)._pool
    while any(not connection.has_expired() for connection in pool.connections):
        time.sleep(0.001)
    assert made.post(url, json=chat_body()).json()["choices"][0]["message"]["content"] == "next"


def test_a_transport_that_keeps_its_sockets_elsewhere_keeps_them():
    class Other:
        async def handle_async_request(self, request: Any) -> Any:
            """Do nothing."""

        async def aclose(self) -> None:
            """Do nothing."""

    other = Other()
    assert settle_in(other, "httpx") is other
    custom = httpx.AsyncHTTPTransport()
    custom._pool._network_backend = mine = object()  # type: ignore[assignment]
    assert settle_in(custom, "httpx") is custom
    assert custom._pool._network_backend is mine
