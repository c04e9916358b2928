"""Asking for usage where the policy says so: the count is exact, and the caller sees none of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairq_ipy.session import Session
from fairq_ipy.testing import ScriptedEndpoint, chat, chunk, sse, stream
from fairq_ipy.transport.sieve import Sieve, with_usage

from .conftest import chat_body

Queue = Callable[..., Session]
Client = Callable[..., Any]

USAGE = {**chunk(), "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}


def event(content: object, end: str = "\n") -> bytes:
    return f"data: {json.dumps(content)}{end}{end}".encode()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_only_the_chunk_that_carries_nothing_but_usage_is_kept_back(end: str):
    beside = {**chunk("x"), "usage": {"prompt_tokens": 9}}
    empty, null = {**chunk(), "choices": []}, {**chunk("y"), "usage": None}
    kept = [event(one, end) for one in (beside, empty, null, {"usage": 3}, [7])]
    odd = [f'data: {{no json, but "usage"{end}{end}'.encode(), f': "usage"{end}{end}'.encode()]
    sieve = Sieve()
    passed = sieve.feed(b"".join([*kept, event(USAGE, end), *odd])) + sieve.end()
    assert passed == b"".join([*kept, *odd])


def test_an_event_without_its_end_is_passed_on_at_the_end():
    sieve = Sieve()
    assert sieve.feed(b"data: x\n\ndata: [DO") == b"data: x\n\n"
    assert sieve.feed(b"NE]") == b""
    assert sieve.end() == b"data: [DONE]"


def test_an_event_without_end_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch):
    from fairq_ipy.transport import sieve as module

    monkeypatch.setattr(module, "MAX_EVENT", 10)
    assert Sieve().feed(b"data: 0123456789") == b"data: 0123456789"


@given(
    events=st.lists(st.sampled_from([event(chunk("x")), event(USAGE), b": ping\r\n\r\n", b"data: [DONE]\n\n"])),
    size=st.integers(1, 300),
)
def test_where_the_bytes_are_cut_changes_nothing(events: list[bytes], size: int):
    data = b"".join(events)
    sieve = Sieve()
    passed = b"".join(sieve.feed(data[at : at + size]) for at in range(0, len(data), size)) + sieve.end()
    assert passed == b"".join(one for one in events if one != event(USAGE))


def test_the_option_is_the_first_key_of_the_body():
    body = b' { "stream" : true}'
    assert json.loads(with_usage(body)) == {"stream_options": {"include_usage": True}, "stream": True}


def test_an_sdk_sees_what_it_would_see_and_the_count_is_the_endpoints(
    mock: ScriptedEndpoint, queue: Queue, client: Client, library: str
):
    session = queue(stream_usage=True)
    mock.always(chat("one two", usage=(9, 2)))
    ours = openai.OpenAI(base_url=mock.base_url, api_key="k", http_client=client(session, library=library))
    with openai.OpenAI(base_url=mock.base_url, api_key="k") as theirs:
        seen = [
            [part.model_dump() for part in sdk.chat.completions.create(model="m", messages=[], stream=True)]
            for sdk in (ours, theirs)
        ]
    assert seen[0] == seen[1]
    assert mock.requests[0].json["stream_options"] == {"include_usage": True}
    assert int(mock.requests[0].headers["content-length"]) == len(mock.requests[0].body)
    assert session.snapshot().tokens == 11


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", chat_body(stream=True, stream_options={"include_usage": False})),
        ("chat/completions", chat_body(stream=True, stream_options=None)),
        ("chat/completions", chat_body()),
        ("responses", {"input": "x", "stream": True}),
    ],
)
def test_who_says_what_it_wants_or_asks_for_something_else_is_sent_as_it_is(
    mock: ScriptedEndpoint, queue: Queue, client: Client, path: str, body: dict[str, Any]
):
    client(queue(stream_usage=True)).post(f"{mock.base_url}/{path}", json=body)
    assert mock.requests[0].json == body


def test_without_the_policys_word_nothing_is_added(mock: ScriptedEndpoint, queue: Queue, client: Client):
    mock.reply(sse(chunk("x"), USAGE, "[DONE]"))
    with client(queue()).stream("POST", f"{mock.base_url}/chat/completions", json=chat_body(stream=True)) as response:
        assert b'"usage"' in response.read()
    assert "stream_options" not in mock.requests[0].json
    mock.reply(stream("y", usage=(9, 2)))
