"""The scripted endpoint: what it counts, writes down, holds and lets go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from fairq_ipy.testing import (
    Gate,
    ScriptedEndpoint,
    echo,
    endless,
    raw,
)


def in_threads(count: int, call: Callable[[int], Any]) -> list[threading.Thread]:
    threads = [threading.Thread(target=call, args=(at,)) for at in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_held_requests_are_in_flight_until_they_are_released(
    mock: ScriptedEndpoint, post: Callable[..., httpx.Response]
) -> None:
    mock.hold()
    threads = in_threads(3, lambda at: post(f"caller {at}"))
    assert mock.wait_for(arrivals=3, in_flight=3, held=3).max_in_flight == 3
    mock.release(1)
    assert mock.wait_for(answered=1, held=2).in_flight == 2
    mock.release()
    for thread in threads:
        thread.join()
    assert post().status_code == 200
    assert (mock.in_flight, mock.max_in_flight, mock.counts.answered) == (0, 3, 4)


def test_the_books_are_closed_before_the_client_has_the_last_byte(
    mock: ScriptedEndpoint, post: Callable[..., httpx.Response]
) -> None:
    for at in range(50):
        post(stream=bool(at % 2))
        assert (mock.in_flight, mock.counts.answered) == (0, at + 1)
    assert mock.max_in_flight == 1


def test_more_than_the_cap_is_refused_at_once(client: httpx.Client) -> None:
    with ScriptedEndpoint(cap=1) as mock:
        mock.hold()
        [first] = in_threads(1, lambda _: client.post(f"{mock.base_url}/x", json={}))
        mock.wait_for(held=1)
        assert client.post(f"{mock.base_url}/x", json={}).status_code == 429
        mock.release()
        first.join()
    assert (mock.counts.refused, mock.max_in_flight, mock.arrivals) == (1, 1, 2)
    assert [request.outcome for request in mock.requests] == ["answered", "refused"]


def test_a_client_that_hangs_up_is_a_disconnect(mock: ScriptedEndpoint, client: httpx.Client) -> None:
    mock.reply(endless("a", "b"))
    with client.stream("POST", f"{mock.base_url}/chat/completions", json={}) as answer:
        next(answer.iter_raw())
    mock.wait_for(disconnects=1, in_flight=0)
    assert mock.requests[0].outcome == "disconnected"
    assert mock.requests[0].ended is not None


def test_a_client_that_hangs_up_while_held_is_a_disconnect(mock: ScriptedEndpoint) -> None:
    mock.hold()
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{mock.base_url}/x", json={}, timeout=0.05)
    assert mock.wait_for(disconnects=1).held == 0


def test_one_who_closes_a_stream_and_opens_another_is_never_counted_twice(
    mock: ScriptedEndpoint, client: httpx.Client
) -> None:
    mock.always(endless("a"))
    for _ in range(100):
        with client.stream("POST", f"{mock.base_url}/chat/completions", json={}) as answer:
            next(answer.iter_raw())
    mock.wait_for(disconnects=100)
    assert mock.max_in_flight == 1


def test_requests_are_written_down_as_they_came(mock: ScriptedEndpoint, client: httpx.Client) -> None:
    def parts() -> Iterator[bytes]:
        yield b'{"prompt": '
        yield b'["in ", {"text": "parts"}]}'

    client.post(f"{mock.base_url}/completions?x=1", content=parts(), headers=[("X-A", "1"), ("X-A", "2")])
    [request] = mock.requests
    assert (request.method, request.path, request.prompt) == ("POST", "/v1/completions?x=1", "in parts")
    assert request.headers["x-a"] == "2"
    assert [value for name, value in request.raw_headers if name == "x-a"] == ["1", "2"]
    assert request.ended is not None
    assert request.arrived <= request.ended


@pytest.mark.parametrize("body", [b"", b"junk", b"[1]", b'{"messages": "x"}', b'{"messages": [1]}', b'{"prompt": 7}'])
def test_a_body_that_is_no_request_is_still_answered(mock: ScriptedEndpoint, client: httpx.Client, body: bytes) -> None:
    assert client.post(f"{mock.base_url}/x", content=body).status_code == 200
    assert mock.requests[0].body == body
    assert mock.requests[0].prompt == ""


def test_what_is_no_http_ends_the_connection(mock: ScriptedEndpoint) -> None:
    async def talk() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", mock.port)
        writer.write(b"hello\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    assert asyncio.run(talk()) == b""
    assert mock.arrivals == 0


def test_a_client_that_wants_to_close_is_closed(mock: ScriptedEndpoint) -> None:
    async def talk() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", mock.port)
        writer.write(b"GET /v1/models HTTP/1.1\r\nconnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    assert asyncio.run(talk()).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_client_that_reads_slowly_holds_the_answer_up_and_gets_all_of_it(
    mock: ScriptedEndpoint, client: httpx.Client
) -> None:
    piece = b"x" * 1_000_000
    mock.reply(raw(b"HTTP/1.1 200 OK\r\n\r\n", *[piece] * 30))
    with client.stream("POST", f"{mock.base_url}/x", json={}) as answer:
        assert mock.in_flight == 1
        assert sum(len(part) for part in answer.iter_raw()) == 30_000_000
    assert mock.counts.answered == 1


def test_a_request_may_come_in_small_packets(mock: ScriptedEndpoint) -> None:
    request = b"POST /v1/x HTTP/1.1\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    request += b"2\r\n{}\r\n0\r\n\r\n"

    async def talk() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", mock.port)
        for at in range(len(request)):
            writer.write(request[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    assert asyncio.run(talk()).startswith(b"HTTP/1.1 200 OK")
    assert mock.requests[0].body == b"{}"


def test_waiting_for_what_does_not_come_fails_with_all_the_numbers(mock: ScriptedEndpoint) -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.01 s for {'in_flight': 1}, but the endpoint has Counts\("):
        mock.wait_for(in_flight=1, timeout=0.01)


async def _two_held(mock: ScriptedEndpoint) -> tuple[int, int]:
    mock.hold()
    async with httpx.AsyncClient() as client:
        tasks = [asyncio.create_task(client.post(f"{mock.base_url}/x", json={})) for _ in range(2)]
        counts = await mock.reached(2, in_flight=2)
        tasks[0].cancel()
        await mock.reached(disconnects=1, in_flight=1)
        mock.release()
        return counts.in_flight, (await tasks[1]).status_code


def test_a_test_on_a_loop_waits_without_blocking_it(mock: ScriptedEndpoint) -> None:
    assert asyncio.run(_two_held(mock)) == (2, 200)


def test_a_reply_waits_behind_its_own_gate_and_delay(
    mock: ScriptedEndpoint, post: Callable[..., httpx.Response]
) -> None:
    gate = Gate()
    mock.reply(echo().behind(gate).after(0.001))
    [thread] = in_threads(1, lambda _: post())
    mock.wait_for(in_flight=1)
    gate.open()
    gate.open()
    thread.join()
    assert gate.is_open
    mock.reply(echo().behind(gate))
    assert post().status_code == 200
    assert (mock.counts.answered, mock.disconnects) == (2, 0)


def test_closing_twice_is_closing_once_and_cuts_off_whoever_is_there() -> None:
    mock = ScriptedEndpoint().start()
    mock.hold()
    problems: list[type[Exception]] = []

    def call(_: int) -> None:
        try:
            httpx.post(f"{mock.base_url}/x", json={})
        except httpx.TransportError as problem:
            problems.append(type(problem))

    [thread] = in_threads(1, call)
    mock.wait_for(held=1)
    mock.close()
    mock.close()
    thread.join()
    assert len(problems) == 1
