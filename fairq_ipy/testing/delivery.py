"""How an answer goes out: framing, packets, waits and broken-off ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

from fairq_ipy.testing.gates import Gate
from fairq_ipy.testing.record import Recorded
from fairq_ipy.testing.replies import Message, Pause, Reply
from fairq_ipy.testing.wire import Connection

__all__ = ["deliver"]

_CHUNKED_END = b"0\r\n\r\n"


async def deliver(
    connection: Connection, request: Recorded, reply: Reply, message: Message, done: Callable[[], None]
) -> bool:
    """Send `message` as `reply` says; return whether all of it went out.

    `done` is called before the last packet is written, and nothing is awaited from there on. So a client that has the
    whole answer finds the books closed, and none of its next requests can be counted beside this one.
    """
    out = _Out(connection, request, reply.packet, done)
    for gate in reply.gates:
        await gate.passed()
    if reply.delay:
        await asyncio.sleep(reply.delay)
    pieces = [piece for piece in message.pieces if not isinstance(piece, bytes) or piece]
    cut_at = reply.stop_after
    empty = not pieces and cut_at is None
    if message.framing != "raw":
        end = _CHUNKED_END if empty and message.framing == "chunked" else b""
        await out.write(_head(message, reply) + end, final=empty)
    for index, piece in enumerate(pieces):
        if isinstance(piece, Gate):
            await piece.passed()
        elif isinstance(piece, Pause):
            await asyncio.sleep(piece.seconds)
        elif cut_at is not None and request.pieces >= cut_at:
            return False
        elif cut_at is not None and message.framing == "length":
            await out.write(piece[: len(piece) // 2])
            return False
        else:
            final = index == len(pieces) - 1 and message.forever is None and cut_at is None
            await out.write(_framed(piece, message, final=final), final=final)
            request.pieces += 1
    if cut_at is None and message.framing == "chunked" and pieces and not isinstance(pieces[-1], bytes):
        await out.write(_CHUNKED_END, final=True)
    while message.forever is not None:  # only the client's leaving, or the server's end, ends it
        await asyncio.sleep(message.forever)
        await out.write(_framed(message.last_bytes(), message, final=False))
    return cut_at is None


class _Out(NamedTuple):
    """Writes in packets, and says when the last one goes."""

    connection: Connection
    request: Recorded
    packet: int | None
    done: Callable[[], None]

    async def write(self, data: bytes, *, final: bool = False) -> None:
        """Write `data`; after every packet but the answer's last, the client's side has its turn."""
        size = self.packet or max(1, len(data))
        for start in range(0, len(data), size):
            packet = data[start : start + size]
            last = final and start + size >= len(data)
            if last:
                self.done()
            self.connection.write(packet)
            self.request.sent += len(packet)
            if not last:
                await asyncio.sleep(0)
                await self.connection.drain()


def _head(message: Message, reply: Reply) -> bytes:
    known = HTTPStatus._value2member_map_.get(message.status)
    phrase = known.phrase if isinstance(known, HTTPStatus) else "Status"
    headers = [*message.headers, *reply.extra]
    if message.framing == "length":
        size = sum(len(piece) for piece in message.pieces if isinstance(piece, bytes))
        headers.append(("content-length", str(size)))
    elif message.framing == "chunked":
        headers.append(("transfer-encoding", "chunked"))
    else:
        headers.append(("connection", "close"))
    lines = [f"HTTP/1.1 {message.status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _framed(piece: bytes, message: Message, *, final: bool) -> bytes:
    """Wrap one piece. The end of a chunked body goes with its last piece: a client may leave once it has that."""
    if message.framing != "chunked":
        return piece
    return f"{len(piece):x}\r\n".encode() + piece + b"\r\n" + (_CHUNKED_END if final else b"")
