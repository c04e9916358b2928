"""What a scripted endpoint says: whole answers, streams, errors, and everything that a server should not do.

A reply is made for the request that it answers, so that one `chat` serves plain and streaming callers alike. The
methods of `Reply` bend it: ``chat("hi").dripped()`` sends single bytes, ``chat("hi").cut(3)`` hangs up after three
pieces, ``chat("hi").behind(gate)`` waits for the test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from fairq_ipy.testing.gates import Gate
from fairq_ipy.testing.record import Recorded

__all__ = [
    "Message",
    "Pause",
    "Piece",
    "Reply",
    "chat",
    "chunk",
    "cut",
    "echo",
    "embeddings",
    "endless",
    "error",
    "html",
    "json_reply",
    "plain",
    "raw",
    "sse",
    "stream",
]

Usage: TypeAlias = tuple[int, int] | Literal["counted"] | None


class Pause(NamedTuple):
    """Silence of so many seconds between two pieces."""

    seconds: float


Piece: TypeAlias = bytes | Gate | Pause
Event: TypeAlias = str | bytes | Mapping[str, Any] | Gate | Pause


class Message(NamedTuple):
    """An answer in pieces.

    Attributes:
        status: HTTP status.
        headers: as they are sent; the framing adds its own.
        pieces: the body, and where it waits.
        framing: ``length`` (content-length), ``chunked`` (a chunk for each piece), ``close`` (ends with the
            connection) or ``raw`` (the pieces are all that is sent, status line included).
        forever: seconds after which the last piece comes again, without an end; ``None`` to end.
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    pieces: tuple[Piece, ...] = ()
    framing: Literal["length", "chunked", "close", "raw"] = "length"
    forever: float | None = None

    def last_bytes(self) -> bytes:
        """Return the last piece that is sent."""
        return next((piece for piece in reversed(self.pieces) if isinstance(piece, bytes)), b"")


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a script, and how it is sent.

    Attributes:
        make: builds the message for the request that it answers.
        gates: doors that are passed before the first byte.
        delay: seconds before the first byte.
        packet: bytes in one packet; ``None`` sends each piece whole.
        stop_after: pieces after which the connection ends in the middle; ``None`` sends all.
        reset: whether that end is a reset instead of an orderly close.
        extra: headers added to the message's own.
    """

    make: Callable[[Recorded], Message]
    gates: tuple[Gate, ...] = ()
    delay: float = 0.0
    packet: int | None = None
    stop_after: int | None = None
    reset: bool = False
    extra: tuple[tuple[str, str], ...] = ()

    def behind(self, gate: Gate) -> Reply:
        """Wait for `gate` before the first byte."""
        return replace(self, gates=(*self.gates, gate))

    def after(self, seconds: float) -> Reply:
        """Wait `seconds` before the first byte."""
        return replace(self, delay=seconds)

    def dripped(self, size: int = 1) -> Reply:
        """Send packets of `size` bytes."""
        return replace(self, packet=size)

    def cut(self, pieces: int = 0, *, reset: bool = False) -> Reply:
        """Hang up after so many pieces of the body, without the framing's end; 0 hangs up after the headers."""
        return replace(self, stop_after=pieces, reset=reset)

    def with_headers(self, headers: Mapping[str, str] | None = None, /, **named: str) -> Reply:
        """Add headers; in a keyword, ``_`` stands for ``-``."""
        more = {**(headers or {}), **{name.replace("_", "-"): value for name, value in named.items()}}
        return replace(self, extra=(*self.extra, *more.items()))


# -------------------------------------------------------------------------------------------------------- any content


