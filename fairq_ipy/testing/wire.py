"""HTTP/1.1 as bytes on a socket: as little of it as a scripted endpoint needs, and nothing that tidies up behind it.

A web framework would mend what a test wants broken: one-byte packets, half a chunk, a status line and then silence. So
this is an `asyncio.Protocol` that reads whole requests, one after the other on a connection, and lets its owner write
whatever it likes.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

__all__ = ["Connection", "Incoming", "take"]

_HEAD_END = b"\r\n\r\n"


class Incoming(NamedTuple):
    """A whole request, as it came."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def take(buffer: bytearray) -> Incoming | None:
    """Cut one whole request off the front of `buffer`; ``None`` when it is not all there yet.

    Raises:
        ValueError: when what came is no HTTP request.
    """
    end = buffer.find(_HEAD_END)
    if end < 0:
        return None
    first, *lines = bytes(buffer[:end]).decode("latin-1").split("\r\n")
    method, target, _version = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines)
    headers = tuple((name.strip().lower(), value.strip()) for name, value in pairs)
    named = dict(headers)
    start = end + len(_HEAD_END)
    if named.get("transfer-encoding", "").lower() == "chunked":
        found = _chunked(buffer, start)
        if found is None:
            return None
        body, stop = found
    else:
        stop = start + int(named.get("content-length", "0"))
        if len(buffer) < stop:
            return None
        body = bytes(buffer[start:stop])
    del buffer[:stop]
    return Incoming(method, target, headers, body)


def _chunked(buffer: bytearray, start: int) -> tuple[bytes, int] | None:
    """Read a chunked body from `start`: the body and where it ends, or ``None`` when it is not all there yet."""
    body = bytearray()
    while True:
        line_end = buffer.find(b"\r\n", start)
        if line_end < 0:
            return None
        size = int(bytes(buffer[start:line_end]).split(b";")[0], 16)
        data = line_end + 2
        start = data + size + 2
        if len(buffer) < start:
            return None
        if size == 0:
            return bytes(body), start
        body += buffer[data : data + size]


class Connection(asyncio.Protocol):
    """One client's connection.

    Args:
        serve: called with the connection and each whole request; its coroutine writes the answer and returns whether
            the connection stays open.
        left: called once when the client goes while an answer is under way, before anything else happens.
        open_ones: every connection that is open; it adds and removes itself.
    """

    def __init__(
        self,
        serve: Callable[[Connection, Incoming], Coroutine[Any, Any, bool]],
        left: Callable[[Connection], None],
        open_ones: set[Connection],
    ) -> None:
        self._serve = serve
        self._left = left
        self._open_ones = open_ones
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None
        self.gone = False

    # ------------------------------------------------------------------------------------- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; send small packets at once."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - tells the type checker what asyncio promises
        self._transport = transport
        self._open_ones.add(self)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Collect a request; serve it when it is whole."""
        self._buffer += data
        self._next()

    def eof_received(self) -> bool:
        """Treat a client that closed its half as gone, as HTTP servers do."""
        self._client_left()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Note that nobody listens any more, whatever the cause."""
        self._open_ones.discard(self)
        self._client_left()

    def pause_writing(self) -> None:
        """Let writers wait: the client reads slowly."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let writers go on."""
        self._writable.set()

    # ----------------------------------------------------------------------------------------- called by the server

    def write(self, data: bytes) -> None:
        """Send `data` now."""
        if self._transport is not None and not self.gone:
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait while the client's side is full."""
        await self._writable.wait()

    def close(self) -> None:
        """Send what was written, then end the connection in the orderly way."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """End the connection so that the client gets "connection reset by peer"."""
        if self._transport is not None:
            linger = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._transport.abort()

    def drop(self) -> None:
        """End everything, because the server closes."""
        self.gone = True
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()

    # ---------------------------------------------------------------------------------------------------- inner part

    def _next(self) -> None:
        if self._task is not None or self.gone:
            return
        try:
            incoming = take(self._buffer)
        except ValueError:
            self.close()
            return
        if incoming is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(incoming))

    async def _run(self, incoming: Incoming) -> None:
        try:
            stays = await self._serve(self, incoming)
        finally:
            self._task = None
        if stays:
            self._next()
        else:
            self.close()

    def _client_left(self) -> None:
        if self.gone:
            return
        self.gone = True
        self._writable.set()
        if self._task is not None:
            self._left(self)
            self._task.cancel()
