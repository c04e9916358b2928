"""Tab completion of the magics, from the same tables that parse them.

Registered as one of the completer's custom matchers (IPython 8.6 and later) and removed with the extension. It looks at
the line of the cursor only, and never into the text of a ``%%ask`` cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

from fairq_ipy.notebook.arguments import Command, Kind, Option, is_option
from fairq_ipy.notebook.commands import ASK, ASK_LINE, FAIRQ
from fairq_ipy.notebook.line import Word, scan

__all__ = ["Values", "candidates", "matcher", "paths"]

Values: TypeAlias = Mapping[Kind, Callable[[], Iterable[str]]]
"""What completes each kind of value, asked when it is needed. Paths complete by themselves."""

Matcher: TypeAlias = Callable[[CompletionContext], dict[str, Any]]
_Found: TypeAlias = tuple[str, list[str]] | None

_MAGIC = re.compile(r"(?:^|\s*[\w.]+\s*=)\s*(?P<magic>%%?(?:ask|fairq))(?P<rest>\s.*)$", re.DOTALL)
_COMMANDS = {command.name: command for command in (ASK, ASK_LINE, FAIRQ)}


def matcher(values: Values) -> Matcher:
    """Return the matcher to append to ``shell.Completer.custom_matchers``."""

    @context_matcher()  # type: ignore[untyped-decorator]  # IPython publishes it without types
    def fairq_matcher(context: CompletionContext) -> dict[str, Any]:
        fragment, found = ("", []) if _in_cell_body(context) else candidates(context.text_until_cursor, values)
        completions = [SimpleCompletion(text=text, type="param") for text in found]
        return {"completions": completions, "matched_fragment": fragment, "suppress": bool(found), "ordered": True}

    return cast("Matcher", fairq_matcher)


def _in_cell_body(context: CompletionContext) -> bool:
    """Return whether the cursor is in the text of a cell magic, which is not ours to complete."""
    cell = context.full_text.lstrip()
    blank_lines = context.full_text[: len(context.full_text) - len(cell)].count("\n")
    return cell.startswith("%%") and context.cursor_line > blank_lines


@dataclass(frozen=True, slots=True)
class _Position:
    """Where the cursor stands.

    Attributes:
        command: whose arguments are being typed.
        words: the finished words of it.
        typed: the word at the cursor, without its quotes; empty between words.
        fragment: the same as it stands in the line.
        quoted: whether it begins with a quote.
    """

    command: Command
    words: tuple[Word, ...]
    typed: str
    fragment: str
    quoted: bool


def candidates(line: str, values: Values) -> tuple[str, list[str]]:
    """Return what of `line`, up to the cursor, is replaced, and by what it can be."""
    position = _locate(line)
    if position is not None:
        for rule in (_value_after_blank, _value_after_equals, _option_names, _command_names, _operand):
            found = rule(position, values)
            if found is not None:
                return found
    return "", []


def _locate(line: str) -> _Position | None:
    match = _MAGIC.match(line)
    if match is None:
        return None
    command, rest = _COMMANDS[match["magic"]], match["rest"]
    found = scan(rest)
    words = list(found.words)
    current = words.pop() if words and (found.open_quote or words[-1].end == len(rest)) else None
    if command.commands and words:
        chosen = command.commands.get(words.pop(0).text)
        if chosen is None:
            return None
        command = chosen
    if current is None:
        return _Position(command, tuple(words), "", "", quoted=False)
    return _Position(command, tuple(words), current.text, rest[current.start :], current.quoted)


def _value_after_blank(at: _Position, values: Values) -> _Found:
    option = _awaits_value(at.command, at.words)
    return (at.fragment, _values(option.kind, at.typed, values)) if option else None


def _value_after_equals(at: _Position, values: Values) -> _Found:
    name, equals, value = at.typed.partition("=")
    if at.quoted or not equals or not name.startswith("-"):
        return None
    option = at.command.option(name)
    return at.fragment[len(name) + 1 :], _values(option.kind, value, values) if option else []


def _option_names(at: _Position, values: Values) -> _Found:  # noqa: ARG001 - one signature for all rules
    in_text = bool(at.command.text) and _operands_given(at) > 0
    if at.quoted or in_text or not at.typed.startswith("-"):
        return None
    given = {word.text.partition("=")[0] for word in at.words}
    return at.fragment, [name for name in at.command.typed() if name not in given and name.startswith(at.typed)]


def _command_names(at: _Position, values: Values) -> _Found:  # noqa: ARG001 - one signature for all rules
    names = [name for name in at.command.commands if name.startswith(at.typed)]
    return (at.fragment, names) if at.command.commands else None


def _operand(at: _Position, values: Values) -> _Found:
    operands = at.command.operands[_operands_given(at) :]
    if operands:
        return at.fragment, _values(operands[0].kind, at.typed, values)
    return ("", at.command.typed()) if not at.typed and not at.command.text else None


def _awaits_value(command: Command, words: Sequence[Word]) -> Option | None:
    """Return the option whose value comes after `words`."""
    if not words or not is_option(words[-1]) or "=" in words[-1].text:
        return None
    option = command.option(words[-1].text)
    return option if option and option.metavar else None


def _operands_given(at: _Position) -> int:
    given = [
        word
        for number, word in enumerate(at.words)
        if not is_option(word) and _awaits_value(at.command, at.words[:number]) is None
    ]
    return len(given)


def _values(kind: Kind | None, typed: str, values: Values) -> list[str]:
    if kind is None:
        return []
    found = paths(typed) if kind == "paths" else list(dict.fromkeys(str(value) for value in values[kind]()))
    return [_quoted(value) for value in found if value.startswith(typed)]


def _quoted(value: str) -> str:
    """Return `value` as it must be typed."""
    if value and not any(char.isspace() or char in "\"'" for char in value) and not value.startswith("-"):
        return value
    quote = '"' if '"' not in value else "'"
    return f"{quote}{value}{quote}"


def paths(typed: str) -> list[str]:
    """Return policy files and folders whose path begins with `typed`."""
    head = typed[: max(typed.rfind("/"), typed.rfind("\\")) + 1]
    folder = Path(head).expanduser() if head else Path()
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    found = [head + entry.name + "/" * entry.is_dir() for entry in entries if not entry.name.startswith(".")]
    return [path for path in found if path.startswith(typed) and path.endswith(("/", ".yaml", ".yml"))]
