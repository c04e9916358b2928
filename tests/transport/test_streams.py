"""Streams: the bytes as they are, every way to leave early, and every way to end badly."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2
import openai
import pytest

from fairq_ipy.session import Session
from fairq_ipy.testing import Gate, ScriptedEndpoint, chat, chunk, error, sse, stream

from .conftest import async_client, chat_body, run, settled

Queue = Callable[..., Session]
Client = Callable[..., Any]

WORDS = [f"w{number} " for number in range(100)]


def hundred() -> tuple[Any, Gate]:
    """A stream of 100 chunks that stops after three of them until the gate is opened."""
    gate = Gate()
    return stream(*WORDS[:3], gate, *WORDS[3:]), gate


def body(**more: Any) -> dict[str, Any]:
    return chat_body(stream=True, **more)


@contextlib.contextmanager
def opened(client: Any, mock: ScriptedEndpoint, **more: Any) -> Iterator[Any]:
    with client.stream("POST", f"{mock.base_url}/chat/completions", json=body(**more)) as response:
        yield response


# ------------------------------------------------------------------------------------------------------ as they are


@pytest.mark.parametrize("size", [1, 7, None])
def test_a_stream_is_handed_on_byte_for_byte(
    mock: ScriptedEndpoint, queue: Queue, client: Client, library: str, size: int | None
):
    events = [
        b": ping\r\n\r\n",
        chunk("Gr\u00fc\u00dfe\u2028 "),
        b"data: {no json\n\n",
        chunk(finish_reason="stop"),
        "[DONE]",
    ]
    answer = sse(*events, line_end="\r\n")
    mock.always(answer if size is None else answer.dripped(size))
    with httpx2.Client() as plain_client, opened(plain_client, mock) as response:
        expected = b"".join(response.iter_raw())
    with opened(client(queue(), library=library), mock) as response:
        assert b"".join(response.iter_raw()) == expected
        assert response.headers["content-type"] == "text/event-stream"


def test_text_arrives_before_the_stream_ends(mock: ScriptedEndpoint, queue: Queue, client: Client):
    gate = Gate()
    mock.reply(stream("first ", gate, "second"))
    with opened(client(queue()), mock) as response:
        chunks = response.iter_bytes()
        assert b"first" in next(chunks)
        gate.open()
        assert b"second" in b"".join(chunks)


def test_the_slot_is_held_until_the_servers_last_byte(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    answer, gate = hundred()
    mock.reply(answer)
    with opened(client(session), mock) as response:
        assert session.snapshot().in_flight == 1
        gate.open()
        response.read()
    assert session.snapshot().in_flight == 0


def test_the_endpoints_own_count_is_what_is_charged(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue()
    mock.reply(stream("a ", "b", usage=(40, 7)))
    with opened(client(session), mock) as response:
        response.read()
    assert session.snapshot().tokens == 47


def test_openais_clients_see_what_they_would_see_without_the_queue(
    mock: ScriptedEndpoint, queue: Queue, client: Client, library: str
):
    mock.always(sse({**chunk(), "choices": []}, chunk("one "), chunk("two"), chunk(finish_reason="stop"), "[DONE]"))
    session = queue()
    ours = openai.OpenAI(base_url=mock.base_url, api_key="k", http_client=client(session, library=library))
    theirs = openai.OpenAI(base_url=mock.base_url, api_key="k")
    with theirs:
        seen = [
            [part.model_dump() for part in sdk.chat.completions.create(model="m", messages=[], stream=True)]
            for sdk in (ours, theirs)
        ]
    assert seen[0] == seen[1]
    assert mock.requests[0].body == mock.requests[1].body


# ----------------------------------------------------------------------------------------------------- leaving early


def by_break(response: Any) -> None:
    for at, _ in enumerate(response.iter_lines()):
        if at == 4:
            break


def by_close(response: Any) -> None:
    lines = response.iter_lines()
    for _ in range(3):
        next(lines)
    response.close()


def by_error(response: Any) -> None:
    with contextlib.suppress(ZeroDivisionError):
        for at, _ in enumerate(response.iter_lines()):
            _ = 1 / (4 - at)


def by_forgetting(response: Any) -> None:
    next(response.iter_raw())


@pytest.mark.parametrize("leave", [by_break, by_close, by_error, by_forgetting])
def test_whoever_leaves_a_stream_frees_its_slot_and_pays_for_what_came(
    mock: ScriptedEndpoint, queue: Queue, client: Client, leave: Callable[[Any], None]
):
    session = queue(concurrency=1)
    made = client(session)
    answer, gate = hundred()
    mock.reply(answer)
    request = made.build_request("POST", f"{mock.base_url}/chat/completions", json=body())
    response = made.send(request, stream=True)
    leave(response)
    del response
    gc.collect()
    mock.wait_for(disconnects=1)
    books = settled(session)
    assert (books.cancelled, books.completed) == (1, 0)
    account = books.tenants["notebook"]
    assert account.tokens >= 3
    assert made.post(f"{mock.base_url}/chat/completions", json=chat_body()).status_code == 200
    gate.open()


async def aborted(client: Any, url: str, got: asyncio.Event) -> None:
    async with client.stream("POST", url, json=body()) as response:
        async for _ in response.aiter_lines():
            got.set()


async def by_cancel(client: Any, url: str) -> None:
    got = asyncio.Event()
    task = asyncio.create_task(aborted(client, url, got))
    await got.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def by_timeout(client: Any, url: str) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.3):
            await aborted(client, url, asyncio.Event())


async def by_async_break(client: Any, url: str) -> None:
    async with client.stream("POST", url, json=body()) as response:
        async for _ in response.aiter_lines():
            break


async def by_aclose_while_paused(client: Any, url: str) -> None:
    response = await client.send(client.build_request("POST", url, json=body()), stream=True)

    async def lines() -> AsyncIterator[str]:
        async for line in response.aiter_lines():
            yield line

    reading = lines()
    await anext(reading)
    await reading.aclose()
    await response.aclose()


async def by_async_error(client: Any, url: str) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async with client.stream("POST", url, json=body()) as response:
            async for _ in response.aiter_lines():
                _ = 1 / 0


@pytest.mark.parametrize("leave", [by_cancel, by_timeout, by_async_break, by_aclose_while_paused, by_async_error])
def test_whoever_leaves_a_stream_in_a_task_frees_its_slot(
    mock: ScriptedEndpoint, queue: Queue, library: str, leave: Callable[..., Any]
):
    session = queue(concurrency=1)
    answer, gate = hundred()
    mock.reply(answer)
    url = f"{mock.base_url}/chat/completions"

    async def main() -> int:
        async with async_client(session, library=library) as client:
            await leave(client, url)
            await mock.reached(disconnects=1)
            return (await client.post(url, json=chat_body())).status_code

    assert run(main()) == 200
    books = settled(session)
    assert (books.cancelled, books.completed) == (1, 1)
    gate.open()


@pytest.mark.parametrize("way", ["break", "close"])
def test_openais_streams_can_be_left_early(mock: ScriptedEndpoint, queue: Queue, client: Client, way: str):
    session = queue(concurrency=1)
    sdk = openai.OpenAI(base_url=mock.base_url, api_key="k", http_client=client(session))
    answer, gate = hundred()
    mock.reply(answer)
    events = sdk.chat.completions.create(model="m", messages=[], stream=True)
    for _ in events:
        break
    if way == "close":
        events.close()
    del events
    gc.collect()
    mock.wait_for(disconnects=1)
    assert settled(session).cancelled == 1
    gate.open()


def test_openais_async_streams_can_be_left_early(mock: ScriptedEndpoint, queue: Queue):
    session = queue(concurrency=1)
    answer, gate = hundred()
    mock.reply(answer)

    async def main() -> None:
        async with async_client(session) as client:
            sdk = openai.AsyncOpenAI(base_url=mock.base_url, api_key="k", http_client=client)
            events = await sdk.chat.completions.create(model="m", messages=[], stream=True)
            async for _ in events:
                break
            await events.close()
            await mock.reached(disconnects=1)

    run(main())
    assert settled(session).cancelled == 1
    gate.open()


def test_a_stream_that_is_closed_after_its_last_word_is_a_success(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    gate = Gate()
    mock.reply(sse(chunk("x"), chunk(finish_reason="stop"), "[DONE]", gate))
    with opened(client(session), mock) as response:
        for line in response.iter_lines():
            if "[DONE]" in line:
                break
    gate.open()
    books = settled(session)
    assert (books.completed, books.failed, books.cancelled) == (1, 0, 0)
    assert mock.disconnects == 0


# ------------------------------------------------------------------------------------------------- opened, never read


def test_streams_that_nobody_reads_cost_nobody_a_slot(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=2)
    sdk = openai.OpenAI(base_url=mock.base_url, api_key="k", http_client=client(session))
    mock.reply(stream(*WORDS), times=2)
    shelf = [sdk.chat.completions.create(model="m", messages=[], stream=True) for _ in range(2)]
    assert sdk.chat.completions.create(model="m", messages=[]).choices
    assert [len(list(events)) for events in shelf] == [101, 101]


# ------------------------------------------------------------------------------------------------------- bad endings


def test_an_error_that_comes_first_means_later(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    mock.reply(sse({"error": {"message": "server busy", "code": 503}}), chat("at last"))
    with opened(client(session), mock) as response:
        assert "at" in response.read().decode()
        assert response.extensions["fairq"].attempts == 2
    books = session.snapshot()
    assert (books.retries, books.refusals_by_endpoint, books.completed, books.failed) == (1, 1, 1, 0)


def test_an_error_that_comes_first_and_means_no_is_handed_on(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    mock.reply(sse({"error": {"message": "no such model", "type": "invalid_request_error"}}))
    with opened(client(session), mock) as response:
        assert "no such model" in response.read().decode()
    books = session.snapshot()
    assert (books.retries, books.completed, books.failed) == (0, 1, 1)


def test_an_error_after_some_chunks_is_a_failure_that_keeps_what_came(
    mock: ScriptedEndpoint, queue: Queue, client: Client
):
    session = queue(concurrency=1)
    mock.reply(sse(*(chunk(word) for word in WORDS[:5]), {"error": {"message": "boom"}}))
    with opened(client(session), mock) as response:
        assert all(word in response.read().decode() for word in WORDS[:5])
    account = response.extensions["fairq"]
    assert account.receipt.outcome == "failed"
    assert account.receipt.output_tokens >= 5
    assert not account.receipt.exact
    assert session.snapshot().failed == 1


def test_a_connection_lost_after_some_chunks_is_raised_after_what_came(
    mock: ScriptedEndpoint, queue: Queue, client: Client, library: str
):
    session = queue(concurrency=1)
    mock.reply(stream(*WORDS).cut(5))
    made = client(session, library=library)
    seen: list[bytes] = []
    with opened(made, mock) as response, pytest.raises(Exception, match=r"(?i)closed") as caught:
        seen.extend(response.iter_raw())
    assert type(caught.value).__name__ == "RemoteProtocolError"
    assert type(caught.value).__module__ == library
    assert caught.value.request is response.request
    assert b"w4 " in b"".join(seen)
    assert response.extensions["fairq"].receipt.outcome == "truncated"


def test_a_connection_that_ends_before_the_answer_is_raised(
    mock: ScriptedEndpoint, queue: Queue, client: Client, library: str
):
    session = queue(concurrency=1)
    mock.reply(stream("a").cut(0), chat().cut(0))
    made = client(session, library=library)
    for more in ({"stream": True}, {}):
        with pytest.raises(Exception, match=r"(?i)closed") as caught:
            made.post(f"{mock.base_url}/chat/completions", json=chat_body(**more))
        assert type(caught.value).__module__ == library
    assert settled(session).failed == 2


def test_a_stream_without_its_end_is_truncated(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    mock.reply(stream("a ", "b", finish_reason=None, done=False))
    with opened(client(session), mock) as response:
        response.read()
    assert response.extensions["fairq"].receipt.outcome == "truncated"


def test_an_answer_that_is_cut_at_its_length_is_done(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    mock.reply(stream("a ", "b", finish_reason="length"))
    with opened(client(session), mock) as response:
        response.read()
    account = response.extensions["fairq"]
    assert (account.receipt.outcome, account.finish_reason) == ("ok", "length")


def test_an_error_status_for_a_stream_is_handed_over_whole(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    mock.reply(error(500, "boom"))
    with opened(client(session), mock) as response:
        assert response.status_code == 500
        assert "boom" in response.read().decode()
    books = session.snapshot()
    assert (books.failed, books.tokens) == (1, 0)
