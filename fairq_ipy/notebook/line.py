r"""Words of a magic line: how it is split, and how ``{name}`` in it is filled in.

The rules are those that a person expects who has never read them:

- Blanks separate words. A quote at the start of a word, or right after the ``=`` of an option, keeps blanks; anywhere
  else it is a character, so ``It's`` is a word.
- A backslash is a character, always: ``C:\data\my.yaml`` arrives as it was typed, on every platform.
- ``{expression}`` and ``$name`` are filled in from the caller's variables *after* the line was split, so that a value
  with blanks or quotes in it stays one word. One that cannot be filled in is an error: `shell.var_expand`, which
  IPython would use, leaves the braces and goes on, and a mistyped ``{name}`` would become a tenant of that name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

__all__ = ["Scan", "Word", "fill", "scan", "unclosed"]

_QUOTES = "\"'"

_FIELD = re.compile(
    r"""\{\{(?P<kept>\s*[A-Za-z_][^{}]*)\}\}                                   # {{name}}: braces that stay
      | \{\s*(?P<code>[A-Za-z_][^{}]*?)(?:!(?P<how>[rsa]))?(?::(?P<spec>[^{}]*))?\}  # {expression!r:spec}
      | \$\$(?P<dollar>[A-Za-z_]\w*)                                           # $$name: a dollar that stays
      | \$(?P<name>[A-Za-z_]\w*)                                               # $name
      | (?P<brace>[{}])                                                        # a brace that is none of these""",
    re.VERBOSE,
)
_CONVERSIONS: dict[str, Callable[[object], str]] = {"r": repr, "s": str, "a": ascii}


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a line.

    Attributes:
        text: the word without its quotes.
        start, end: where it stands in the line, quotes included.
        quoted: whether it begins with a quote, so that it is a value whatever it looks like.
    """

    text: str
    start: int
    end: int
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Scan:
    """The words of a line; `open_quote` is the quote that was opened and not closed, or empty."""

    words: tuple[Word, ...]
    open_quote: str = ""


def scan(line: str) -> Scan:
    """Split `line` into words, also while it is being typed; never fails."""
    words: list[Word] = []
    at, end = 0, len(line)
    while True:
        while at < end and line[at].isspace():
            at += 1
        if at == end:
            return Scan(tuple(words))
        start, text, quote = at, "", ""
        while at < end and (quote or not line[at].isspace()):
            char = line[at]
            if quote:
                if char == quote:
                    quote = ""
                else:
                    text += char
            elif char in _QUOTES and _opens(line, start, at):
                quote = char
            else:
                text += char
            at += 1
        words.append(Word(text, start, at, line[start] in _QUOTES))
        if quote:
            return Scan(tuple(words), quote)


def _opens(line: str, start: int, at: int) -> bool:
    """Return whether the quote at `at` opens a quoted part of the word that begins at `start`."""
    if at == start:
        return True
    before = line[at - 1]
    is_value = before == "=" and line[start] == "-" and "=" not in line[start : at - 1]
    return is_value or (before in _QUOTES and line[start] in _QUOTES)


def unclosed(who: str, line: str, found: Scan) -> str:
    """Return the sentence about the quote of `line` that was opened and not closed."""
    return f"{who}: the quote {found.open_quote} is not closed in: {line[found.words[-1].start :]}"


def fill(text: str, names: Mapping[str, Any], who: str, *, prose: bool = False) -> str:
    """Fill in ``{expression}`` and ``$name``.

    Args:
        text: one word, or the text of a question.
        names: the caller's variables.
        who: the magic, for the message.
        prose: whether `text` is meant for a model: what is no Python expression, as ``{"a": 1}``, and a ``$HOME`` that
            is no variable then stay as they are. In an argument both are errors.

    Raises:
        UsageError: when something cannot be filled in.
    """

    def value(match: re.Match[str]) -> str:
        if match["kept"] is not None:
            return "{" + match["kept"] + "}"
        if match["dollar"] is not None:
            return "$" + match["dollar"]
        if match["name"] is not None and match["name"] in names:
            return str(names[match["name"]])
        if match["code"] is not None and _is_expression(match["code"]):
            return _evaluate(match, names, who)
        if prose:
            return match[0]
        raise UsageError(f"{who}: {match[0]} in {text} cannot be filled in; there is no such variable")

    return _FIELD.sub(value, text)


def _is_expression(code: str) -> bool:
    try:
        ast.parse(code.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True


def _evaluate(match: re.Match[str], names: Mapping[str, Any], who: str) -> str:
    """Return the value of one ``{expression}``, which is the user's own code, as IPython's own expansion runs it."""
    try:
        found = eval(match["code"].strip(), dict(names))  # noqa: S307 - the user's own line in the user's own notebook
        if match["how"]:
            found = _CONVERSIONS[match["how"]](found)
        return format(found, match["spec"] or "")
    except Exception as failure:
        hint = f"write {{{match[0]}}} for the braces themselves"
        raise UsageError(f"{who}: {match[0]} cannot be filled in ({failure}); {hint}") from failure
