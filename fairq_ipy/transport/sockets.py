"""A connected socket to the first address of a host that answers, or none that is left behind.

asyncio has this race of addresses (RFC 8305, "happy eyeballs") too, but its version drops the winner's socket unclosed
when the call is cancelled in the same moment.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final, TypeAlias, cast

__all__ = ["connected_socket"]

Address: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
"""What the resolver says of one address: family, kind, protocol, name, and where."""

HEAD_START: Final = 0.25
"""Seconds that one address has before the next one is tried beside it."""


async def connected_socket(host: str, port: int, local_address: str | None = None) -> socket.socket:
    """Return a socket that is connected to `host`, the first of its addresses that answers.

    Raises:
        OSError: none of them does; what the first one said.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = cast("list[Address]", found)
    if len(addresses) == 1:
        return await _connected(addresses[0], local_address)
    return await _race(_in_turns(addresses), local_address)


async def _race(addresses: list[Address], local_address: str | None) -> socket.socket:
    attempts: list[asyncio.Task[socket.socket]] = []
    winner: asyncio.Task[socket.socket] | None = None
    left = iter(addresses)
    try:
        while True:
            following = next(left, None)
            if following is not None:
                attempts.append(asyncio.create_task(_connected(following, local_address)))
            running = [attempt for attempt in attempts if not attempt.done()]
            if not running:
                raise _first_failure(attempts)
            patience = None if following is None else HEAD_START
            done, _ = await asyncio.wait(running, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            winner = next((attempt for attempt in done if attempt.exception() is None), None)
            if winner is not None:
                return winner.result()
    finally:
        for attempt in attempts:
            if attempt is not winner:
                attempt.cancel()
                attempt.add_done_callback(_drop)


def _first_failure(attempts: list[asyncio.Task[socket.socket]]) -> BaseException:
    return next(error for attempt in attempts if (error := attempt.exception()) is not None)


async def _connected(address: Address, local_address: str | None) -> socket.socket:
    family, kind, protocol, _, where = address
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)  # noqa: FBT003 - the socket's own signature
        if local_address is not None:
            made.bind((local_address, 0))
        await asyncio.get_running_loop().sock_connect(made, where)
    except BaseException:
        made.close()
        raise
    return made


def _drop(attempt: asyncio.Task[socket.socket]) -> None:
    """Close what an attempt that nobody waits for has opened."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


def _in_turns(addresses: list[Address]) -> list[Address]:
    """Return the addresses in their order, but with the families taking turns."""
    first = [address for address in addresses if address[0] == addresses[0][0]]
    others = [address for address in addresses if address[0] != addresses[0][0]]
    paired = [address for pair in zip(first, others, strict=False) for address in pair]
    return [*paired, *first[len(others) :], *others[len(first) :]]
