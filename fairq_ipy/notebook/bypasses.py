"""How calls of the endpoint by clients that are not ours are told of: in one line, or as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fairq_ipy.notebook.document import Block, Chip, Document, Number, Paragraph, Table, Tone, shorten
from fairq_ipy.notebook.wording import count
from fairq_ipy.policy.settings import GuardMode
from fairq_ipy.transport.guard import Fate, Seen, Sighting

__all__ = ["MODES", "line", "table"]

MODES: Final[Mapping[str, GuardMode]] = {
    "on": "route", "route": "route", "warn": "warn", "block": "block", "off": "off",
}  # fmt: skip
"""What can be typed after ``%fairq guard``; the first word is the one that most will look for."""

_MEANING: Final[Mapping[GuardMode, str]] = {
    "route": "calls by clients that are not ours wait in the queue like all others",
    "warn": "calls by clients that are not ours go past the queue; they are counted and named",
    "block": "calls by clients that are not ours are refused",
    "off": "nobody looks after calls by clients that are not ours",
}
_TONES: Final[Mapping[Fate, Tone]] = {"queued": "good", "let go": "warn", "blocked": "bad", "out of reach": "warn"}


def line(sighting: Sighting) -> str:
    """Return what the next cell says of a place that went past the queue for the first time."""
    what = f"{shorten(sighting.place, 200)} called {shorten(sighting.host)} past the queue"
    if sighting.fate == "out of reach":
        return f"{what}, where nothing can hold it up (%fairq guard)"
    return f"{what}; `%fairq guard on` lets such calls wait in it"


def table(mode: GuardMode, seen: Sequence[Seen]) -> Document:
    """Return what the guard does, and what it saw."""
    tone: Tone = "good" if mode == "route" else "idle"
    blocks: list[Block] = [Paragraph(_MEANING[mode], chip=Chip(f"guard: {mode}", tone))]
    rows = tuple(
        (
            sighting.library,
            shorten(sighting.module),
            "" if sighting.user == sighting.module else shorten(sighting.user),
            shorten(sighting.host),
            Chip(sighting.fate, _TONES[sighting.fate]),
            Number(count(calls)),
        )
        for sighting, calls in seen
    )
    if rows:
        blocks.append(Table(("library", "called by", "for", "host", "what became of it", "calls"), rows))
    elif mode != "off":
        blocks.append(Paragraph("none was seen so far", soft=True))
    return Document(*blocks)
