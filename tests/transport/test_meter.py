"""Metering: every shape of an answer, whole and in pieces, plain and compressed."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable
from typing import Any

import pytest

from fairq_ipy.core.model import Receipt
from fairq_ipy.transport import encodings
from fairq_ipy.transport.meter import READ_WHOLE, Meter


def event(content: object, name: str = "") -> bytes:
    data = content if isinstance(content, str) else json.dumps(content)
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def delta(text: str | None = None, **more: Any) -> dict[str, Any]:
    usage = {"usage": more.pop("usage")} if "usage" in more else {}
    reason = more.pop("finish_reason", None)
    part = {**({} if text is None else {"content": text}), **more}
    return {"choices": [{"index": 0, "delta": part, "finish_reason": reason}], **usage}


def watch(chunks: Iterable[bytes], *, kind: str = "text/event-stream", encoding: str = "", prompt: int = 50) -> Meter:
    meter = Meter(prompt, streaming=kind == "text/event-stream", content_type=kind, content_encoding=encoding)
    for chunk in chunks:
        meter.feed(chunk)
    meter.end()
    return meter


def document(content: object) -> Meter:
    return watch([json.dumps(content).encode()], kind="application/json; charset=utf-8")


def receipt(meter: Meter) -> Receipt:
    return meter.receipt(meter.outcome(complete=True), 200)


CHAT = {"choices": [{"message": {"role": "assistant", "content": "Hello you"}, "finish_reason": "stop"}]}
DONE = event("[DONE]")


# ---------------------------------------------------------------------------------------------------------- documents


def test_a_chat_with_usage_is_counted_by_the_endpoint() -> None:
    meter = document(
        {**CHAT, "model": "m-1", "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}}
    )
    assert receipt(meter) == Receipt("ok", 11, 3, exact=True, chars=9, status=200)
    assert (meter.model, meter.finish_reason) == ("m-1", "stop")


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": None}, {"prompt_tokens": -1, "completion_tokens": True}, "7", [7]]
)
def test_without_a_usable_count_it_is_an_estimate_and_says_so(usage: object) -> None:
    assert receipt(document({**CHAT, "usage": usage})) == Receipt("ok", 50, 3, exact=False, chars=9, status=200)


def test_a_completion_is_text() -> None:
    assert document({"choices": [{"text": "Hello", "finish_reason": "length"}]}).receipt("ok", 200).chars == 5


def test_responses_count_input_and_output() -> None:
    meter = document(
        {
            "object": "response",
            "status": "completed",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}],
            "usage": {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}},
        }
    )
    assert receipt(meter) == Receipt("ok", 9, 2, exact=True, chars=5, status=200)


def test_messages_count_what_was_cached_as_prompt() -> None:
    meter = document(
        {
            "type": "message",
            "content": [{"type": "text", "text": "Hello"}],
            "stop_reason": "end_turn",
            "usage": {
                "input_tokens": 9,
                "output_tokens": 2,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 1,
            },
        }
    )
    assert receipt(meter) == Receipt("ok", 110, 2, exact=True, chars=5, status=200)


def test_embeddings_have_no_text_and_are_not_empty() -> None:
    meter = document(
        {"object": "list", "data": [{"embedding": [0.1]}], "usage": {"prompt_tokens": 8, "total_tokens": 8}}
    )
    assert receipt(meter) == Receipt("ok", 8, 0, exact=True, acted=True, status=200)


@pytest.mark.parametrize(
    "message",
    [
        {"content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        {"content": "", "function_call": {"name": "f", "arguments": "{}"}},
        {"content": "", "reasoning_content": "hm"},
        {"content": "", "reasoning": "hm"},
        {"content": None, "audio": {"id": "a"}},
        {"content": [{"type": "thinking", "thinking": "hm"}]},
    ],
)
def test_a_tool_call_or_a_thought_is_not_an_empty_answer(message: dict[str, Any]) -> None:
    found = document({"choices": [{"message": message, "finish_reason": "stop"}]}).receipt("ok", 200)
    assert (found.acted, found.chars) == (True, 0)
    assert found.output_tokens > 0


def test_white_space_is_no_text() -> None:
    assert document({"choices": [{"message": {"content": " \n\t "}}]}).receipt("ok", 200).chars == 0


def test_text_in_parts_is_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}, "odd"]
    assert document({"choices": [{"message": {"content": parts}}]}).receipt("ok", 200).chars == 6


@pytest.mark.parametrize(
    "content", [{"error": {"message": "x"}}, {"choices": [{"finish_reason": "error", "message": {}}]}]
)
def test_an_error_in_a_200_is_no_success(content: object) -> None:
    meter = document(content)
    assert meter.error
    assert meter.outcome(complete=True) == "failed"


@pytest.mark.parametrize(
    ("body", "kind"), [(b"<html>", "application/json"), (b"<html>", "text/html"), (b"", "application/json"), (b"", "")]
)
def test_a_body_that_is_no_answer_is_a_failure(body: bytes, kind: str) -> None:
    assert watch([body], kind=kind).outcome(complete=True) == "failed"


def test_a_body_of_another_kind_is_an_answer_of_its_size() -> None:
    assert receipt(watch([b"hello world!"], kind="audio/wav")) == Receipt("ok", 50, 3, acted=True, status=200)


def test_a_document_that_broke_off_is_truncated_or_broken() -> None:
    meter = watch([json.dumps(CHAT).encode()], kind="application/json")
    assert meter.outcome(complete=False) == "ok"
    assert watch([b'{"choices": []}'], kind="application/json").outcome(complete=False) == "truncated"


def test_of_a_huge_document_only_the_count_is_read() -> None:
    vectors = [{"embedding": [0.125] * 40_000} for _ in range(8)]
    meter = document({"data": vectors, "usage": {"prompt_tokens": 8, "total_tokens": 8}})
    assert receipt(meter) == Receipt("ok", 8, 0, exact=True, acted=True, status=200)
    without = receipt(document({"data": vectors}))
    assert (without.output_tokens, without.exact) == (0, False)
    text = receipt(document({"choices": [{"message": {"content": "x" * READ_WHOLE}}]}))
    assert text.output_tokens >= READ_WHOLE // 4


# ------------------------------------------------------------------------------------------------------------- streams


def test_the_usage_of_the_last_chunk_is_the_count() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 2}}
    chunks = [
        event(delta("", role="assistant")),
        event(delta("Hel")),
        event(delta("lo")),
        event(delta(finish_reason="stop")),
    ]
    assert receipt(watch([*chunks, event(usage), DONE])) == Receipt("ok", 11, 2, exact=True, chars=5, status=200)


def test_usage_in_every_chunk_is_cumulative_and_counted_once() -> None:
    chunks = [event(delta("x", usage={"prompt_tokens": 11, "completion_tokens": n})) for n in range(1, 6)]
    meter = watch(
        [*chunks, event(delta(finish_reason="stop", usage={"prompt_tokens": 11, "completion_tokens": 5})), DONE]
    )
    assert receipt(meter) == Receipt("ok", 11, 5, exact=True, chars=5, status=200)


def test_a_null_usage_and_a_usage_that_comes_twice_change_nothing() -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 1}})
    meter = watch([event(delta("x", usage=None)), event(delta(finish_reason="stop", usage=None)), usage, usage, DONE])
    assert receipt(meter) == Receipt("ok", 11, 1, exact=True, chars=1, status=200)


def test_a_count_is_only_exact_for_what_it_covers() -> None:
    meter = watch([event(delta("x", usage={"prompt_tokens": 11, "completion_tokens": 1})), event(delta("four more"))])
    found = meter.receipt("cancelled", 200)
    assert (found.prompt_tokens, found.exact) == (11, False)
    assert found.output_tokens == 3


def test_the_output_so_far_is_known_while_the_stream_runs() -> None:
    meter = Meter(streaming=True, content_type="text/event-stream")
    meter.feed(event(delta("a" * 40)))
    assert meter.output_tokens == 10
    for _ in range(30):
        meter.feed(event(delta("b")))
    assert meter.output_tokens == 31


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 4096])
def test_where_the_bytes_are_cut_changes_no_count(size: int) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 3}}
    stream = (
        b": ping\r\n\r\n"
        + event(delta("Gr\u00fc\u00dfe\u2028"))
        + event(delta(finish_reason="stop"))
        + event(usage)
        + DONE
    )
    meter = watch(stream[at : at + size] for at in range(0, len(stream), size))
    assert receipt(meter) == Receipt("ok", 11, 3, exact=True, chars=6, status=200)


def test_only_data_events_count_as_data() -> None:
    meter = Meter(streaming=True, content_type="text/event-stream")
    assert not meter.feed(b": keep-alive\n\n")
    assert not meter.feed(b"data: {}")
    assert meter.feed(b"\n\n")
    assert meter.events == 1
    assert not meter.feed(event({"type": "ping"}, "ping"))
    assert meter.events == 1


def test_a_stream_that_ends_without_saying_so_is_truncated() -> None:
    assert watch([event(delta("x"))]).outcome(complete=True) == "truncated"
    assert watch([]).outcome(complete=True) == "truncated"
    assert watch([b": ping\n\n"]).outcome(complete=True) == "truncated"


def test_a_stream_of_which_nothing_is_known_ends_when_it_ends() -> None:
    assert watch([event({"progress": 3}), event("text")]).outcome(complete=True) == "ok"
    assert watch([event({"progress": 3})]).outcome(complete=False) == "truncated"


@pytest.mark.parametrize(
    "end",
    [
        [event(delta(finish_reason="stop"))],
        [event(delta(finish_reason="length"))],
        [event(delta(finish_reason="tool_calls"))],
        [DONE],
        [b"data: [DONE]"],
    ],
)
def test_a_stream_that_says_that_it_is_done_is_whole(end: list[bytes]) -> None:
    assert watch([event(delta("x")), *end]).outcome(complete=True) == "ok"


def test_a_connection_lost_after_the_end_was_said_loses_nothing() -> None:
    assert watch([event(delta("x")), event(delta(finish_reason="stop"))]).outcome(complete=False) == "ok"


@pytest.mark.parametrize(
    "error",
    [
        event({"error": {"message": "boom"}}),
        event("out of memory", name="error"),
        event({"type": "error", "error": {"type": "overloaded_error"}}, name="error"),
        event({"type": "error", "code": "server_error", "message": "boom"}),
        event({"type": "response.failed", "response": {"error": {"code": "server_error"}}}),
        event({"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 502}}]}),
    ],
)
def test_an_error_event_makes_the_stream_a_failure(error: bytes) -> None:
    meter = watch([event(delta("x")), error, DONE])
    assert meter.error
    assert meter.outcome(complete=True) == "failed"


def test_whether_anything_was_said_before_the_error_is_known() -> None:
    assert not watch([event({"error": {"message": "busy"}})]).said
    assert not watch([event(delta("", role="assistant")), event({"error": {"message": "busy"}})]).said
    assert watch([event(delta("x")), event({"error": {"message": "busy"}})]).said


def test_streamed_tool_calls_and_thoughts_are_no_silence() -> None:
    call = event(delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a": 1}'}}]))
    for chunk in (call, event(delta(reasoning_content="hm"))):
        found = watch([chunk, DONE]).receipt("ok", 200)
        assert (found.acted, found.chars) == (True, 0)


def test_a_first_chunk_with_empty_choices_and_odd_events_do_no_harm() -> None:
    odd = [
        {"choices": []},
        {"choices": [None, 3]},
        {"choices": [{}]},
        {"choices": [{"delta": None, "text": 3}]},
        [],
        7,
        None,
    ]
    meter = watch([*map(event, odd), event("{no json"), event("[" * 100_000), event(delta("x")), DONE])
    assert receipt(meter).chars == 1


def test_anthropics_stream_is_counted_over_its_events() -> None:
    usage = {"input_tokens": 25, "output_tokens": 1}
    stream = [
        event({"type": "message_start", "message": {"model": "c", "usage": usage}}, "message_start"),
        event({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}, "content_block_start"),
        event({"type": "ping"}, "ping"),
        event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hello"}}, "content_block_delta"),
        event({"type": "content_block_stop"}, "content_block_stop"),
        event(
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}},
            "message_delta",
        ),
        event({"type": "message_stop"}, "message_stop"),
    ]
    meter = watch(stream)
    assert receipt(meter) == Receipt("ok", 25, 15, exact=True, chars=5, status=200)
    assert meter.model == "c"
    early = watch(stream[:4])
    assert early.outcome(complete=True) == "truncated"
    assert early.receipt("cancelled", 200) == Receipt("cancelled", 25, 2, exact=False, chars=5, status=200)


def test_anthropics_tools_and_thoughts_are_no_silence() -> None:
    for part in ({"type": "input_json_delta", "partial_json": "{}"}, {"type": "thinking_delta", "thinking": "hm"}):
        assert watch([event({"type": "content_block_delta", "delta": part})]).receipt("ok", 200).acted


def test_the_events_of_responses_are_counted() -> None:
    whole = {"status": "completed", "model": "r", "usage": {"input_tokens": 9, "output_tokens": 2}}
    stream = [
        event({"type": "response.created", "response": {"status": "in_progress", "usage": None}}),
        event({"type": "response.output_text.delta", "delta": "Hel"}),
        event({"type": "response.output_text.delta", "delta": "lo"}),
        event({"type": "response.completed", "response": whole}),
    ]
    assert receipt(watch(stream)) == Receipt("ok", 9, 2, exact=True, chars=5, status=200)
    assert watch(stream[:3]).outcome(complete=True) == "truncated"
    assert watch([event({"type": "response.reasoning_summary_text.delta", "delta": "hm"})]).receipt("ok", 200).acted


def test_events_without_their_content_type_are_read_when_the_request_asked_for_them() -> None:
    meter = Meter(streaming=True, content_type="text/plain")
    assert meter.streams
    assert not Meter(streaming=True, content_type="application/json").streams


# ------------------------------------------------------------------------------------------------------------ encodings


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", bare_deflate)],
)
def test_a_compressed_answer_is_read_byte_by_byte(encoding: str, pack: Any) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 2}}
    packed = pack(event(delta("Hello")) + event(delta(finish_reason="stop")) + event(usage) + DONE)
    meter = watch([packed[at : at + 1] for at in range(len(packed))], encoding=encoding)
    assert receipt(meter) == Receipt("ok", 11, 2, exact=True, chars=5, status=200)


@pytest.mark.parametrize("encoding", ["what-ever", "gzip, gzip"])
def test_an_encoding_that_cannot_be_read_is_metered_by_size(encoding: str) -> None:
    assert receipt(watch([b"x" * 40], encoding=encoding)) == Receipt("ok", 50, 10, acted=True, status=200)


def test_bytes_that_are_not_what_they_are_said_to_be_are_metered_by_size() -> None:
    assert receipt(watch([b"plain text all the same"], encoding="gzip")).acted


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "MAX_INFLATED", 10_000)
    decoder = encodings.decoder("gzip")
    assert decoder is not None
    assert decoder.feed(gzip.compress(b"\0" * 3_000_000)) == b""
    assert decoder.lost
    assert decoder.feed(b"more") == b""
