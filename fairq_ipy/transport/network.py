"""The sockets of the keeper's loop, as httpcore and httpcore2 use them: plain asyncio, with few turns of the loop.

The libraries' own backend serves every asynchronous framework, and pays for it: a cancel scope around each read and
write, and a turn of the loop after each. On the keeper's loop, which is asyncio's, a read is a future and a timer, and
the head and the body of a request leave in one packet: what is written waits for the next read, or for the end of the
loop's turn, or until there is much of it.

Errors are those of the library whose connection it is, so that nobody above sees a difference.
"""

from __future__ import annotations

import asyncio
import importlib
import select
import socket
import ssl
from collections import deque
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeAlias, cast

from fairq_ipy.transport.host import AsyncInner
from fairq_ipy.transport.sockets import connected_socket

__all__ = ["Backend", "Stream", "settle_in"]

CORES: Final = {"httpx": "httpcore", "httpx2": "httpcore2"}

HIGH_WATER: Final = 2**18
"""Bytes that came and were not read; beyond, the socket is left alone, and its sender waits."""

CORK: Final = 2**16
"""Bytes written that wait for company."""

SocketOption: TypeAlias = tuple[Any, ...]


def settle_in(inner: AsyncInner, library: str) -> AsyncInner:
    """Have the transport `inner` of a library use these sockets, where it keeps its choice where we know it to.

    The choice is an argument of httpcore's pools that the transports do not pass on. A version that keeps it elsewhere
    goes on with its own sockets, which do the same at more cost.
    """
    pool: Any = getattr(inner, "_pool", None)
    if type(getattr(pool, "_network_backend", None)).__name__ == "AutoBackend":
        pool._network_backend = Backend(importlib.import_module(CORES[library]))  # noqa: SLF001 - see above
    return inner


class Backend:
    """Opens connections.

    Args:
        core: ``httpcore`` or ``httpcore2``, whose errors are raised.
    """

    def __init__(self, core: Any) -> None:  # noqa: ANN401 - either module
        self._core = core

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> Stream:
        """Open a connection to `host`, the first of its addresses that answers."""
        return await self._opened(self._connection(host, port, local_address), timeout, socket_options)

    async def _connection(self, host: str, port: int, local: str | None) -> tuple[asyncio.Transport, Stream]:
        made = await connected_socket(host, port, local)
        return await asyncio.get_running_loop().create_connection(lambda: Stream(self._core), sock=made)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[SocketOption] | None = None
    ) -> Stream:
        """Open a connection to the socket at `path`."""
        opening = asyncio.get_running_loop().create_unix_connection(lambda: Stream(self._core), path)
        return await self._opened(opening, timeout, socket_options)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def _opened(
        self,
        opening: Coroutine[Any, Any, tuple[asyncio.Transport, Stream]],
        timeout: float | None,
        socket_options: Iterable[SocketOption] | None,
    ) -> Stream:
        try:
            async with asyncio.timeout(timeout):
                transport, stream = await opening
        except TimeoutError as error:
            raise self._core.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise self._core.ConnectError(str(error)) from error
        for option in socket_options or ():
            transport.get_extra_info("socket").setsockopt(*option)
        return stream


