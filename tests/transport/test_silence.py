"""Servers that fall silent, readers that do not read, and how far the queue reads ahead of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest

from fairq_ipy.errors import StreamReclaimedError
from fairq_ipy.session import Session
from fairq_ipy.testing import Gate, Pause, ScriptedEndpoint, chunk, endless, plain, sse, stream
from fairq_ipy.transport import body

from .conftest import async_client, chat_body, run, settled

Queue = Callable[..., Session]
Client = Callable[..., Any]


def opened(client: Any, mock: ScriptedEndpoint) -> Any:
    return client.stream("POST", f"{mock.base_url}/chat/completions", json=chat_body(stream=True))


def test_a_stream_of_nothing_but_comments_is_taken_back(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1, idle_stream=0.15)
    mock.reply(endless("one ", "two ", every=0.01))
    seen: list[bytes] = []
    with opened(client(session), mock) as response, pytest.raises(StreamReclaimedError, match="idle_stream") as caught:
        seen.extend(response.iter_raw())
    assert b"two" in b"".join(seen)
    assert caught.value.silent_for >= 0.15
    mock.wait_for(disconnects=1)
    books = settled(session)
    assert (books.completed, books.failed) == (1, 1)
    assert books.tokens > 0


def test_sdks_do_not_repeat_what_was_taken_back(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1, idle_stream=0.15)
    mock.always(endless("one ", every=0.01))
    sdk = openai.OpenAI(base_url=mock.base_url, api_key="k", max_retries=5, http_client=client(session))
    with pytest.raises(StreamReclaimedError):
        list(sdk.chat.completions.create(model="m", messages=[], stream=True))
    assert mock.arrivals == 1


def test_a_server_that_says_nothing_at_first_has_a_limit_of_its_own(
    mock: ScriptedEndpoint, queue: Queue, client: Client
):
    session = queue(concurrency=1, first_token=0.15, idle_stream=60.0)
    mock.always(endless(every=0.01))
    sdk = openai.OpenAI(base_url=mock.base_url, api_key="k", max_retries=5, http_client=client(session))
    with pytest.raises(openai.InternalServerError, match="first_token") as caught:
        sdk.chat.completions.create(model="m", messages=[], stream=True)
    assert caught.value.response.headers["x-fairq-reason"] == "stream_reclaimed"
    assert mock.arrivals == 1
    assert settled(session).failed == 1


def test_a_server_that_does_not_even_answer_has_it_too(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1, first_token=0.1)
    mock.hold()
    with opened(client(session), mock) as response:
        assert response.status_code == 504
    mock.wait_for(disconnects=1)
    mock.release()


def test_who_asks_for_a_whole_answer_has_the_clients_own_time(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1, first_token=0.05, idle_stream=0.05)
    mock.reply(plain("late").after(0.3))
    response = client(session).post(f"{mock.base_url}/chat/completions", json=chat_body())
    assert response.json()["choices"][0]["message"]["content"] == "late"


def test_thoughts_and_tool_calls_are_no_silence(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1, idle_stream=0.25)
    thought = chunk()
    thought["choices"][0]["delta"] = {"reasoning_content": "hm"}
    events = [part for _ in range(6) for part in (thought, Pause(0.1))]
    mock.reply(sse(*events, chunk(finish_reason="tool_calls"), "[DONE]"))
    with opened(client(session), mock) as response:
        response.read()
    assert response.extensions["fairq"].receipt.outcome == "ok"


def test_the_limits_can_be_switched_off(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1, first_token=None, idle_stream=None)
    gate = Gate()
    mock.reply(stream("a ", gate, "b"))
    with opened(client(session), mock) as response:
        gate.open()
        assert b"b" in response.read()


# --------------------------------------------------------------------------------------------------------- read-ahead


def big(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(body, "READ_AHEAD", 50_000)
    return ["x" * 10_000] * 100


def stalled(pipe: body.Pipe) -> None:
    while not pipe.stalled:
        time.sleep(0.002)


def test_a_slow_reader_gets_every_byte_and_holds_the_server_up(
    mock: ScriptedEndpoint, queue: Queue, client: Client, monkeypatch: pytest.MonkeyPatch
):
    session = queue(concurrency=1)
    pieces = big(monkeypatch)
    mock.reply(stream(*pieces))
    with opened(client(session), mock) as response:
        pipe = response.stream._stream._pipe
        stalled(pipe)
        assert pipe._pushed < 50_000 + 100_000
        assert session.snapshot().in_flight == 1
        assert response.read().count(b"x" * 10_000) == 100
    assert settled(session).completed == 1


def test_so_does_a_slow_task(mock: ScriptedEndpoint, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    session = queue(concurrency=1)
    pieces = big(monkeypatch)
    mock.reply(stream(*pieces))

    async def main() -> int:
        async with async_client(session) as made, opened(made, mock) as response:
            pipe = response.stream._stream._pipe
            await asyncio.to_thread(stalled, pipe)
            return (await response.aread()).count(b"x" * 10_000)

    assert run(main()) == 100


def test_a_reader_who_does_not_come_loses_the_stream(
    mock: ScriptedEndpoint, queue: Queue, client: Client, monkeypatch: pytest.MonkeyPatch
):
    session = queue(concurrency=1, idle_stream=0.1)
    pieces = big(monkeypatch)
    mock.reply(stream(*pieces))
    with opened(client(session), mock) as response:
        assert settled(session).failed == 1
        with pytest.raises(StreamReclaimedError, match="nobody read"):
            response.read()


def test_so_does_one_who_does_not_read_a_large_document(
    mock: ScriptedEndpoint, queue: Queue, client: Client, monkeypatch: pytest.MonkeyPatch
):
    session = queue(concurrency=1, idle_stream=0.1)
    big(monkeypatch)
    mock.reply(plain("x" * 20_000_000))
    with client(session).stream("POST", f"{mock.base_url}/chat/completions", json=chat_body()) as response:
        assert settled(session).failed == 1
        with pytest.raises(StreamReclaimedError, match="nobody read"):
            response.read()


def test_a_reader_who_leaves_a_full_stream_frees_its_slot(
    mock: ScriptedEndpoint, queue: Queue, client: Client, monkeypatch: pytest.MonkeyPatch
):
    session = queue(concurrency=1)
    pieces = big(monkeypatch)
    mock.reply(stream(*pieces))
    with opened(client(session), mock) as response:
        next(response.iter_raw())
    assert settled(session).cancelled == 1