def json_reply(content: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """Answer with a JSON document."""
    return _whole(json.dumps(content).encode(), "application/json", status, headers)


def html(text: str = "<html><body><h1>Bad gateway</h1></body></html>", *, status: int = 502) -> Reply:
    """Answer with a page, as a proxy in front of the endpoint does."""
    return _whole(text.encode(), "text/html", status, None)


def error(
    status: int = 429,
    message: str = "Too many requests",
    *,
    code: str | None = None,
    type: str = "requests",  # noqa: A002 - the field's own name
    headers: Mapping[str, str] | None = None,
    retry_after: float | str | None = None,
) -> Reply:
    """Answer with an error in OpenAI's shape.

    Args:
        status: HTTP status.
        message: the provider's text.
        code: the provider's code, as ``insufficient_quota``.
        type: the provider's type.
        headers: more headers.
        retry_after: the value of that header, sent as it is.
    """
    more = dict(headers or {})
    if retry_after is not None:
        more["retry-after"] = str(retry_after)
    content = {"error": {"message": message, "type": type, "param": None, "code": code}}
    return json_reply(content, status=status, headers=more)


def raw(*pieces: Piece) -> Reply:
    """Send exactly these bytes, status line included, then end the connection."""
    return Reply(lambda _: Message(pieces=pieces, framing="raw"))


def cut(*, reset: bool = False) -> Reply:
    """End the connection before any byte of an answer."""
    return Reply(lambda _: Message(framing="raw"), stop_after=0, reset=reset)


def _whole(content: bytes, kind: str, status: int, headers: Mapping[str, str] | None) -> Reply:
    message = Message(status, (("content-type", kind), *(headers or {}).items()), (content,))
    return Reply(lambda _: message)


# ------------------------------------------------------------------------------------------------- chat completions


def echo(prefix: str = "") -> Reply:
    """Answer with the request's last message, so that each caller can check that the answer is its own."""
    return Reply(lambda request: chat(prefix + request.prompt).make(request))


def chat(text: str = "hello", *, usage: Usage = "counted", finish_reason: str = "stop", **message: Any) -> Reply:
    """Answer a chat completion, as a stream where the request asks for one and whole where it does not.

    Args:
        text: the answer; a stream has a piece for each word.
        usage: prompt and output tokens; ``"counted"`` counts four characters as a token; ``None`` sends none. A
            stream carries it only when the request asks for it, as the real API does.
        finish_reason: why it ended.
        message: more fields of the message, as ``tool_calls=[...]``; only in a whole answer.
    """

    def make(request: Recorded) -> Message:
        if not request.json.get("stream"):
            return plain(text, usage=usage, finish_reason=finish_reason, **message).make(request)
        wanted = (request.json.get("stream_options") or {}).get("include_usage")
        words = text.split(" ")
        pieces = [word + " " for word in words[:-1]] + words[-1:]
        return stream(*pieces, usage=usage if wanted else None, finish_reason=finish_reason).make(request)

    return Reply(make)


def plain(
    text: str | None = "hello", *, usage: Usage = "counted", finish_reason: str = "stop", **message: Any
) -> Reply:
    """Answer with a whole chat completion, whatever the request asks for."""

    def make(request: Recorded) -> Message:
        content: dict[str, Any] = {
            "id": f"chatcmpl-{request.number}",
            "object": "chat.completion",
            "created": 0,
            "model": request.json.get("model", ""),
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, **message},
                    "finish_reason": finish_reason,
                }
            ],
        }
        counted = _count(usage, request, text or "")
        if counted is not None:
            content["usage"] = counted
        return json_reply(content).make(request)

    return Reply(make)


def stream(
    *pieces: str | Gate | Pause, usage: Usage = None, finish_reason: str | None = "stop", done: bool = True
) -> Reply:
    """Answer with a stream, whatever the request asks for.

    Args:
        pieces: texts of the chunks, gates and pauses between them.
        usage: sent in a last chunk without choices; ``None`` sends none.
        finish_reason: of the chunk after the texts; ``None`` leaves that chunk out.
        done: whether ``[DONE]`` ends the stream.
    """

    def make(request: Recorded) -> Message:
        model = request.json.get("model", "")
        events: list[Event] = [chunk(piece, model=model) if isinstance(piece, str) else piece for piece in pieces]
        if finish_reason is not None:
            events.append(chunk(finish_reason=finish_reason, model=model))
        said = "".join(piece for piece in pieces if isinstance(piece, str))
        counted = _count(usage, request, said)
        if counted is not None:
            events.append({**chunk(model=model), "choices": [], "usage": counted})
        if done:
            events.append("[DONE]")
        return sse(*events).make(request)

    return Reply(make)


def chunk(
    text: str | None = None, *, finish_reason: str | None = None, model: str = "", **fields: Any
) -> dict[str, Any]:
    """Return one chunk of a chat completion's stream; `fields` go into its top level."""
    delta = {} if text is None else {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-0",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
        **fields,
    }


def sse(*events: Event, status: int = 200, line_end: str = "\n", headers: Mapping[str, str] | None = None) -> Reply:
    """Answer with server-sent events.

    Args:
        events: a mapping is sent as JSON data, a string as data, bytes as they are; gates and pauses wait.
        status: HTTP status.
        line_end: the end of each line of an event that is not bytes.
        headers: more headers.
    """
    pieces = tuple(_event(event, line_end) for event in events)
    message = Message(status, (("content-type", "text/event-stream"), *(headers or {}).items()), pieces, "chunked")
    return Reply(lambda _: message)


def endless(*texts: str, comment: bytes = b": keep-alive\n\n", every: float = 0.02) -> Reply:
    """Stream `texts`, then nothing but `comment` each `every` seconds, for as long as the client listens."""
    pieces = (*(_event(chunk(text), "\n") for text in texts), comment)
    message = Message(200, (("content-type", "text/event-stream"),), pieces, "chunked", forever=every)
    return Reply(lambda _: message)


def embeddings(size: int = 3, *, usage: int | None = None) -> Reply:
    """Answer an embeddings request with one vector of `size` numbers for each input."""

    def make(request: Recorded) -> Message:
        given = request.json.get("input", "")
        inputs: Iterable[Any] = [given] if isinstance(given, str) else given
        data = [{"object": "embedding", "index": at, "embedding": [0.5] * size} for at, _ in enumerate(inputs)]
        tokens = _tokens(json.dumps(given)) if usage is None else usage
        content = {
            "object": "list",
            "model": request.json.get("model", ""),
            "data": data,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
        return json_reply(content).make(request)

    return Reply(make)


def _event(event: Event, line_end: str) -> Piece:
    if isinstance(event, bytes | Gate | Pause):
        return event
    data = event if isinstance(event, str) else json.dumps(event)
    return f"data: {data}{line_end}{line_end}".encode()


def _tokens(text: str) -> int:
    return max(1, len(text) // 4)


def _count(usage: Usage, request: Recorded, said: str) -> dict[str, int] | None:
    if usage is None:
        return None
    prompt, output = (_tokens(request.prompt), _tokens(said)) if usage == "counted" else usage
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
