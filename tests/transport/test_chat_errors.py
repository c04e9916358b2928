"""Asking without an SDK: every error in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairq_ipy.core.model import Backpressure, Budget, TenantPolicy
from fairq_ipy.errors import (
    BudgetExceededError,
    ConfigurationError,
    StreamReclaimedError,
    UnknownTenantError,
)
from fairq_ipy.session import Session
from fairq_ipy.testing import (
    Gate,
    ScriptedEndpoint,
    chunk,
    cut,
    endless,
    error,
    html,
    json_reply,
    raw,
    sse,
    stream,
)
from fairq_ipy.transport.chat import Answer

from .conftest import failure, settled

Queue = Callable[..., Session]
Ask = Callable[..., Answer]


def test_a_404_names_what_was_tried(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    mock.always(error(404, "no such model"))
    problem = failure(asked, queue())
    assert f"POST {mock.base_url}/chat/completions answered 404: no such model" in str(problem)
    assert (problem.status, problem.body, problem.attempts) == (404, "no such model", 1)
    assert "want /v1" not in str(problem)
    assert "want /v1" in str(failure(asked, queue(base_url=mock.base_url.removesuffix("/v1"))))


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_says_where_it_comes_from(
    mock: ScriptedEndpoint, queue: Queue, asked: Ask, monkeypatch: pytest.MonkeyPatch, status: int
):
    mock.always(error(status, "bad key"))
    monkeypatch.setenv("TEAM_KEY", "sk-secret")
    problem = failure(asked, queue(api_key_env="TEAM_KEY"))
    assert "the key in TEAM_KEY)" in str(problem)
    assert "sk-secret" not in str(problem)
    monkeypatch.delenv("TEAM_KEY")
    assert "TEAM_KEY, which is not set" in str(failure(asked, queue(api_key_env="TEAM_KEY")))
    assert "no endpoint.api_key_env" in str(failure(asked, queue()))


def test_an_endpoint_that_goes_on_refusing_says_how_often(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    mock.always(error(429, "slow down", retry_after="0.01"))
    problem = failure(asked, queue(backpressure=Backpressure(retries=2, base=0.01, max_hold=0.02)))
    assert (problem.status, problem.attempts, problem.body, problem.retry_after) == (429, 3, "slow down", 0.01)
    assert "sent 3 times" in str(problem)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            html("<html><head><title>x</title></head><body><h1>Welcome</h1></body></html>", status=200),
            "text/html: Welcome",
        ),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), "an empty body"),
        (json_reply({"hello": "world"}), "no chat completion"),
        (json_reply([1, 2]), "no chat completion"),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5\r\n\r\n{nope"), "{nope"),
    ],
)
def test_a_200_that_is_no_answer_is_said(mock: ScriptedEndpoint, queue: Queue, asked: Ask, reply: Any, said: str):
    mock.reply(reply)
    problem = failure(asked, queue())
    assert said in str(problem)
    assert problem.status == 200


def test_a_long_page_is_cut(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    mock.reply(html("<p>" + "x" * 200_000, status=500))
    problem = failure(asked, queue())
    assert len(str(problem)) < 1000
    assert "server's own trouble" in str(problem)


def test_an_error_in_the_middle_keeps_what_came(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    mock.reply(sse(chunk("one "), chunk("two"), {"error": {"message": "out of memory"}}))
    problem = failure(asked, queue())
    assert (problem.partial, problem.body, problem.status) == ("one two", "out of memory", 200)
    assert "after 7 characters" in str(problem)


def test_so_does_a_connection_that_is_lost(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    mock.reply(stream("one ", "two ", "three").cut(2))
    problem = failure(asked, queue())
    assert problem.partial == "one two "
    assert "in the middle of the answer" in str(problem)


def test_so_does_a_stream_that_ends_without_saying_so(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    mock.reply(stream("one ", "two", finish_reason=None, done=False))
    assert failure(asked, queue()).partial == "one two"


def test_an_endpoint_that_is_out_of_reach_is_said(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    problem = failure(asked, queue(base_url="http://127.0.0.1:9/v1"))
    assert "http://127.0.0.1:9/v1/chat/completions" in str(problem)
    assert "is the server running" in str(problem)
    assert problem.status is None
    mock.reply(cut())
    assert failure(asked, queue()).status is None


def test_refusals_are_raised_as_themselves(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    with pytest.raises(BudgetExceededError):
        asked(queue(defaults=TenantPolicy(budgets=(Budget("requests", 0),))), "x")
    with pytest.raises(UnknownTenantError):
        asked(queue(unknown_tenants="refuse"), "x", tenant="stranger")
    with pytest.raises(ConfigurationError, match="nothing to ask"):
        asked(queue(), "  \n")
    with pytest.raises(ConfigurationError, match="nothing to ask"):
        asked(queue(), [])
    with pytest.raises(ConfigurationError, match="priority"):
        asked(queue(), "x", priority=50)
    assert mock.arrivals == 0


def test_a_server_that_falls_silent_is_said(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    mock.always(endless("one ", every=0.01))
    with pytest.raises(StreamReclaimedError, match="idle_stream"):
        asked(queue(concurrency=1, idle_stream=0.1), "x")


def test_a_key_that_cannot_be_sent_is_said_without_it(queue: Queue, asked: Ask, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TEAM_KEY", "sk-secret\r\n")
    with pytest.raises(ConfigurationError, match="TEAM_KEY") as caught:
        asked(queue(api_key_env="TEAM_KEY"), "x")
    assert "sk-secret" not in str(caught.value)


def test_what_the_callers_own_function_raises_is_raised_and_hangs_up(mock: ScriptedEndpoint, queue: Queue, asked: Ask):
    session = queue(concurrency=1)
    gate = Gate()
    mock.reply(stream("one ", gate, "two"))

    def fail(_: str) -> None:
        raise TimeoutError("my own")

    with pytest.raises(TimeoutError, match="my own"):
        asked(session, "x", on_text=fail)
    assert settled(session).cancelled == 1
    gate.open()
