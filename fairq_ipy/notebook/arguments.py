"""What a magic takes, written down once: parsing, ``--help`` and tab completion all read the same `Command`.

`argparse` was the first choice and did not survive its own rules: a value that starts with ``-`` is taken for an
option, an error is printed and exits, an unknown option hides the nearest right one, and completion would need its
private attributes. Errors here are exactly `UsageError`, which IPython shows as one line; a subclass of it would get a
traceback.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from IPython.core.error import UsageError

from fairq_ipy.notebook.line import Scan, Word, fill, scan, unclosed

__all__ = ["Command", "Kind", "Operand", "Option", "Parsed", "is_option", "nearest", "unknown"]

Kind: TypeAlias = Literal["tenants", "levels", "models", "chats", "guards", "paths"]
"""What completes a value."""

_HELP = ("--help", "-h")
_WIDTH = 88
_MARGIN = 26


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: as it is typed, ``--max-tokens``; the result carries it as ``max_tokens``.
        help: what it does.
        metavar: placeholder of its value; ``None`` for a switch.
        convert: from text to value; raises ValueError with the sentence that is shown.
        kind: what completes the value.
        short: its one-letter form.
        default: the value when it is not given.
        prose: whether the value is text for a model, in which braces may be themselves.
    """

    name: str
    help: str
    metavar: str | None = None
    convert: Callable[[str], Any] = str
    kind: Kind | None = None
    short: str = ""
    default: Any = None
    prose: bool = False

    @property
    def key(self) -> str:
        """Name in the result."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def usage(self) -> str:
        """How it is typed."""
        return f"{self.name} {self.metavar}" if self.metavar else self.name


@dataclass(frozen=True, slots=True)
class Operand:
    """A value without an option's name; see `Option` for the attributes."""

    key: str
    metavar: str
    help: str
    kind: Kind | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Parsed:
    """What was typed: `values` by key, and `text`, the rest of the line where the command takes one.

    `help` is the help text when it was asked for; nothing else counts then.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    help: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """A magic, or one word of a magic that has several.

    Attributes:
        name: as it is typed, ``%fairq pause``.
        summary: one line.
        options: what it takes by name.
        operands: what it takes by place.
        text: placeholder of the free text that ends the line; empty when there is none.
        more: further lines of the help text.
        commands: its words, by name, when it is a magic that has several.
    """

    name: str
    summary: str
    options: tuple[Option, ...] = ()
    operands: tuple[Operand, ...] = ()
    text: str = ""
    more: str = ""
    commands: Mapping[str, Command] = field(default_factory=dict)

    def option(self, name: str) -> Option | None:
        """Return the option that is typed as `name`."""
        return next((option for option in self.options if name in (option.name, option.short)), None)

    def typed(self) -> list[str]:
        """Return all that can be typed as an option."""
        return [*(option.name for option in self.options), _HELP[0]]

    def parse(self, line: str, names: Mapping[str, Any]) -> Parsed:
        """Read `line`, what follows the command's name.

        Args:
            line: as it was typed.
            names: the caller's variables, for ``{expression}`` and ``$name``.

        Raises:
            UsageError: one line that says what is wrong and what is right.
        """
        found = scan(line)
        if found.open_quote and not self.text:
            raise UsageError(unclosed(self.name, line, found))
        return _Reading(self, line, found, names).result()

    def usage(self) -> str:
        """Return the line that shows how it is typed, wrapped between its parts."""
        parts = [f"[{option.usage}]" for option in self.options]
        parts += [operand.metavar if operand.required else f"[{operand.metavar}]" for operand in self.operands]
        parts += ["[COMMAND ...]"] * bool(self.commands) + [self.text] * bool(self.text)
        lines = [f"usage: {self.name}"]
        for part in parts:
            if len(lines[-1]) + len(part) < _WIDTH:
                lines[-1] += f" {part}"
            else:
                lines.append(" " * len(f"usage: {self.name} ") + part)
        return "\n".join(lines)

    def help(self) -> str:
        """Return the whole help text."""
        rows = [(operand.metavar, operand.help) for operand in self.operands]
        rows += [(name, command.summary) for name, command in self.commands.items()]
        rows += [(f"{option.short}, " * bool(option.short) + option.usage, option.help) for option in self.options]
        rows += [(", ".join(reversed(_HELP)), "show this text")]
        texts = [textwrap.fill(text, _WIDTH) for text in (self.summary, self.more) if text]
        return "\n\n".join([self.usage(), *texts, _columns(rows)])


def _columns(rows: Iterable[tuple[str, str]]) -> str:
    """Lay out names and their texts in two columns; a long name gets a line of its own."""
    lines: list[str] = []
    for name, text in rows:
        body = textwrap.wrap(text, _WIDTH - _MARGIN) or [""]
        head = f"  {name} ".ljust(_MARGIN)
        if len(head) > _MARGIN:
            lines.append(head.rstrip())
            head = " " * _MARGIN
        lines += [head + body[0], *(" " * _MARGIN + piece for piece in body[1:])]
    return "\n".join(lines)


class _Reading:
    """One pass over the words of a line."""

    def __init__(self, command: Command, line: str, found: Scan, names: Mapping[str, Any]) -> None:
        self.command = command
        self.line = line
        self.words = found.words if command.text else _without_semicolon(line, found.words)
        self.unclosed = unclosed(command.name, line, found) if found.open_quote else ""
        self.names = names
        self.at = 0
        self.values: dict[str, Any] = {}
        self.given: list[str] = []

    def result(self) -> Parsed:
        """Read options up to the first word that is none, then the operands or the text."""
        plain = False
        while self.at < len(self.words):
            word = self.words[self.at]
            if plain or not is_option(word):
                if self.command.text:
                    return self._finish(self.line[word.start :])
                self.given.append(fill(self._take().text, self.names, self.command.name))
            elif word.text.rstrip(";") in _HELP:
                return Parsed(help=self.command.help())
            elif self._take().text == "--":
                plain = True
            else:
                self._option(word)
        return self._finish("")

    def _take(self) -> Word:
        self.at += 1
        if self.unclosed and self.at == len(self.words):  # only the last word can have an open quote
            raise UsageError(self.unclosed)
        return self.words[self.at - 1]

    def _option(self, word: Word) -> None:
        who = self.command.name
        name, equals, value = word.text.partition("=")
        option = self.command.option(name)
        if option is None:
            raise UsageError(unknown(who, "option", name, self.command.typed()))
        if option.key in self.values:
            raise UsageError(f"{who}: {option.name} is given twice")
        if option.metavar is None:
            if equals:
                raise UsageError(f"{who}: {option.name} takes no value")
            self.values[option.key] = True
            return
        if not equals:
            value = self._value(option)
        try:
            self.values[option.key] = option.convert(fill(value, self.names, who, prose=option.prose))
        except ValueError as failure:
            raise UsageError(f"{who}: {option.name}: {failure}") from failure

    def _value(self, option: Option) -> str:
        following = self.words[self.at] if self.at < len(self.words) else None
        if following is None or (is_option(following) and self.command.option(following.text.partition("=")[0])):
            raise UsageError(f"{self.command.name}: {option.name} needs a value, as in {option.usage}")
        return self._take().text

    def _finish(self, text: str) -> Parsed:
        command, given = self.command, self.given
        if len(given) > len(command.operands):
            extra = " ".join(given[len(command.operands) :])
            hint = f"a value with blanks needs quotes; {command.name} --help says more"
            raise UsageError(f"{command.name}: {extra!r} is too much here; {hint}")
        if len(given) < sum(operand.required for operand in command.operands):
            raise UsageError(f"{command.name}: {command.operands[len(given)].metavar} is missing; {command.usage()}")
        values = {option.key: option.default if option.metavar else False for option in command.options} | self.values
        for at, operand in enumerate(command.operands):
            values[operand.key] = given[at] if at < len(given) else None
        return Parsed(values, fill(text, self.names, command.name, prose=True))


def _without_semicolon(line: str, words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Drop the ``;`` at the end, with which notebook users ask for silence: it belongs to no argument."""
    if not words or not line.rstrip().endswith(";"):
        return words
    last = words[-1]
    shorter = Word(last.text[:-1], last.start, last.end - 1, last.quoted)
    return (*words[:-1], shorter) if shorter.text else words[:-1]


def is_option(word: Word) -> bool:
    """Return whether a word is meant as an option: ``-n``, ``--tenant=x``; but not ``-1``, and not ``"-n"``."""
    text = word.text
    return not word.quoted and text[:1] == "-" and (text[1:2] == "-" or text[1:2].isalpha())


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that `name` was most likely meant to be; empty when none is near."""
    by_case = {each.casefold(): each for each in known}
    found = difflib.get_close_matches(name.casefold(), list(by_case), n=1)
    return by_case[found[0]] if found else ""


def unknown(who: str, what: str, name: str, known: Sequence[str]) -> str:
    """Return the sentence about a name that is not known: the nearest one, or all of them."""
    best = nearest(name, known)
    hint = f"did you mean {best}?" if best else f"there are {', '.join(known)}" if known else "there is none yet"
    return f"{who}: there is no {what} {name!r}; {hint}"
