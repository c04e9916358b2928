"""What an endpoint means by a refusal, and how ours are said."""

from __future__ import annotations

import json
import time
from email.utils import formatdate

import pytest

from fairq_ipy.errors import BudgetExceededError, QueueFullError, StreamReclaimedError
from fairq_ipy.transport.refusals import (
    READABLE,
    RawHeaders,
    busy,
    busy_inside,
    error_text,
    provider_text,
    retry_after,
    synthetic,
)

NOW = 1_800_000_000.0


def headers(**values: str) -> RawHeaders:
    return [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in values.items()]


def body(**error: object) -> bytes:
    return json.dumps({"error": error}).encode()


# ------------------------------------------------------------------------------------------------------- retry-after


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("2", 2.0),
        ("0", 0.0),
        ("1.5", 1.5),
        (" 7 ", 7.0),
        (".5", 0.5),
        ("20s", 20.0),
        ("3600", 3600.0),
        ("2, 5", 5.0),
        (formatdate(NOW + 30, usegmt=True), 30.0),
        ("Fri, 15 Jan 2027 08:00:30 -0000", 30.0),
        ("Fri, 15 Jan 2027 08:00:30", 30.0),
        ("Fri, 15 Jan 2027 09:00:30 +0100", 30.0),
        (formatdate(NOW - 30, usegmt=True), None),
        ("", None),
        ("abc", None),
        ("-5", None),
        ("nan", None),
        ("inf", None),
        ("1e3", None),
        ("\u0662", None),
        ("9" * 400, None),
        ("Fri, 99 Foo 2027 08:00:30 GMT", None),
        ("Fri, 15 Jan 999999999999 08:00:30 GMT", None),
    ],
)
def test_retry_after_is_read_or_left(value: str, wait: float | None) -> None:
    assert retry_after([(b"Retry-After", value.encode("utf-8"))], NOW) == wait


def test_a_date_without_a_zone_is_utc_wherever_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert retry_after(headers(retry_after="Fri, 15 Jan 2027 08:00:30"), NOW) == 30.0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_milliseconds_come_first_and_nonsense_in_them_is_passed_over() -> None:
    assert retry_after(headers(retry_after_ms="250", retry_after="9"), NOW) == 0.25
    assert retry_after(headers(retry_after_ms="soon", retry_after="9"), NOW) == 9.0


def test_of_two_headers_the_longer_wait_holds() -> None:
    assert retry_after([(b"retry-after", b"1"), (b"retry-after", b"4"), (b"retry-after", b"x")], NOW) == 4.0


def test_what_a_proxy_passes_on_under_its_own_name_is_read() -> None:
    assert retry_after([(b"llm_provider-retry-after", b"60")], NOW) == 60.0


def test_without_a_header_there_is_no_wait() -> None:
    assert retry_after([], NOW) is None


# -------------------------------------------------------------------------------------------------------------- busy


@pytest.mark.parametrize(
    ("status", "text", "later"),
    [
        (429, b"<html>429 Too Many Requests</html>", True),
        (429, b"", True),
        (429, body(message="slow down", code="rate_limit_exceeded"), True),
        (
            429,
            body(message="You exceeded your current quota", type="insufficient_quota", code="insufficient_quota"),
            False,
        ),
        (429, body(message="x", code=None, type="insufficient_quota"), False),
        (429, b'[{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}]', True),
        (503, b"<html><h1>503 Service Temporarily Unavailable</h1></html>", True),
        (503, body(message="server busy, maximum pending requests exceeded"), True),
        (503, body(message="Loading model", type="unavailable_error", code=503), True),
        (503, b"", True),
        (503, b"no healthy upstream", False),
        (529, body(type="overloaded_error", message="Overloaded"), True),
        (500, b"busy", False),
        (400, body(message="too many tokens"), False),
        (401, body(message="bad key"), False),
        (404, b"", False),
    ],
)
def test_later_is_told_from_no(status: int, text: bytes, *, later: bool) -> None:
    assert busy(status, [], text) is later


