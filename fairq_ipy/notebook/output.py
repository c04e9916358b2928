"""How a cell is told something: by a line of text, or by a document. All printing of the notebook is here."""

from __future__ import annotations

import sys

from IPython.display import display

from fairq_ipy.notebook.document import Document

__all__ = ["say", "show", "warn"]


def say(text: str) -> None:
    """Print to the cell."""
    print(text)  # noqa: T201 - this is where the notebook prints


def warn(text: str) -> None:
    """Print to the cell as something that asks for attention."""
    print(text, file=sys.stderr)  # noqa: T201 - as above


def show(document: Document) -> None:
    """Show a document in the cell, before and beside its value."""
    display(document)  # type: ignore[no-untyped-call]  # published without types
