"""A short output, described once and shown as plain text or as HTML.

What a magic returns is a `Document`: paragraphs, tables and blocks of text. The terminal, ``nbconvert`` to text and a
screen reader get the same facts as the notebook. A document holds texts only, so a saved or kept one never changes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from fairq_ipy.notebook.html import Html, page, tag

__all__ = ["Block", "Cell", "Chip", "Document", "Lines", "Number", "Paragraph", "Pre", "Printer", "Table", "shorten"]

Tone: TypeAlias = Literal["good", "busy", "warn", "bad", "idle"]


@dataclass(frozen=True, slots=True)
class Chip:
    """A state in one or two words; its tone is a colour beside the words, never instead of them."""

    text: str
    tone: Tone = "idle"


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a table, as it is shown."""

    text: str


Cell: TypeAlias = str | Chip | Number


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One sentence or line; a soft one is of less weight."""

    text: str
    soft: bool = False
    chip: Chip | None = None

    def as_text(self) -> str:
        """Return it as text."""
        return f"{self.chip.text}: {self.text}" if self.chip else self.text

    def as_html(self) -> Html:
        """Return it as an element."""
        return tag("p", [_chip(self.chip), ": "] if self.chip else [], self.text, cls="fq-soft" if self.soft else "")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings; each row has as many cells as there are headings."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def as_text(self) -> str:
        """Return columns of equal width, numbers to the right."""
        cells = [[_plain(cell) for cell in row] for row in self.rows]
        numeric = [any(isinstance(row[at], Number) for row in self.rows) for at in range(len(self.headings))]
        widths = [max(map(_width, column)) for column in zip(self.headings, *cells, strict=True)]
        lines = [self.headings, *cells]
        return "\n".join("  ".join(map(_pad, line, widths, numeric)).rstrip() for line in lines)

    def as_html(self) -> Html:
        """Return a table that scrolls by itself where it is wider than the cell."""
        numeric = [any(isinstance(row[at], Number) for row in self.rows) for at in range(len(self.headings))]
        classes = ["fq-n" if right else "" for right in numeric]
        head = tag("tr", [tag("th", text, cls=cls) for text, cls in zip(self.headings, classes, strict=True)])
        body = [tag("tr", [_td(cell, cls) for cell, cls in zip(row, classes, strict=True)]) for row in self.rows]
        return tag("div", tag("table", tag("thead", head), tag("tbody", body)), cls="fq-scroll")


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines that belong together, one under the other."""

    lines: tuple[str, ...]

    def as_text(self) -> str:
        """Return them as they are."""
        return "\n".join(self.lines)

    def as_html(self) -> Html:
        """Return one paragraph for each."""
        return tag("div", [tag("p", line) for line in self.lines])


@dataclass(frozen=True, slots=True)
class Pre:
    """Text whose blanks and line ends count."""

    text: str

    def as_text(self) -> str:
        """Return it as it is."""
        return self.text

    def as_html(self) -> Html:
        """Return it as a block."""
        return tag("pre", self.text)


Block: TypeAlias = Paragraph | Table | Lines | Pre


class Printer(Protocol):
    """What IPython hands to `_repr_pretty_`."""

    def text(self, text: str) -> object:
        """Add `text`."""


class Document:
    """What a magic shows; two documents that show the same are equal."""

    def __init__(self, *blocks: Block) -> None:
        self.blocks = blocks

    def __str__(self) -> str:
        """Return the plain text."""
        return "\n".join(block.as_text() for block in self.blocks)

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return self.blocks == other.blocks if isinstance(other, Document) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # compared in tests, never a key

    def _repr_html_(self) -> str:
        return page(block.as_html() for block in self.blocks)

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:  # noqa: ARG002, FBT001 - IPython's signature
        printer.text(str(self))


def shorten(text: str, most: int = 60) -> str:
    """Return `text` on one line, without control characters, cut to `most` characters."""
    flat = "".join(" " if char.isspace() else char for char in text if char.isspace() or char.isprintable())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def _plain(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


def _chip(chip: Chip) -> Html:
    return tag("span", chip.text, cls=f"fq-chip fq-{chip.tone}")


def _td(cell: Cell, cls: str) -> Html:
    return tag("td", _chip(cell) if isinstance(cell, Chip) else _plain(cell), cls=cls)


def _width(text: str) -> int:
    """Return how many columns of a terminal `text` takes."""
    return sum(0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF") for char in text)


def _pad(text: str, width: int, right: Sequence[bool] | bool) -> str:  # noqa: FBT001 - a column's alignment
    blanks = " " * (width - _width(text))
    return blanks + text if right else text + blanks