def test_a_503_that_names_a_time_means_later() -> None:
    assert busy(503, headers(retry_after="3"), b"no healthy upstream")


@pytest.mark.parametrize(
    ("error", "later"),
    [
        ({"code": 429, "message": "x"}, True),
        ({"type": "overloaded_error", "message": "Overloaded"}, True),
        ({"type": "error", "error": {"type": "overloaded_error"}}, True),
        ({"message": "The server is busy"}, True),
        ({"message": "Server overloaded", "type": "server_error"}, True),
        ("rate_limit_exceeded", True),
        ({"message": "retry with less", "type": "invalid_request_error"}, False),
        ({"code": "insufficient_quota", "type": "rate_limit_error"}, False),
        ({"message": "CUDA error", "type": "server_error"}, False),
        (True, False),
        (None, False),
    ],
)
def test_an_error_inside_an_answer_is_told_likewise(error: object, *, later: bool) -> None:
    assert busy_inside(error) is later


# ----------------------------------------------------------------------------------------------------- readable text


@pytest.mark.parametrize(
    ("text", "kind", "readable"),
    [
        (body(message="No such model"), "application/json", "No such model"),
        (b'{"error": "flat"}', "application/json", "flat"),
        (b'{"detail": [{"msg": "one"}, {"msg": "two"}]}', "application/json", "one; two"),
        (b'{"message": "top"}', "application/json", "top"),
        (
            b"<html><head><title>502</title></head><body><h1>Bad &amp; gone</h1><hr>nginx</body></html>",
            "text/html",
            "Bad & gone nginx",
        ),
        (
            b"<html><head><title>Only a title</title></head><body><script>x<y</script></body></html>",
            "text/html",
            "Only a title",
        ),
        (b"plain\n  text", "text/plain", "plain text"),
        (b"\xff\xfe", "", "\ufffd\ufffd"),
        (b"", "", ""),
    ],
)
def test_a_person_can_read_what_the_provider_says(text: bytes, kind: str, readable: str) -> None:
    assert provider_text(text, kind) == readable


def test_a_long_text_is_cut() -> None:
    text = provider_text(b"<html><body>" + b"x" * 200_000, "text/html")
    assert len(text) == READABLE
    assert text.endswith("x…")


def test_an_error_inside_an_answer_can_be_read() -> None:
    assert error_text({"message": "cut short"}) == "cut short"
    assert error_text("flat") == "flat"


# --------------------------------------------------------------------------------------------------------- our errors


def test_our_refusal_is_a_429_that_sdks_do_not_retry() -> None:
    status, raw, text = synthetic(QueueFullError("the queue is full", retry_after=1.2, ticket=7))
    fields = dict(raw)
    assert status == 429
    assert fields[b"x-should-retry"] == b"false"
    assert fields[b"x-fairq-reason"] == b"queue_full"
    assert fields[b"retry-after"] == b"2"
    assert fields[b"x-fairq-ticket"] == b"7"
    assert fields[b"content-length"] == str(len(text)).encode()
    assert json.loads(text) == {
        "error": {"message": "the queue is full", "type": "fairq", "param": None, "code": "queue_full"}
    }


def test_our_refusal_has_the_shape_of_the_api_that_was_called() -> None:
    _, _, text = synthetic(BudgetExceededError("used up"), "v1/messages")
    assert json.loads(text)["error"] == {"type": "rate_limit_error", "message": "used up", "code": "budget"}
    assert json.loads(text)["type"] == "error"


def test_a_time_that_is_not_known_is_not_named() -> None:
    assert b"retry-after" not in dict(synthetic(QueueFullError("full", retry_after=float("inf")))[1])


def test_a_silent_server_is_a_504() -> None:
    assert synthetic(StreamReclaimedError("silent"))[0] == 504
