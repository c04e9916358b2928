"""Server-sent events: every way to end a line, and every way to cut the bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairq_ipy.transport import sse
from fairq_ipy.transport.sse import Event, Parser


def read(*chunks: bytes) -> list[Event]:
    parser = Parser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard_ends_a_line(end: bytes) -> None:
    stream = end.join([b"event: add", b"data: one", b"data: two", b"", b"data: three", b"", b""])
    assert read(stream) == [Event("add", "one\ntwo"), Event("", "three")]
    assert read(*(bytes([byte]) for byte in stream)) == [Event("add", "one\ntwo"), Event("", "three")]


def test_no_other_character_ends_a_line() -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"
    assert read(f"data: {text}\n\n".encode()) == [Event("", text)]


def test_a_line_end_of_two_bytes_may_be_cut_in_its_middle() -> None:
    assert read(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [Event("", "a\nb")]


def test_a_cr_ends_its_line_before_the_next_byte_is_there() -> None:
    assert read(b"data: a\r\r") == [Event("", "a")]


def test_a_byte_order_mark_is_read_over_only_at_the_start() -> None:
    assert read(b"\xef", b"\xbb\xbfdata: a\n\n") == [Event("", "a")]
    assert read(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == [Event("", "a")]


def test_comments_and_other_fields_are_no_events() -> None:
    assert read(b": ping\n\n:\n\nid: 7\nretry: 10\nwhat: ever\n\n") == []


def test_an_event_name_without_data_is_dropped_and_forgotten() -> None:
    assert read(b"event: ping\n\ndata: a\n\n") == [Event("", "a")]


def test_a_field_without_colon_has_an_empty_value() -> None:
    assert read(b"data\n\n") == [Event("", "")]
    assert read(b"data\ndata\n\n") == [Event("", "\n")]
    assert read(b"event: x\nevent\ndata: a\n\n") == [Event("", "a")]


def test_one_blank_after_the_colon_is_not_part_of_the_value() -> None:
    assert read(b"data:  a \ndata:b\n\n") == [Event("", " a \nb")]


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert read(b"data: \xff\n\n") == [Event("", "\ufffd")]


def test_an_event_without_its_blank_line_is_no_event_until_somebody_asks_what_was_meant() -> None:
    parser = Parser()
    assert parser.feed(b"data: [DONE]") == []
    assert parser.finish() == [Event("", "[DONE]")]
    assert parser.finish() == []


def test_an_event_beyond_the_bound_is_passed_over_and_the_next_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT", 10)
    assert read(b"data: 0123456789abc\n\ndata: b\n\n") == [Event("", "b")]
    assert read(b"data: 0123", b"456", b"789abc", b"def\n\ndata: b\n\n") == [Event("", "b")]
    assert read(b"data: 012345\ndata: 012345\n\ndata: b\n\n") == [Event("", "b")]


fields = st.sampled_from(["data: x", "data:", "data", "data: \u2028é", ": c", "event: e", "event", "id: 1", ""])


@given(lines=st.lists(st.tuples(fields, st.sampled_from(["\n", "\r\n", "\r"]))), cuts=st.lists(st.integers(0, 200)))
def test_where_the_bytes_are_cut_changes_nothing(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    stream = "".join(field + end for field, end in lines).encode()
    marks = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[start:stop] for start, stop in pairwise(marks)]
    assert read(*pieces) == read(stream)
