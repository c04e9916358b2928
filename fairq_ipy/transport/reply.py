"""Reading the text of a chat's answer as it comes, from events or from a document."""

from __future__ import annotations

import json
from typing import Final

from fairq_ipy.transport.sse import Event, Parser

__all__ = ["Reply"]

LARGEST: Final = 64 * 2**20
"""Bytes of a document that are read; an answer of that size is none."""


class Reply:
    """The reader of one answer.

    Args:
        content_type: of the answer.

    Attributes:
        error: the endpoint's error inside the answer; ``None`` without.
        finished: whether the model said that it is done.
        readable: whether it was an answer at all, rather than a page or a body that broke off.
    """

    def __init__(self, content_type: str) -> None:
        kind = content_type.partition(";")[0].strip().lower()
        self._events = Parser() if kind in {"text/event-stream", "", "text/plain"} else None
        self._document: list[bytes] = []
        self._size = 0
        self._parts: list[str] = []
        self.error: object = None
        self.finished = False
        self.readable = False

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._parts)

    @property
    def raw(self) -> bytes:
        """The bytes of what could not be read as an answer, as far as they were kept."""
        return b"".join(self._document)

    def feed(self, data: bytes) -> str:
        """Take in some bytes; return the text that they add."""
        if not self.readable:
            self._keep(data)
        if self._events is None:
            return ""
        return self._read(self._events.feed(data))

    def end(self) -> str:
        """Take in the end; return the text that it adds."""
        found = "" if self._events is None else self._read(self._events.finish())
        if self.readable:
            self._document.clear()
            return found
        try:
            content = json.loads(self.raw)
        except (ValueError, RecursionError):
            return found
        return self._take(content, "message")

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= LARGEST:
            self._document.append(data)

    def _read(self, events: list[Event]) -> str:
        return "".join([self._event(event) for event in events])

    def _event(self, event: Event) -> str:
        if event.data.startswith("[DONE]"):
            self.finished = self.readable = True
            return ""
        try:
            content = json.loads(event.data)
        except (ValueError, RecursionError):
            content = None
        if event.name == "error" and self.error is None:
            self.error = event.data if content is None else content
        return self._take(content, "delta")

    def _take(self, content: object, part: str) -> str:
        if not isinstance(content, dict):
            return ""
        if content.get("error"):
            self.error = content["error"]
            self.readable = True
        choices = content.get("choices")
        if not isinstance(choices, list):
            return ""
        self.readable = True
        if not choices or not isinstance(choices[0], dict):
            return ""
        choice = choices[0]
        self.finished = self.finished or choice.get("finish_reason") is not None or part == "message"
        message = choice.get(part)
        text = _text(message) if isinstance(message, dict) else ""
        if text:
            self._parts.append(text)
        return text


def _text(message: dict[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join([part for part in parts if isinstance(part, str)])
    if isinstance(content, str) and content:
        return content
    refusal = message.get("refusal")
    return refusal if isinstance(refusal, str) else ""
