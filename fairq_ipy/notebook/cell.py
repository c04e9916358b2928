"""What the user typed into a cell, byte for byte.

IPython hands a cell magic its text after its clean-ups: blanks on empty lines are gone, a doctest's ``>>>`` is taken
for a prompt and removed, a line end is added. For code that is kind; for a question it changes what is asked. So the
cell is kept as it came, and used whenever the magic's text is that cell's.

Two more habits of IPython are mended here with the means it offers for that (input transformers): a line that ends with
``?`` asks for help on its last word, also in ``%ask What is a monad?``; and ``%%ask --help`` without a second line is
refused before the magic is asked.
"""

from __future__ import annotations

import re
import tokenize
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from IPython.core.inputtransformer2 import EscapedCommand, MagicAssign, TokenTransformBase

__all__ = ["CellText", "QuestionLine", "lone_cell_magic"]

_FIRST_LINE: Final = re.compile(r"(?:[^\S\n]*\n)*[^\S\n]*%%ask(?P<line>[^\n]*)\n(?P<body>.*)", re.DOTALL)
_LONE: Final = re.compile(r"%%ask(?:\s|$)")


_Escaped: Final[Any] = EscapedCommand  # published without types
_Assigned: Final[Any] = MagicAssign


class _Info(Protocol):
    """What IPython tells its ``pre_run_cell`` callbacks."""

    @property
    def raw_cell(self) -> str:
        """The cell as it came."""


class CellText:
    """Remembers the cell that runs.

    Args:
        transform: the shell's ``transform_cell``.

    Attributes:
        number: tells one run of a cell from the next.
    """

    def __init__(self, transform: Callable[[str], str]) -> None:
        self._transform = transform
        self._raw = ""
        self.number = 0

    def pre_run_cell(self, info: _Info) -> None:
        """Keep the cell; a callback for the event of that name."""
        self._raw = info.raw_cell or ""
        self.number += 1

    def body(self, line: str, cell: str) -> str:
        """Return the text below ``%%ask`` as it was typed.

        Args:
            line: what IPython handed to the magic as its first line.
            cell: likewise, as its text. Where IPython does not make exactly these two of the cell that runs (a magic
                in a magic, a call from code), this is what there is.
        """
        match = _FIRST_LINE.fullmatch(self._raw)
        call = f"get_ipython().run_cell_magic({'ask'!r}, {line!r}, {cell!r})\n"
        return match["body"] if match and self._transform(self._raw) == call else cell


def lone_cell_magic(lines: list[str]) -> list[str]:
    """Let ``%%ask`` without a text reach the magic, which knows what to say."""
    return [*lines, "\n"] if len(lines) == 1 and _LONE.match(lines[0]) else lines


# In a terminal the same clean-ups decide whether a cell is complete, and there more lines may follow.
lone_cell_magic.has_side_effects = True  # type: ignore[attr-defined]  # the name that IPython looks for


class QuestionLine(TokenTransformBase):
    """Makes ``%ask What is a monad?`` a question to the model, and leaves ``%ask?`` a question to IPython."""

    priority = 4  # before HelpEnd, which has 5 and takes each line that ends with a question mark

    def __init__(self, start: tuple[int, int], command: TokenTransformBase) -> None:
        super().__init__(start)  # type: ignore[no-untyped-call]  # published without types
        self._command = command

    @classmethod
    def find(cls, tokens_by_line: Sequence[Sequence[tokenize.TokenInfo]]) -> QuestionLine | None:
        """Return the first such line, as IPython asks for it."""
        for line in tokens_by_line:
            tokens = [token for token in line if token.type not in {tokenize.INDENT, tokenize.DEDENT}]
            at = next((at for at in range(len(tokens) - 1) if _is_ask(tokens, at)), None)
            if at is None or len(tokens) < at + 5 or tokens[-2].string != "?":  # %, ask, a word, ?, NEWLINE
                continue
            if at == 0:
                return cls(tokens[0].start, _Escaped(tokens[0].start))
            if tokens[at - 1].string == "=":
                return cls(tokens[0].start, _Assigned(tokens[at].start))
        return None

    def transform(self, lines: list[str]) -> list[str]:
        """Do what IPython does with a magic that ends otherwise."""
        return list(self._command.transform(lines))


def _is_ask(tokens: Sequence[tokenize.TokenInfo], at: int) -> bool:
    """Return whether ``%ask`` and a blank stand there."""
    percent, name = tokens[at], tokens[at + 1]
    if (percent.string, name.string) != ("%", "ask") or percent.end != name.start:
        return False
    return at + 2 < len(tokens) and tokens[at + 2].start != name.end
