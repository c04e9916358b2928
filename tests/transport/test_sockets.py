"""A socket to the first address that answers, and none left behind."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from fairq_ipy.transport import sockets

from .conftest import run


def info(port: int, address: str = "127.0.0.1") -> Any:
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: Any) -> None:
    async def getaddrinfo(*_args: Any, **_options: Any) -> Any:
        return list(addresses)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


def test_the_first_address_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch):
    async def main() -> int:
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            resolving(monkeypatch, info(9), info(port), info(9))
            with await sockets.connected_socket("host", 80) as made:
                return int(made.getpeername()[1] == port)

    assert run(main())


def test_when_none_answers_the_first_ones_word_is_raised(monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        resolving(monkeypatch, info(9), info(9))
        with pytest.raises(ConnectionRefusedError):
            await sockets.connected_socket("host", 80)

    run(main())


def test_an_address_that_does_not_answer_is_overtaken_and_closed(monkeypatch: pytest.MonkeyPatch):
    closed: list[bool] = []

    async def main() -> None:
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
            loop = asyncio.get_running_loop()
            port = server.sockets[0].getsockname()[1]
            resolving(monkeypatch, info(1), info(port))
            monkeypatch.setattr(sockets, "HEAD_START", 0.01)
            connect = loop.sock_connect

            async def slow(made: socket.socket, where: Any) -> None:
                if where[1] == 1:
                    try:
                        await asyncio.Event().wait()
                    finally:
                        closed.append(True)
                await connect(made, where)

            monkeypatch.setattr(loop, "sock_connect", slow)
            (await sockets.connected_socket("host", 80)).close()

    run(main())
    assert closed == [True]


def test_whoever_leaves_the_race_leaves_no_socket(monkeypatch: pytest.MonkeyPatch):
    made: list[socket.socket] = []

    async def attempt(_address: Any, _local: Any) -> socket.socket:
        made.append(socket.socket())
        return made[-1]

    async def main() -> None:
        resolving(monkeypatch, info(1), info(2))
        monkeypatch.setattr(sockets, "_connected", attempt)
        racing = asyncio.create_task(sockets.connected_socket("host", 80))
        for _ in range(3):  # to the resolver, to the race, into its first attempt
            await asyncio.sleep(0)
        assert made
        racing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await racing
        await asyncio.sleep(0)

    run(main())
    assert [each.fileno() for each in made] == [-1]


def test_families_take_turns():
    four = [info(number) for number in range(3)]
    six = [(socket.AF_INET6, *info(number)[1:]) for number in range(1)]
    assert sockets._in_turns([*four, *six]) == [four[0], six[0], four[1], four[2]]
    assert sockets._in_turns([*six, *four]) == [six[0], four[0], four[1], four[2]]


def test_an_error_that_is_no_ones_fault_is_raised(monkeypatch: pytest.MonkeyPatch):
    async def attempt(_address: Any, _local: Any) -> socket.socket:
        raise ZeroDivisionError

    async def main() -> None:
        resolving(monkeypatch, info(1), info(2))
        monkeypatch.setattr(sockets, "_connected", attempt)
        with pytest.raises(ZeroDivisionError):
            await sockets.connected_socket("host", 80)

    run(main())
