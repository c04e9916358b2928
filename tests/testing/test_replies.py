"""The scripted endpoint: what its clients get."""

from __future__ import annotations

import json
from collections.abc import Callable
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


def events(response: httpx.Response) -> list[Any]:
    datas = [line[len("data: ") :] for line in response.text.split("\n") if line.startswith("data: ")]
    return [data if data == "[DONE]" else json.loads(data) for data in datas]


def said(response: httpx.Response) -> str:
    chunks = [event for event in events(response) if event != "[DONE]"]
    return "".join(choice["delta"].get("content") or "" for event in chunks for choice in event["choices"])


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
