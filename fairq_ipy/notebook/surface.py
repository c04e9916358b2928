"""Where an answer appears while it comes: one output of the cell, or a terminal.

Both take the same steps, in this order: `waiting` any number of times, `text` any number of times, and at the end one
of `done`, `ended` and `failed`. What is shown at the end is exact, whatever was left out in between.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TextIO
from uuid import uuid4

from fairq_ipy.notebook.document import Document, Paragraph

__all__ = ["CellSurface", "Surface", "TerminalSurface"]

_EVERY = 0.1
"""Least time between two paints, in seconds."""

_BYTES_PER_SECOND = 200_000
"""A long answer is painted less often: Jupyter's server drops outputs of a kernel that sends a megabyte a second."""


class Surface(Protocol):
    """Shows one answer."""

    def waiting(self, words: str) -> None:
        """Say where the call stands."""

    def text(self, piece: str) -> None:
        """Show more of the answer."""

    def done(self, text: str, footer: str) -> None:
        """Show the whole answer, and what it took."""

    def ended(self, words: str) -> None:
        """Keep what there is of the answer, and say why there is no more."""

    def failed(self, words: str) -> None:
        """Do the same where anything was shown; if not, the error alone says it all."""


class CellSurface:
    """Shows an answer in a cell of a notebook: one output that is updated, and a line under it at the end.

    Args:
        publish: ``publish(data, metadata=..., transient=..., update=...)`` of the shell's display publisher.
        between: called after each paint; lets widgets answer while an answer streams.
        clock: seconds, steady.
    """

    def __init__(
        self,
        publish: Callable[..., object],
        between: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._publish = publish
        self._between = between
        self._clock = clock
        self._id = uuid4().hex
        self._begun = False
        self._pieces: list[str] = []
        self._shown: Mapping[str, str] = {}
        self._due = clock()

    def waiting(self, words: str) -> None:
        """Show the words in place of the answer that will come."""
        if not self._pieces:
            self._paint(_line(words))

    def text(self, piece: str) -> None:
        """Add `piece`; what is shown follows about ten times a second."""
        if not piece:
            return
        self._pieces.append(piece)
        now = self._clock()
        if now >= self._due:
            whole = "".join(self._pieces)
            self._due = now + max(_EVERY, len(whole.encode()) / _BYTES_PER_SECOND)
            self._paint(_markdown(whole))

    def done(self, text: str, footer: str) -> None:
        """Show exactly `text`, and the footer."""
        self._paint(_markdown(text) if text.strip() else _line("the answer is empty"))
        self._publish(_line(footer), metadata={})

    def ended(self, words: str) -> None:
        """Show what came so far exactly, and the words."""
        if self._pieces:
            self._paint(_markdown("".join(self._pieces)))
            self._publish(_line(words), metadata={})
        else:
            self._paint(_line(words))

    def failed(self, words: str) -> None:
        """Close what was begun."""
        if self._begun:
            self.ended(words)

    def _paint(self, data: Mapping[str, str]) -> None:
        if data != self._shown:
            begun, self._begun = self._begun, True
            self._publish(data, metadata={}, transient={"display_id": self._id}, update=begun)
            self._shown = data
        self._between()


def _markdown(text: str) -> dict[str, str]:
    """Return the model's own text. The front end renders it, and takes out what is not safe."""
    return {"text/plain": text, "text/markdown": text}


def _line(words: str) -> dict[str, str]:
    document = Document(Paragraph(words, soft=True))
    return {"text/plain": words, "text/html": document._repr_html_()}


class TerminalSurface:
    """Shows an answer in a terminal, word by word as it comes.

    Args:
        out: where; the present standard output by default.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self._line = ""
        self._written = ""

    def waiting(self, words: str) -> None:
        """Show the words on a line that is overwritten; nothing where the output is no terminal."""
        if words != self._line and not self._written and self._out.isatty():
            self._line = words
            self._put(f"\r\x1b[2K{words}")

    def text(self, piece: str) -> None:
        """Write `piece`."""
        self._clear()
        clean = _harmless(piece)
        self._written += clean
        self._put(clean)

    def done(self, text: str, footer: str) -> None:
        """Write what is missing of `text`, and the footer."""
        clean = _harmless(text)
        self._clear()
        if clean.startswith(self._written):
            self._put(clean[len(self._written) :])
        self._put(f"{'' if clean.endswith(chr(10)) or not clean else chr(10)}[{footer}]\n")

    def ended(self, words: str) -> None:
        """Write the words on a line of their own."""
        self._clear()
        fresh = not self._written or self._written.endswith("\n")
        self._put(f"{'' if fresh else chr(10)}[{words}]\n")

    def failed(self, words: str) -> None:
        """Close what was begun."""
        if self._written or self._line:
            self.ended(words)

    def _clear(self) -> None:
        if self._line:
            self._line = ""
            self._put("\r\x1b[2K")

    def _put(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


_CONTROL: dict[int, Any] = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def _harmless(text: str) -> str:
    """Return `text` without control characters: an answer shall not steer the terminal."""
    return text.translate(_CONTROL)
