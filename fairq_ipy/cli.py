"""The ``fairq`` command: check policies, write the first one, see the demo.

Exit status: 0 all is well, 1 something was found or failed, 2 the command line is wrong. Each command imports what it
needs when it runs, so that a check before a commit does not wait for IPython.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from fairq_ipy.errors import Finding

OK, FOUND, USAGE, INTERRUPTED, NO_READER = 0, 1, 2, 130, 141

Parser: TypeAlias = argparse.ArgumentParser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments; those of the process when left out.

    Returns:
        The exit status.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        options = _parser(words).parse_args(words)
        run: Callable[[argparse.Namespace], int] = options.run
        status = run(options)
        sys.stdout.flush()  # a reader that is gone shows here, not in the interpreter's last breath
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # `fairq schema | head`: the rest has no reader; the interpreter must not try to flush it at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER
    return status


def _parser(words: Sequence[str]) -> Parser:
    parser = argparse.ArgumentParser(
        prog="fairq", description="One fair queue for every model call made from a notebook.", allow_abbrev=False
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add = functools.partial(commands.add_parser, allow_abbrev=False)
    _validate_command(add("validate", help="check policies, and say all that is wrong with them"))
    _schema_command(add("schema", help="print the JSON schema of policies"))
    _init_command(add("init", help="write a commented policy to begin with"))
    _demo_command(add("demo", help="see what the queue does"), words)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=kwargs.get("help"))

    def __call__(self, parser: Parser, *_args: object) -> None:
        from importlib.metadata import version

        print(f"fairq {version('fairq-ipy')}")
        parser.exit()


# ------------------------------------------------------------------------------------------------------- validate


def _validate_command(parser: Parser) -> None:
    parser.description = "Check policies. Exits with 1 when something is wrong with one of them."
    parser.add_argument("files", nargs="+", metavar="FILE", help="a policy, such as policies/team.yaml")
    parser.add_argument(
        "--format",
        choices=("text", "json", "github"),
        default="text",
        help="text for people (default), json for programs, github for annotations in a pull request",
    )
    parser.set_defaults(run=_validate)


def _validate(options: argparse.Namespace) -> int:
    from fairq_ipy.errors import PolicyError
    from fairq_ipy.policy import load

    findings: dict[str, tuple[Finding, ...]] = {}
    for file in options.files:
        try:
            load(file)
        except PolicyError as error:
            findings[file] = error.findings
        else:
            findings[file] = ()
    _SHOW[options.format](findings)
    return FOUND if any(findings.values()) else OK


def _as_text(findings: dict[str, tuple[Finding, ...]]) -> None:
    """Print where, what, and under it what to write instead."""
    for file, found in findings.items():
        if not found:
            _say(f"{file}: good")
        for finding in found:
            path = f"{finding.path}: " if finding.path else ""
            _say(f"{finding.file}:{finding.line}:{finding.column}: {path}{finding.message}")
            if finding.hint:
                _say(f"    {finding.hint}")
    if count := sum(map(len, findings.values())):
        bad = sum(map(bool, findings.values()))
        _say(f"{_counted(count, 'problem')} in {bad} of {_counted(len(findings), 'file')}")


def _as_json(findings: dict[str, tuple[Finding, ...]]) -> None:
    """Print one list of objects."""
    names = ("file", "line", "column", "path", "message", "hint")
    every = [{name: getattr(each, name) for name in names} for found in findings.values() for each in found]
    _say(json.dumps(every, indent=2))


def _as_github(findings: dict[str, tuple[Finding, ...]]) -> None:
    """Print workflow commands, which show as annotations on the lines of a pull request."""
    for found in findings.values():
        for each in found:
            hint = f"\n{each.hint}" if each.hint else ""
            properties = {"file": each.file, "line": each.line, "col": each.column, "title": each.path or "policy"}
            where = ",".join(f"{name}={_escaped(str(value), ':,')}" for name, value in properties.items())
            _say(f"::error {where}::{_escaped(each.message + hint)}")


def _escaped(text: str, separators: str = "") -> str:
    """Return text as a workflow command takes it; inside of a property its separators are escaped as well."""
    return "".join(f"%{ord(sign):02X}" if sign in f"%\r\n{separators}" else sign for sign in text)


_SHOW = {"text": _as_text, "json": _as_json, "github": _as_github}


# --------------------------------------------------------------------------------------------------------- schema


def _schema_command(parser: Parser) -> None:
    parser.description = "Print the JSON schema of policies, for editors and for checks in other languages."
    parser.set_defaults(run=_schema)


def _schema(_options: argparse.Namespace) -> int:
    from fairq_ipy.policy.schema import text

    _say(text().rstrip("\n"))
    return OK


# ----------------------------------------------------------------------------------------------------------- init


def _init_command(parser: Parser) -> None:
    parser.description = "Write a commented policy, and the schema beside it from which editors complete and explain."
    parser.add_argument("--endpoint", metavar="URL", help="the server, such as http://localhost:8000/v1, or demo")
    parser.add_argument(
        "--path",
        metavar="FILE",
        type=Path,
        default=Path("policies", "team.yaml"),
        help="where to write it (default: policies/team.yaml)",
    )
    parser.add_argument("--force", action="store_true", help="overwrite what is there")
    parser.set_defaults(run=_init)


def _init(options: argparse.Namespace) -> int:
    from fairq_ipy.errors import PolicyError
    from fairq_ipy.policy import starter

    try:
        written = starter.write(options.path, endpoint=options.endpoint, overwrite=options.force)
    except PolicyError as error:
        return _complain(f"--endpoint: {error.findings[0].message}", error.findings[0].hint, USAGE)
    except FileExistsError as error:
        return _complain(
            f"{error.filename} is there already", "--force overwrites it, --path writes another file", FOUND
        )
    except OSError as error:
        return _complain(f"{options.path} cannot be written: {error.strerror}", "", FOUND)
    for path in written:
        _say(f"wrote {path}")
    _say(f'edit it, check it with `fairq validate "{options.path}"`; notebooks find it at `%load_ext fairq_ipy`')
    return OK


# ----------------------------------------------------------------------------------------------------------- demo


def _demo_command(parser: Parser, words: Sequence[str]) -> None:
    """Hand the parser to the demo, which no other command imports."""
    if words[:1] == ["demo"]:
        command = importlib.import_module("fairq_ipy.demo.command")
        command.add_arguments(parser)
        parser.set_defaults(run=command.main)


# ---------------------------------------------------------------------------------------------------------- words


def _complain(message: str, hint: str, status: int) -> int:
    print(f"fairq: {message}{f' ({hint})' if hint else ''}", file=sys.stderr)
    return status


def _say(line: str) -> None:
    """Print a line; what the terminal's encoding lacks shows as an escape instead of ending the program."""
    encoding = sys.stdout.encoding or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding))


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


if __name__ == "__main__":
    sys.exit(main())
