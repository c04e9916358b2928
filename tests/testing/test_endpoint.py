"""The scripted endpoint: what clients get, and what it writes down."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from fairq_ipy.testing import (
    Gate,
    Message,
    Pause,
    Reply,
    ScriptedEndpoint,
    chat,
    chunk,
    cut,
    echo,
    embeddings,
    endless,
    error,
    html,
    json_reply,
    plain,
    raw,
    sse,
    stream,
)


@pytest.fixture
def mock() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint() as endpoint:
        yield endpoint
        endpoint.release()


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client() as client:
        yield client


@pytest.fixture
def post(mock: ScriptedEndpoint, client: httpx.Client) -> Callable[..., httpx.Response]:
    def send(text: str = "hello", **more: Any) -> httpx.Response:
        body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
        return client.post(f"{mock.base_url}/chat/completions", json=body)

    return send


def events(response: httpx.Response) -> list[Any]:
    datas = [line[len("data: ") :] for line in response.text.split("\n") if line.startswith("data: ")]
    return [data if data == "[DONE]" else json.loads(data) for data in datas]


def said(response: httpx.Response) -> str:
    chunks = [event for event in events(response) if event != "[DONE]"]
    return "".join(choice["delta"].get("content") or "" for event in chunks for choice in event["choices"])


def in_threads(count: int, call: Callable[[int], Any]) -> list[threading.Thread]:
    threads = [threading.Thread(target=call, args=(at,)) for at in range(count)]
    for thread in threads:
        thread.start()
    return threads


# ---------------------------------------------------------------------------------------------------------- answers


def test_without_a_script_every_caller_gets_its_own_last_message_back(post: Callable[..., httpx.Response]) -> None:
    assert post("one").json()["choices"][0]["message"]["content"] == "one"
    assert said(post("two words", stream=True)) == "two words"


def test_a_stream_carries_usage_only_when_it_is_asked_for(post: Callable[..., httpx.Response]) -> None:
    without = events(post("x", stream=True))
    asked = events(post("x", stream=True, stream_options={"include_usage": True}))
    assert not any("usage" in event for event in without if event != "[DONE]")
    assert asked[-2]["choices"] == []
    assert asked[-2]["usage"]["total_tokens"] == 2
    assert asked[-1] == "[DONE]"


def test_replies_are_used_in_order_and_then_the_standing_one(
    mock: ScriptedEndpoint, post: Callable[..., httpx.Response]
) -> None:
    mock.reply(error(429, retry_after=1), html(status=502), times=2)
    mock.always(chat("at last"))
    assert [post().status_code for _ in range(5)] == [429, 502, 429, 502, 200]
    assert post().json()["choices"][0]["message"]["content"] == "at last"


def test_an_error_has_the_shape_of_the_real_api(mock: ScriptedEndpoint, post: Callable[..., httpx.Response]) -> None:
    mock.reply(error(429, "No money left", code="insufficient_quota", retry_after="soon"))
    answer = post()
    assert answer.json()["error"]["code"] == "insufficient_quota"
    assert answer.headers["retry-after"] == "soon"


def test_a_script_may_look_at_the_request(mock: ScriptedEndpoint, post: Callable[..., httpx.Response]) -> None:
    def turn(request: Any) -> Reply:
        return chat(request.prompt[::-1]).with_headers(x_number=str(request.number))

    mock.always(turn)
    answer = post("abc")
    assert answer.json()["choices"][0]["message"]["content"] == "cba"
    assert answer.headers["x-number"] == "1"


def test_a_script_that_fails_is_raised_when_the_test_ends() -> None:
    def broken(request: Any) -> Reply:
        raise KeyError("my mistake")

    with ExitStack() as ending:
        mock = ending.enter_context(ScriptedEndpoint())
        mock.always(broken)
        assert httpx.post(f"{mock.base_url}/x", json={}).status_code == 500
        with pytest.raises(KeyError, match="my mistake"):
            ending.close()


def test_pieces_of_a_stream_wait_for_gates_and_pauses(mock: ScriptedEndpoint, client: httpx.Client) -> None:
    gate = Gate()
    mock.reply(stream("a", gate, Pause(0.001), "b"))
    with client.stream("POST", f"{mock.base_url}/chat/completions", json={}) as answer:
        parts = answer.iter_text()
        assert '"a"' in next(parts)
        assert mock.in_flight == 1
        gate.open()
        assert '"b"' in "".join(parts)
    assert mock.in_flight == 0


def test_a_gate_at_the_end_of_a_stream_keeps_it_open(mock: ScriptedEndpoint, client: httpx.Client) -> None:
    gate = Gate()
    mock.reply(sse("[DONE]", gate))
    with client.stream("POST", f"{mock.base_url}/chat/completions", json={}) as answer:
        parts = answer.iter_raw()
        assert next(parts) == b"data: [DONE]\n\n"
        assert mock.in_flight == 1
        gate.open()
        assert list(parts) == []


def test_raw_events_keep_their_bytes_and_line_ends(mock: ScriptedEndpoint, post: Callable[..., httpx.Response]) -> None:
    mock.reply(sse(b": comment\r\r", "text", {"a": 1}, line_end="\r\n"))
    assert post().content == b': comment\r\rdata: text\r\n\r\ndata: {"a": 1}\r\n\r\n'


@pytest.mark.parametrize("reply", [html("<p>page</p>"), stream("a", "b"), json_reply({"a": 1})])
def test_one_byte_packets_make_the_same_answer(
    mock: ScriptedEndpoint, post: Callable[..., httpx.Response], reply: Reply
) -> None:
    mock.reply(reply, reply.dripped())
    assert post().content == post().content


def test_without_an_end_the_last_event_comes_again_until_the_client_leaves(
    mock: ScriptedEndpoint, client: httpx.Client
) -> None:
    mock.reply(endless("a", every=0.001))
    with client.stream("POST", f"{mock.base_url}/x", json={}) as answer:
        parts = answer.iter_raw()
        got = b"".join(next(parts) for _ in range(5))
    assert got.count(b": keep-alive\n\n") >= 4
    mock.wait_for(disconnects=1)


def test_an_answer_may_end_with_its_connection(mock: ScriptedEndpoint, post: Callable[..., httpx.Response]) -> None:
    mock.reply(Reply(lambda _: Message(pieces=(b"a", b"b"), framing="close")))
    answer = post()
    assert (answer.text, answer.headers["connection"]) == ("ab", "close")


def test_a_stream_without_usage_or_end_is_just_that(
    mock: ScriptedEndpoint, post: Callable[..., httpx.Response]
) -> None:
    mock.reply(stream("a", finish_reason=None, done=False))
    assert len(post().text.split("\n\n")) == 2


def test_an_answer_without_a_body_is_whole(mock: ScriptedEndpoint, post: Callable[..., httpx.Response]) -> None:
    mock.reply(sse())
    assert post().content == b""
    assert mock.counts.answered == 1


def test_raw_bytes_are_all_that_is_sent(mock: ScriptedEndpoint, post: Callable[..., httpx.Response]) -> None:
    mock.reply(raw(b"HTTP/1.1 299 Odd\r\nx-a: 1\r\n\r\n", b"until the end"))
    answer = post()
    assert (answer.status_code, answer.headers["x-a"], answer.text) == (299, "1", "until the end")


def test_whole_answers_carry_tool_calls_and_a_chosen_usage(
    mock: ScriptedEndpoint, post: Callable[..., httpx.Response]
) -> None:
    mock.reply(plain(None, usage=(7, 0), finish_reason="tool_calls", tool_calls=[{"id": "1"}]))
    answer = post(stream=True).json()
    assert answer["choices"][0]["message"]["content"] is None
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert answer["usage"]["prompt_tokens"] == 7


def test_embeddings_answer_each_input(mock: ScriptedEndpoint, client: httpx.Client) -> None:
    mock.reply(embeddings(), embeddings(usage=9))
    two = client.post(f"{mock.base_url}/embeddings", json={"input": ["a", "b"]}).json()
    one = client.post(f"{mock.base_url}/embeddings", json={"input": "a"}).json()
    assert [len(two["data"]), len(one["data"])] == [2, 1]
    assert one["usage"]["total_tokens"] == 9


def test_chunks_take_more_fields() -> None:
    assert chunk("x", usage=None)["usage"] is None


# ------------------------------------------------------------------------------------------------------ broken ends


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (cut(), httpx.RemoteProtocolError),
        (cut(reset=True), httpx.ReadError),
        (stream("a", "b").cut(1), httpx.RemoteProtocolError),
        (stream("a", "b").cut(99), httpx.RemoteProtocolError),
        (chat("a").cut(0), httpx.RemoteProtocolError),
        (chat("a").cut(1), httpx.RemoteProtocolError),
    ],
)
def test_a_cut_answer_is_an_error_of_the_connection(
    mock: ScriptedEndpoint, post: Callable[..., httpx.Response], reply: Reply, problem: type[Exception]
) -> None:
    mock.reply(reply)
    with pytest.raises(problem):
        post()
    mock.wait_for(in_flight=0)
    assert mock.counts.cut == 1
    assert mock.requests[0].outcome == "cut"


def test_what_came_before_the_cut_arrives(mock: ScriptedEndpoint, client: httpx.Client) -> None:
    mock.reply(stream("a", "b", "c").cut(2))
    got: list[str] = []
    with (
        pytest.raises(httpx.RemoteProtocolError),
        client.stream("POST", f"{mock.base_url}/chat/completions", json={}) as answer,
    ):
        got.extend(answer.iter_text())
    assert ['"a"' in "".join(got), '"b"' in "".join(got), '"c"' in "".join(got)] == [True, True, False]
    assert mock.requests[0].pieces == 2


# ------------------------------------------------------------------------------------------------------------ books


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
