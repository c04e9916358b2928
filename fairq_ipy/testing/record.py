"""What a scripted endpoint saw: one record for each request."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["Counts", "Outcome", "Recorded"]

Outcome: TypeAlias = Literal["open", "answered", "refused", "cut", "disconnected", "closed"]


@dataclass(slots=True)
class Recorded:
    """One request, from its arrival to its end. Filled in by the server while it answers.

    Attributes:
        number: 1 for the first that arrived.
        method: as ``POST``.
        path: as ``/v1/chat/completions``, with the query.
        headers: by lower-case name; of a header that came twice, the last.
        raw_headers: all of them, in order.
        body: the bytes.
        arrived: ``time.monotonic()`` when the last byte of the request came.
        in_flight: requests under way right after it arrived, itself included.
        ended: when its answer was sent or its client left; ``None`` while it is open.
        outcome: how it ended.
        sent: bytes of the answer that were written.
        pieces: pieces of the answer that were written whole.
    """

    number: int
    method: str
    path: str
    headers: dict[str, str]
    raw_headers: tuple[tuple[str, str], ...]
    body: bytes
    arrived: float
    in_flight: int = 0
    ended: float | None = None
    outcome: Outcome = "open"
    sent: int = 0
    pieces: int = 0
    _json: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def json(self) -> dict[str, Any]:
        """The body as a JSON object; an empty one when the body is none."""
        if self._json is None:
            try:
                content = json.loads(self.body)
            except ValueError:
                content = {}
            self._json = content if isinstance(content, dict) else {}
        return self._json

    @property
    def prompt(self) -> str:
        """The text of the last message (or ``prompt`` or ``input``); empty when there is none."""
        content: Any = self.json.get("prompt") or self.json.get("input") or ""
        messages = self.json.get("messages")
        if isinstance(messages, list) and messages and isinstance(messages[-1], dict):
            content = messages[-1].get("content") or ""
        if isinstance(content, str):
            return content
        parts = content if isinstance(content, list) else []
        return "".join(part.get("text", "") if isinstance(part, dict) else str(part) for part in parts)


@dataclass(frozen=True, slots=True)
class Counts:
    """The books of a scripted endpoint at one moment.

    Attributes:
        arrivals: requests that came.
        in_flight: requests that came and are not over; refused ones are never among them.
        max_in_flight: the most there were at once.
        held: those in flight that wait for `release`.
        answered: requests whose whole answer was sent.
        refused: requests beyond the endpoint's own cap, answered 429.
        cut: answers that the script broke off.
        disconnects: requests whose client left before the answer's end.
    """

    arrivals: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    held: int = 0
    answered: int = 0
    refused: int = 0
    cut: int = 0
    disconnects: int = 0
