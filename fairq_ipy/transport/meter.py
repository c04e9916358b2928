"""Metering: what an answer cost and whether it is whole, from its bytes as they pass.

The meter never changes, delays or keeps a stream. It reads events as they are completed, a JSON document once it is
there, and nothing at all of what it cannot read: then it estimates, and says so.
"""

from __future__ import annotations

import json
from typing import Final

from fairq_ipy.core.model import Outcome, Receipt
from fairq_ipy.transport import encodings
from fairq_ipy.transport.answers import Tally
from fairq_ipy.transport.sse import Event, Parser

__all__ = ["READ_WHOLE", "Meter"]

READ_WHOLE: Final = 2**20
"""Bytes of a JSON document that are read; parsing more of it would keep the keeper from its other calls."""

_KEEP: Final = 64 * 2**20  # bytes of a document that are kept for that


class Meter:
    """The meter of one answer.

    Args:
        prompt_tokens: the estimate that holds until the endpoint counts.
        streaming: whether the request asked for events.
        content_type: of the answer.
        content_encoding: of the answer.

    Attributes:
        events: data events seen so far; comments and pings are none. For other bodies, pieces.
        plain: whether its bytes are what they say, and not compressed.
        streams: whether the answer is read as events.
    """

    __slots__ = (
        "_broken",
        "_decoder",
        "_document",
        "_parser",
        "_prompt_tokens",
        "_size",
        "_tally",
        "_type",
        "events",
        "plain",
        "streams",
    )

    def __init__(
        self, prompt_tokens: int = 0, *, streaming: bool = False, content_type: str = "", content_encoding: str = ""
    ) -> None:
        self._type = content_type.partition(";")[0].strip().lower()
        self.streams = self._type == "text/event-stream" or (streaming and self._type in {"", "text/plain"})
        self.events = 0
        self._prompt_tokens = prompt_tokens
        self._tally = Tally()
        self._parser = Parser()
        self._document: list[bytes] = []
        self._size = 0
        self._broken = False  # it says JSON and is none, or it is a page for people
        coding = content_encoding.strip().lower()
        self.plain = coding in {"", "identity"}
        self._decoder = None if self.plain else encodings.decoder(coding)
        if self._decoder is None and not self.plain:
            self._blind()

    # ---------------------------------------------------------------------------------------------------- watching

    def feed(self, chunk: bytes) -> bool:
        """Watch `chunk` pass; return whether it carried data, not only keep-alives."""
        self._size += len(chunk)
        if self._decoder is not None:
            chunk = self._decoder.feed(chunk)
            if self._decoder.lost:
                self._blind()
        if self.streams:
            heard = False
            for event in self._parser.feed(chunk):
                heard = self._event(event) or heard
            return heard
        if not chunk:
            return False
        self.events += 1
        if self._size <= _KEEP and not self._broken:
            self._document.append(chunk)
        return True

    def end(self, *, complete: bool = True) -> None:
        """Read what can only be read at the end; call it once, when no more bytes come.

        Args:
            complete: whether the body came to its own end.
        """
        if self.streams:
            for event in self._parser.finish():
                self._event(event)
        else:
            self._read_document()
            self._tally.finished = self._tally.finished and complete

    def _event(self, event: Event) -> bool:
        """Take in an event; return whether it is more than a sign of life."""
        if event.name == "ping":
            return False
        self.events += 1
        if event.data.startswith("[DONE]"):
            self._tally.known = self._tally.finished = True
            return True
        try:
            content = json.loads(event.data)
        except (ValueError, RecursionError):
            content = None
        if event.name == "error" and not self._tally.error:
            self._tally.error = content if content is not None else event.data
        self._tally.observe(content)
        return True

    def _read_document(self) -> None:
        body = b"".join(self._document)
        self._document.clear()
        if not self._type.endswith("json"):
            self._broken = self._broken or self._type == "text/html" or not self._size
            if not self._broken:
                self._tally.skim(self._size, None, text=True)
            return
        if self._size > READ_WHOLE:
            self._tally.skim(self._size, _find_usage(body), text=b'"embedding"' not in body[:READ_WHOLE])
            return
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            self._broken = True
            return
        self._tally.observe(content)

    def _blind(self) -> None:
        """Give up reading: from here on only sizes are known."""
        self._decoder = None
        self._document.clear()
        self.streams = False
        self._type = "application/octet-stream"

    # ----------------------------------------------------------------------------------------------------- results

    @property
    def error(self) -> object:
        """The error that came inside the answer; ``None`` without."""
        return self._tally.error

    @property
    def said(self) -> bool:
        """Whether anything of an answer has come."""
        return self._tally.pieces > 0 or self._tally.acted

    @property
    def finished(self) -> bool:
        """Whether the model said that it is done: a finish reason, ``[DONE]``, ``message_stop``."""
        return self._tally.finished

    @property
    def finish_reason(self) -> str | None:
        """How the model ended; ``None`` when it did not say."""
        return self._tally.finish_reason

    @property
    def model(self) -> str:
        """The model that answered; empty when it does not say."""
        return self._tally.model

    @property
    def prompt_tokens(self) -> int:
        """As the endpoint counted, else as estimated."""
        return self._prompt_tokens if self._tally.prompt_tokens is None else self._tally.prompt_tokens

    @property
    def output_tokens(self) -> int:
        """Written so far, as the endpoint counted, else as estimated."""
        return self._tally.output_tokens

    @property
    def exact(self) -> bool:
        """Whether both counts are the endpoint's."""
        return self._tally.exact

    def outcome(self, *, complete: bool) -> Outcome:
        """Judge a successful status by its body.

        Args:
            complete: whether the body came to its own end, rather than to the end of its connection.
        """
        if self._tally.error or self._broken:
            return "failed"
        if self.streams and not self._tally.finished and (self._tally.known or not self.events):
            return "truncated"
        return "ok" if complete or self._tally.finished else "truncated"

    def receipt(self, outcome: Outcome, status: int | None) -> Receipt:
        """Return what it cost."""
        return Receipt(
            outcome=outcome,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            exact=self.exact,
            chars=self._tally.chars,
            acted=self._tally.acted,
            status=status,
        )


def _find_usage(body: bytes) -> object:
    """Return the usage of a document that is too big to be parsed whole; it stands at one of its ends."""
    for part in (body[-READ_WHOLE // 16 :], body[: READ_WHOLE // 16]):
        _, key, rest = part.rpartition(b'"usage"')
        if key:
            text = rest.decode("utf-8", "replace").lstrip(" \t\r\n:")
            try:
                usage: object = json.JSONDecoder().raw_decode(text)[0]
            except ValueError:
                continue
            return usage
    return None
