"""Asking without an SDK: the answer as it comes, the wait before it, and leaving."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fairq_ipy.core.messages import Place
from fairq_ipy.errors import (
    QueueTimeoutError,
)
from fairq_ipy.session import Session
from fairq_ipy.testing import (
    Gate,
    ScriptedEndpoint,
    chat,
    chunk,
    error,
    json_reply,
    plain,
    sse,
    stream,
)
from fairq_ipy.transport import waiting
from fairq_ipy.transport.chat import Answer, aask, ask

from .conftest import failure, run, settled

Queue = Callable[..., Session]
Ask = Callable[..., Answer]


# ---------------------------------------------------------------------------------------------------------- the answer


@pytest.mark.parametrize("streaming", [True, False])
def test_an_answer_has_its_text_and_what_it_cost(mock: ScriptedEndpoint, queue: Queue, asked: Ask, streaming: bool):
    mock.reply(stream("one ", "two", usage=(9, 2)) if streaming else plain("one two", usage=(9, 2)))
    answer = asked(queue(model="demo-small"), "count", stream=streaming, tenant="logs")
    assert (answer.text, str(answer), answer._repr_markdown_()) == ("one two", "one two", "one two")
    assert answer.usage == (9, 2, True)
    assert (answer.finish_reason, answer.model, answer.ticket) == ("stop", "demo-small", 1)
    assert answer.service_s > 0
    assert answer.wait_s >= 0
    assert answer.messages == ({"role": "user", "content": "count"}, {"role": "assistant", "content": "one two"})
    assert mock.requests[0].json["stream"] is streaming


def test_text_is_told_as_it_comes_on_the_callers_thread(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    told: list[tuple[str, int]] = []
    mock.reply(stream("one ", "two ", "", "three"))
    asked(queue(), "count", on_text=lambda text: told.append((text, threading.get_ident())))
    assert told == [("one ", threading.get_ident()), ("two ", threading.get_ident()), ("three", threading.get_ident())]


def test_a_question_is_sent_as_it_was_put(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    session = queue(model="of-policy")
    asked(session, "hi", system="be brief", max_tokens=0, temperature=0.0, model="mine")
    asked(session, "hi")
    assert mock.requests[0].json == {
        "model": "mine",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
        "stream": True,
        "max_tokens": 0,
        "temperature": 0.0,
    }
    assert mock.requests[1].json == {
        "model": "of-policy",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
    }
    assert mock.requests[0].path == "/v1/chat/completions"


def test_a_conversation_goes_on_from_an_answers_messages(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    session = queue()
    first = asked(session, "one", system="s")
    asked(session, [*first.messages, {"role": "user", "content": "two"}], system="other")
    roles = [(message["role"], message["content"]) for message in mock.requests[1].json["messages"]]
    assert roles == [("system", "other"), ("user", "one"), ("assistant", "one"), ("user", "two")]


def test_the_key_is_read_from_its_variable(
    mock: ScriptedEndpoint, queue: Queue, asked: Ask, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TEAM_KEY", "sk-7")
    asked(queue(api_key_env="TEAM_KEY"), "hi")
    assert mock.requests[0].headers["authorization"] == "Bearer sk-7"


def test_an_answer_in_any_shape_of_text_is_read(mock: ScriptedEndpoint, queue: Queue):
    session = queue()
    parts = [{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]
    refusal = {"choices": [{"message": {"content": None, "refusal": "no"}, "finish_reason": "stop"}]}
    mock.reply(
        json_reply({"choices": [{"message": {"content": parts}}]}), json_reply(refusal), plain(None, tool_calls=[{}])
    )
    assert [ask(session, "x").text for _ in range(3)] == ["in parts", "no", ""]


def test_lines_of_the_answer_are_only_cut_where_the_standard_says(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    text = "a\u2028b\x85c\x0bd"
    mock.reply(sse(chunk(text), chunk(finish_reason="stop"), "[DONE]", line_end="\r\n").dripped(3))
    assert asked(queue(), "x").text == text


# --------------------------------------------------------------------------------------------------- what it asks for


def test_usage_is_asked_for_where_the_policy_says_so(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    mock.always(chat("hi", usage=(9, 2)))
    assert asked(queue(stream_usage=True), "x").usage == (9, 2, True)
    assert mock.requests[0].json["stream_options"] == {"include_usage": True}
    assert not asked(queue(), "x").usage.exact
    assert "stream_options" not in mock.requests[1].json


def test_an_endpoint_that_knows_no_usage_or_no_streams_is_asked_for_less(
    mock: ScriptedEndpoint, queue: Queue, asked: Ask
):
    mock.reply(error(422, "extra field: stream_options"), error(400, "stream is not supported"), plain("whole"))
    assert asked(queue(stream_usage=True), "x").text == "whole"
    sent = [("stream_options" in request.json, request.json["stream"]) for request in mock.requests]
    assert sent == [(True, True), (False, True), (False, False)]


# ------------------------------------------------------------------------------------------------------------ waiting


@contextlib.contextmanager
def busy(session: Session, mock: ScriptedEndpoint) -> Any:
    """Keep the only slot busy inside the block."""
    mock.hold()
    other = threading.Thread(target=ask, args=(session, "other"))
    other.start()
    mock.wait_for(held=1)
    try:
        yield
    finally:
        mock.release()
        other.join()


def test_the_place_is_shown_while_a_call_waits_and_its_end_once(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    session = queue(concurrency=1)
    places: list[Place | None] = []

    def show(place: Place | None) -> None:
        places.append(place)
        if len(places) == 2:
            mock.release()

    with busy(session, mock):
        assert asked(session, "mine", on_place=show).text == "mine"
    assert [None if place is None else place.why for place in places[:2]] == ["slot", "slot"]
    assert places[-1] is None
    assert places.count(None) == 1


def test_who_does_not_wait_is_shown_no_place(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    places: list[Place | None] = []
    asked(queue(), "x", on_place=places.append)
    assert places == []


def test_what_showing_the_place_raises_leaves_the_queue(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    session = queue(concurrency=1)
    with busy(session, mock), pytest.raises(ZeroDivisionError):
        asked(session, "x", on_place=lambda _: 1 / 0)
    assert settled(session).cancelled == 1
    assert mock.arrivals == 1


@pytest.mark.parametrize("showing", [None, lambda _: None])
def test_a_timeout_counts_the_wait_and_who_was_not_sent_is_refused(
    mock: ScriptedEndpoint, queue: Queue, asked: Ask, showing: Any
):
    session = queue(concurrency=1)
    asked(session, "warm up")
    with busy(session, mock), pytest.raises(QueueTimeoutError) as caught:
        asked(session, "x", timeout=0.3, on_place=showing)
    assert caught.value.waited is not None
    assert [request.prompt for request in mock.requests] == ["warm up", "other"]
    books = settled(session)
    assert books.rejected + books.cancelled == 1


@pytest.mark.parametrize("showing", [None, lambda _: None])
def test_a_timeout_ends_an_answer_that_does_not_begin(mock: ScriptedEndpoint, queue: Queue, asked: Ask, showing: Any):
    session = queue(concurrency=1)
    asked(session, "warm up")
    mock.hold()
    problem = failure(asked, session, "x", timeout=0.7, on_place=showing)
    assert "within 0.7 s" in str(problem)
    mock.wait_for(disconnects=1)
    mock.release()


def test_a_timeout_ends_an_answer_that_does_not_end(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    session = queue(concurrency=1)
    gate = Gate()
    asked(session, "warm up")
    mock.reply(stream("one ", gate, "two"))
    problem = failure(asked, session, "x", timeout=0.7)
    assert problem.partial == "one "
    assert settled(session).cancelled == 1
    gate.open()


def test_the_policys_own_bound_holds_beside_a_longer_timeout(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    session = queue(concurrency=1, max_wait=0.1)
    with busy(session, mock), pytest.raises(QueueTimeoutError):
        asked(session, "x", timeout=30)


def test_a_queue_that_is_late_with_its_refusal_is_not_waited_for(
    mock: ScriptedEndpoint, queue: Queue, asked: Ask, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(waiting, "LATE", -29.8)
    session = queue(concurrency=1)
    asked(session, "warm up")
    with busy(session, mock), pytest.raises(QueueTimeoutError, match="was not sent"):
        asked(session, "x", timeout=30)
    assert settled(session).cancelled == 1


# --------------------------------------------------------------------------------------------------------- interrupts


def test_interrupts_at_random_moments_leave_nothing_behind(mock: ScriptedEndpoint, queue: Queue):
    session = queue(concurrency=1)
    mock.always(stream(*[f"w{number} " for number in range(20)]).dripped(200))
    other = threading.Thread(target=lambda: [ask(session, "other") for _ in range(5)])
    other.start()
    main = threading.main_thread().ident or 0
    interrupted = 0
    for number in range(40):
        timer = threading.Timer(0.0007 * number, signal.pthread_kill, (main, signal.SIGINT))
        try:
            timer.start()
            ask(session, "mine", on_place=lambda _: None)
            timer.join()
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            timer.cancel()
    other.join()
    books = settled(session)
    assert interrupted
    assert books.submitted == books.completed + books.cancelled + books.rejected
    assert ask(session, "still there").text


def test_a_cancelled_question_leaves_nothing_behind(mock: ScriptedEndpoint, queue: Queue):
    session = queue(concurrency=1)
    mock.hold()

    async def main() -> None:
        asking = [asyncio.create_task(aask(session, f"q{number}")) for number in range(3)]
        await mock.reached(held=1)
        for task in asking:
            task.cancel()
        results = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)

    run(main())
    mock.wait_for(disconnects=1)
    assert settled(session).cancelled == 3
    mock.release()