class Stream(asyncio.Protocol):
    """One connection; what httpcore calls a network stream, and asyncio a protocol.

    Args:
        core: whose errors it raises.
    """

    def __init__(self, core: Any) -> None:  # noqa: ANN401 - see Backend
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._came: deque[bytes] = deque()
        self._size = 0
        self._over = False
        self._why: BaseException | None = None
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._held_up = False  # the socket takes no more for now
        self._corked: list[bytes] = []
        self._corked_size = 0

    # ------------------------------------------------------------------------------------------------ called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Keep `data` for the next read."""
        self._came.append(data)
        self._size += len(data)
        if self._size > HIGH_WATER and self._transport is not None:
            self._transport.pause_reading()
        _wake(self._reading)

    def eof_received(self) -> bool:
        """Note the end of what comes."""
        self._over = True
        _wake(self._reading)
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Note the end of all."""
        self._over = True
        self._why = error
        self._held_up = False
        _wake(self._reading)
        _wake(self._writing)

    def pause_writing(self) -> None:
        """Note that the socket is full."""
        self._held_up = True

    def resume_writing(self) -> None:
        """Note that there is room again."""
        self._held_up = False
        _wake(self._writing)

    # ----------------------------------------------------------------------------------------------- called by httpcore

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return up to `max_bytes` as soon as any are here; nothing at the end."""
        if self._corked:
            self._uncork()
        if not self._came and not self._over:
            self._reading = self._loop.create_future()
            try:
                await self._wait(self._reading, timeout, self._core.ReadTimeout)
            finally:
                self._reading = None
        if not self._came:
            if self._why is not None:
                raise self._core.ReadError(str(self._why)) from self._why
            return b""
        data = self._came.popleft()
        if len(data) > max_bytes:
            self._came.appendleft(data[max_bytes:])
            data = data[:max_bytes]
        if self._size > HIGH_WATER >= self._size - len(data) and self._transport is not None and not self._over:
            self._transport.resume_reading()
        self._size -= len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send `buffer`, by and by."""
        if self._why is not None or self._transport is None or self._transport.is_closing():
            raise self._core.WriteError("the connection was closed by the other side")
        if not buffer:
            return
        if not self._corked:
            self._loop.call_soon(self._uncork)
        self._corked.append(buffer)
        self._corked_size += len(buffer)
        if self._corked_size >= CORK:
            self._uncork()
        while self._held_up:
            self._writing = self._loop.create_future()
            try:
                await self._wait(self._writing, timeout, self._core.WriteTimeout)
            finally:
                self._writing = None

    async def aclose(self) -> None:
        """Hang up, at once."""
        if self._transport is not None:
            self._transport.abort()
        self._corked.clear()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> Stream:
        """Speak TLS from now on."""
        self._uncork()
        transport = self._transport
        if transport is None or self._over:
            raise self._core.ConnectError("the connection ended before TLS began")
        try:
            async with asyncio.timeout(timeout):
                self._transport = await self._loop.start_tls(
                    transport, self, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError as error:
            await self._give_up(transport)
            raise self._core.ConnectTimeout(str(error)) from error
        except OSError as error:  # among them all of ssl's errors
            await self._give_up(transport)
            raise self._core.ConnectError(str(error)) from error
        except BaseException:
            await self._give_up(transport)
            raise
        if self._transport is None:
            raise self._core.ConnectError("the connection ended while TLS began")
        return self

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - httpcore's own interface
        """Return what httpcore asks of a connection."""
        transport = self._transport
        if transport is None:
            return None
        if info == "is_readable":  # asked of an idle connection: anything that comes there, the end above all, ends it
            return self._over or bool(self._came) or _readable(transport.get_extra_info("socket"))
        names = {"client_addr": "sockname", "server_addr": "peername"}
        return transport.get_extra_info(names.get(info, info))

    # ----------------------------------------------------------------------------------------------------------- inside

    def _uncork(self) -> None:
        corked, self._corked = self._corked, []
        self._corked_size = 0
        if corked and self._transport is not None and not self._transport.is_closing():
            self._transport.write(corked[0] if len(corked) == 1 else b"".join(corked))

    async def _give_up(self, transport: asyncio.Transport | None) -> None:
        if transport is not None:
            transport.abort()
        self._over = True

    async def _wait(self, future: asyncio.Future[None], timeout: float | None, kind: type[Exception]) -> None:
        timer = None if timeout is None else self._loop.call_later(timeout, _expire, future, kind)
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _expire(future: asyncio.Future[None], kind: type[Exception]) -> None:
    if not future.done():
        future.set_exception(kind("timed out"))


def _readable(sock: socket.socket | None) -> bool:
    """Return whether something waits in a socket; so it is said to of one that is gone."""
    number = -1 if sock is None else sock.fileno()
    if number < 0:
        return True
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([number], [], [], 0)[0])
