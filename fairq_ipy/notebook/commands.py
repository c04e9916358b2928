"""The magics and their words: names, options, values, help texts.

Completion, ``--help`` and parsing read these tables; what each word does stands in `fairq` and `ask`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable

from fairq_ipy.notebook.arguments import Command, Operand, Option

__all__ = ["ASK", "ASK_LINE", "FAIRQ"]

_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?|\.\d+)(?P<unit>ms|s|m|h|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


# ---------------------------------------------------------------------------------------------------------- converters


def _whole(least: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text) or int(text) < least:
            raise ValueError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return convert


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("an empty name")
    return text


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text} is no number from 0 on")
    return value


def _duration(text: str) -> float:
    """Return seconds of ``30s``, ``1.5m``, ``500ms``, ``1h``, or of a plain number of seconds."""
    match = _DURATION.fullmatch(text)
    seconds = float(match["number"]) * _SECONDS[match["unit"]] if match else 0.0
    if seconds <= 0:
        raise ValueError(f"{text!r} is no time above 0, as 500ms, 30s, 2m or 1h")
    return seconds


def _variable(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise ValueError(f"{text!r} is no name for a variable")
    return text


# ---------------------------------------------------------------------------------------------------------------- ask

_TENANT = Option(
    "--tenant", "who asks; without it, the one around the cell or the policy's default", "NAME", _name, "tenants"
)

_ASK_OPTIONS = (
    _TENANT,
    Option("--priority", "a level's number from 0 (soonest) to 9, or its name in the policy", "LEVEL", _name, "levels"),
    Option("--model", "the model; without it, the policy's", "NAME", _name, "models"),
    Option("--system", "a system message; in a chat it replaces the one before", "TEXT", prose=True),
    Option("--chat", "go on with this conversation; it counts as context", "NAME", _name, "chats"),
    Option("--out", "assign the answer to this variable", "VAR", _variable),
    Option("--max-tokens", "the longest answer, in tokens", "N", _whole(1)),
    Option("--temperature", "0 for the likeliest words, higher for more varied ones", "X", _number),
    Option("--timeout", "the longest time for all of it, the queue included: 500ms, 30s, 2m", "TIME", _duration),
    Option("--no-stream", "show the answer when it is whole"),
    Option("--template", "fill in {{ expressions }} of the text from your variables (Jinja2)"),
    Option("--dry-run", "show what would be sent, and send nothing"),
)

ASK = Command(
    "%%ask",
    "Ask the model; the cell's text goes out as it stands, and the answer is the cell's value.",
    _ASK_OPTIONS,
    more="A value with blanks needs quotes; {name} and $name in the first line are filled in from your variables.",
)

ASK_LINE = Command(
    "%ask",
    "Ask the model one line: options first, then the text. `answer = %ask ...` works too.",
    _ASK_OPTIONS,
    text="TEXT",
    more="{name} and $name are filled in from your variables; {{name}} and $$name stay. -- ends the options.",
)

# -------------------------------------------------------------------------------------------------------------- fairq


def _command(
    name: str, summary: str, *operands: Operand, options: tuple[Option, ...] = (), more: str = ""
) -> tuple[str, Command]:
    return name, Command(f"%fairq {name}", summary, options, operands, more=more)


def _path(*, required: bool) -> Operand:
    return Operand("path", "PATH", "a policy file, relative to the working directory", "paths", required)


_WHOM = Operand("tenant", "TENANT", "who; without it, everybody", "tenants")

FAIRQ = Command(
    "%fairq",
    "Look at the queue and steer it. Without a command: status.",
    more="%fairq COMMAND --help says more about each; %%ask asks the model.",
    commands=dict(
        (
            _command("status", "endpoint, slots, queue and tenants at this moment"),
            _command("tenants", "one row for each tenant: weight, level, budgets, counts"),
            _command("policy", "the rules that hold now, and where they come from"),
            _command("load", "use another policy file from now on", _path(required=True)),
            _command("reload", "read the policy file again at once; a saved change is also found by itself"),
            _command(
                "validate",
                "check a policy file and change nothing",
                _path(required=False),
                more="Without PATH: the file in use.",
            ),
            _command("pause", "admit nothing more of a tenant, or of anybody; what runs goes on", _WHOM),
            _command("resume", "admit again", _WHOM),
            _command(
                "guard",
                "calls by clients that were never told of the queue: what becomes of them, and who makes them",
                Operand("mode", "MODE", "on: they wait in the queue, too; warn; block; off", "guards"),
                more="Without MODE: what was seen so far. What is switched here holds until the policy says otherwise.",
            ),
            _command(
                "log",
                "the latest calls",
                options=(
                    Option("--number", "how many calls", "N", _whole(1), short="-n", default=20),
                    Option("--tenant", "only the calls of this tenant", "NAME", _name, "tenants"),
                ),
            ),
            _command(
                "story",
                "what happened to one call",
                Operand("ticket", "TICKET", "number of the call, from %fairq log or from an error", required=True),
            ),
            _command(
                "demo",
                "100 mixed requests to a busy endpoint of its own, without the queue and with it; half a minute",
                options=(
                    Option("--fast", "make all times shorter: about ten seconds"),
                    Option("--seed", "other work of the same kind", "N", _whole(0), default=0),
                ),
            ),
        )
    ),
)
