"""Calls by clients that nobody told of the queue: they wait in it like all others, and see what they would see."""

from __future__ import annotations

import gc
import gzip
import json
from dataclasses import replace

import pytest

from fairq_ipy.core.model import Backpressure
from fairq_ipy.session import Session
from fairq_ipy.testing import Gate, ScriptedEndpoint, chat, error, json_reply, raw, stream

from ..conftest import chat_body, settled  # noqa: TID252 - the tests of a room are no installed package
from .conftest import ON_LOOPS, ON_THREADS, Guarded, OnLoop, Sender, in_threads


def queued(session: Session) -> int:
    return sum(each.calls for each in session.guard.seen() if each.sighting.fate == "queued")


def waits(session: Session, calls: int) -> bool:
    """Return whether so many calls come to wait."""
    return any(session.snapshot().queued == calls for _ in range(5000))


# -------------------------------------------------------------------------------------------------------------- slots


def test_the_endpoint_never_sees_two_calls_at_once_and_each_is_counted_once(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(concurrency=1)
    mock.hold()
    with in_threads(lambda: sender.post(url, chat_body()), 3) as calls:
        mock.wait_for(held=1)
        assert waits(session, 2)
        mock.release()
    assert [call.result().status for call in calls] == [200, 200, 200]
    assert (mock.arrivals, mock.max_in_flight) == (3, 1)
    books = settled(session)
    assert (books.submitted, books.completed, queued(session)) == (3, 3, 3)
    assert {each.sighting.library for each in session.guard.seen()} == {sender.library}


def test_a_stream_keeps_its_slot_until_it_is_read(sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str):
    session = guarded(concurrency=1)
    gate = Gate()
    mock.reply(stream("one ", gate, "two"), chat("next"))
    opened = sender.open(url, chat_body(stream=True))
    first = opened.next()
    assert b"one " in first
    assert session.snapshot().in_flight == 1
    with in_threads(lambda: sender.post(url, chat_body()), 1) as calls:
        assert waits(session, 1)
        gate.open()
        assert b"two" in opened.rest()
    assert calls[0].result().status == 200
    assert mock.max_in_flight == 1
    assert settled(session).completed == 2


def test_a_stream_that_is_closed_early_frees_its_slot_and_hangs_up(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(concurrency=1)
    mock.reply(stream("one ", Gate(), "two"))
    opened = sender.open(url, chat_body(stream=True))
    opened.next()
    opened.close()
    mock.wait_for(disconnects=1)
    assert settled(session).cancelled == 1
    assert sender.post(url, chat_body()).status == 200


def test_a_stream_that_is_dropped_frees_its_slot(sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str):
    session = guarded(concurrency=1)
    mock.reply(stream("one ", "two"))
    opened = sender.open(url, chat_body(stream=True))
    del opened
    gc.collect()
    settled(session)


def test_a_stream_passes_byte_by_byte_and_its_tokens_are_counted(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(concurrency=1)
    reply = stream("one ", "two ", "three", usage=(11, 7))
    mock.reply(reply.dripped(7))
    got = sender.open(url, chat_body(stream=True)).rest()
    assert got == b"".join(piece for piece in reply.make(mock.requests[0]).pieces if isinstance(piece, bytes))
    books = settled(session)
    assert (books.tokens, books.completed, books.failed) == (18, 1, 0)


def test_a_compressed_answer_is_what_it_was_and_is_metered(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(concurrency=1)
    content = {"choices": [{"message": {"content": "x" * 500}, "finish_reason": "stop"}]}
    content["usage"] = {"prompt_tokens": 11, "completion_tokens": 7}
    body = gzip.compress(json.dumps(content).encode())
    head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length:"
    mock.reply(raw(f"{head} {len(body)}\r\n\r\n".encode() + body))
    assert json.loads(sender.post(url, chat_body()).body) == content
    books = settled(session)
    assert (books.tokens, books.failed) == (18, 0)


# --------------------------------------------------------------------------------------------------------- not queued


def test_what_is_no_model_call_goes_straight_on(sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str):
    session = guarded(concurrency=1)
    session.pause()
    assert sender.get(f"{mock.base_url}/models") == 200
    assert sender.get(url) == 200
    assert sender.post(f"{mock.base_url}/files", {}).status == 200
    assert (session.snapshot().submitted, mock.arrivals) == (0, 3)


def test_another_host_is_left_alone(sender: Sender, guarded: Guarded, mock: ScriptedEndpoint):
    session = guarded(concurrency=1)
    with ScriptedEndpoint() as other:
        assert sender.post(f"{other.base_url}/chat/completions", chat_body()).status == 200
    assert (session.snapshot().submitted, session.guard.seen()) == (0, ())


def test_a_redirect_within_the_endpoint_is_no_second_call(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(concurrency=1)
    mock.reply(json_reply({}, status=307).with_headers(location="/v1/chat/completions/"), chat("there"))
    got = sender.post(url, chat_body("where?"))
    assert (got.status, json.loads(got.body)["choices"][0]["message"]["content"]) == (200, "there")
    assert [request.path for request in mock.requests] == ["/v1/chat/completions", "/v1/chat/completions/"]
    assert mock.requests[1].prompt == "where?"
    assert (settled(session).submitted, queued(session)) == (1, 1)


def test_inside_a_permit_a_call_uses_its_slot(sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str):
    session = guarded(concurrency=1)
    if isinstance(sender, OnLoop):

        async def ask() -> int:
            async with session.permit():
                return (await sender.apost(url, chat_body())).status

        assert sender.do(ask()) == 200
    else:
        with session.permit():
            assert sender.post(url, chat_body()).status == 200
    assert settled(session).submitted == 1


def test_this_machine_by_any_of_its_names_is_the_same_endpoint(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(concurrency=1)
    assert sender.post(url.replace("127.0.0.1", "localhost"), chat_body()).status == 200
    assert settled(session).submitted == 1


# ---------------------------------------------------------------------------------------------------------- who asks


def test_a_header_says_who_asks_and_is_not_sent_on(sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str):
    session = guarded(concurrency=1)
    sender.post(url, chat_body(), **{"X-Fairq-Tenant": "logs", "x-fairq-priority": "batch", "x-other": "1"})
    sent = mock.requests[0].headers
    assert not [name for name in sent if name.startswith("x-fairq")]
    assert sent["x-other"] == "1"
    books = settled(session)
    assert {name: row.submitted for name, row in books.tenants.items() if row.submitted} == {"logs": 1}


def test_the_call_itself_is_sent_as_it_is(sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str):
    sender.post(url, chat_body("ä ☃"), authorization="Bearer key")
    guarded(concurrency=1)
    sender.post(url, chat_body("ä ☃"), authorization="Bearer key")
    bare, routed = mock.requests
    assert (bare.raw_headers, bare.body, bare.path) == (routed.raw_headers, routed.body, routed.path)


# -------------------------------------------------------------------------------------------------------- backpressure


def test_a_busy_endpoint_is_asked_again_by_the_queue(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(concurrency=1)
    mock.reply(error(429), error(503, "server busy, maximum pending requests"), chat("at last"))
    got = sender.post(url, chat_body("again?"))
    assert (got.status, json.loads(got.body)["choices"][0]["message"]["content"]) == (200, "at last")
    assert [request.prompt for request in mock.requests] == ["again?"] * 3
    books = settled(session)
    assert (books.submitted, books.refusals_by_endpoint, books.retries) == (1, 2, 2)


def test_what_is_refused_for_good_is_handed_out_as_the_last_word(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(concurrency=1, backpressure=Backpressure(retries=2, base=0.01))
    mock.always(error(429, "slow down"))
    got = sender.post(url, chat_body())
    assert mock.arrivals == 3
    assert got.status == 429
    assert json.loads(got.body)["error"]["message"] == "slow down"
    assert got.headers["x-should-retry"] == "false"
    assert settled(session).rejected == 1


def test_a_quota_that_is_used_up_is_told_at_once(sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str):
    session = guarded(concurrency=1)
    mock.always(error(429, "pay first", code="insufficient_quota"))
    got = sender.post(url, chat_body())
    assert (mock.arrivals, got.status) == (1, 429)
    assert got.headers["x-should-retry"] == "false"
    assert session.snapshot().held_until is None


@pytest.mark.parametrize("status", [400, 401, 404, 500])
def test_other_errors_are_the_callers(sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str, status: int):
    session = guarded(concurrency=1)
    mock.reply(error(status, "no"))
    got = sender.post(url, chat_body())
    assert (got.status, json.loads(got.body)["error"]["message"]) == (status, "no")
    books = settled(session)
    assert (books.failed, books.tokens, mock.arrivals) == (1, 0, 1)


def test_a_refusal_of_the_queue_is_an_answer_of_the_librarys_own_kind(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    usual = sender.post(url, chat_body()).kind
    session = guarded(concurrency=1, queue=0)
    mock.reply(stream("one ", Gate(), "two"))
    opened = sender.open(url, chat_body(stream=True))
    with in_threads(lambda: sender.post(url, chat_body()), 1) as calls:
        pass
    got = calls[0].result()
    assert (got.status, got.kind) == (429, usual)
    assert got.headers["x-fairq-reason"] == "queue_full"
    assert got.headers["x-should-retry"] == "false"
    assert json.loads(got.body)["error"]["code"] == "queue_full"
    opened.close()
    assert settled(session).rejected == 1
    assert mock.arrivals == 2


@pytest.mark.parametrize("sender", ON_THREADS, indirect=True)  # each call of the others is a task of its own here
def test_a_call_under_the_callers_own_open_stream_is_told_that_it_would_wait_for_itself(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(concurrency=1)
    mock.reply(stream("one ", Gate(), "two"))
    opened = sender.open(url, chat_body(stream=True))
    assert sender.post(url, chat_body()).headers["x-fairq-reason"] == "would_deadlock"
    opened.close()
    settled(session)


def test_errors_of_the_network_are_the_librarys_own(sender: Sender, guarded: Guarded, mock: ScriptedEndpoint):
    with ScriptedEndpoint() as gone:
        dead = gone.base_url
    session = guarded(concurrency=1, base_url=dead)
    with pytest.raises(sender.error):
        sender.post(f"{dead}/chat/completions", chat_body())
    books = settled(session)
    assert (books.submitted, books.tokens) == (1, 0)


def test_an_answer_that_breaks_off_is_the_librarys_own_error(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(concurrency=1)
    mock.reply(stream("one ", "two ", "three").cut(1))
    opened = sender.open(url, chat_body(stream=True))
    with pytest.raises((sender.error, OSError)):
        opened.rest()
    opened.close()
    assert settled(session).failed == 1


# ------------------------------------------------------------------------------------------------------------- leaving


@pytest.mark.parametrize("sender", ON_LOOPS, indirect=True)
def test_a_call_that_is_cancelled_while_it_waits_is_never_sent(
    sender: OnLoop, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(concurrency=1)
    mock.hold()
    first, second = (sender.start(sender.apost(url, chat_body())) for _ in range(2))
    mock.wait_for(held=1)
    assert waits(session, 1)
    second.cancel()
    assert waits(session, 0)
    mock.release()
    assert first.result(10).status == 200
    assert mock.arrivals == 1
    assert settled(session).cancelled == 1


def test_whoever_waits_when_the_session_is_closed_is_told_so(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(concurrency=1)
    mock.hold()
    with in_threads(lambda: sender.post(url, chat_body()), 2) as calls:
        mock.wait_for(held=1)
        assert waits(session, 1)
        session.close()
        mock.release()
    told = {call.result().headers.get("x-fairq-reason") for call in calls}
    assert told == {None, "shut_down"}
    assert sender.post(url, chat_body()).status == 200
    assert mock.arrivals == 2


def test_an_answer_outlives_the_session_in_which_it_was_asked_for(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(concurrency=1)
    gate = Gate()
    mock.reply(stream("one ", gate, "two"))
    opened = sender.open(url, chat_body(stream=True))
    opened.next()
    session.close()
    gate.open()
    assert b"two" in opened.rest()


def test_a_policy_that_names_another_endpoint_is_followed_and_clients_of_the_old_one_stay_in_the_queue(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded(concurrency=1)
    with ScriptedEndpoint() as other:
        settings = session.settings
        moved = replace(settings, endpoint=replace(settings.endpoint, base_url=other.base_url))
        session._adopt(moved, by_hand=True)
        sender.post(f"{other.base_url}/chat/completions", chat_body())
        sender.post(url, chat_body())
        assert (settled(session).submitted, other.arrivals, mock.arrivals) == (2, 1, 1)
