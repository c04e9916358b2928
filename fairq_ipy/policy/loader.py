"""From a file to `Settings`, or to every finding at once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from fairq_ipy.policy import build, explain, sense, yaml12
from fairq_ipy.policy.report import MOST, Report
from fairq_ipy.policy.schema import Checker
from fairq_ipy.policy.settings import Settings
from fairq_ipy.policy.tree import START, Node, plain
from fairq_ipy.policy.tree import Path as TreePath
from fairq_ipy.policy.wording import SURELY_SECRET

BUILT_IN = """\
version: 1
endpoint:
  base_url: ${FAIRQ_BASE_URL:-demo}
  api_key_env: FAIRQ_API_KEY
"""
"""What holds without a file; everything it does not say is the default of the core."""


def load(path: str | os.PathLike[str], *, environ: Mapping[str, str] | None = None) -> Settings:
    """Read a policy file.

    Args:
        path: the file; ``~`` is the home folder.
        environ: where ``${NAME}`` comes from; the process's environment when left out.

    Raises:
        PolicyError: with everything that is wrong with it, or why it cannot be read.
    """
    name = os.fspath(path)
    return from_bytes(read_bytes(name), name, environ=environ)


def loads(text: str, name: str = "policy", *, environ: Mapping[str, str] | None = None) -> Settings:
    """Read a policy from text; `name` stands for the file in its findings.

    Raises:
        PolicyError: with everything that is wrong with it.
    """
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return _settings(text, Report(name), digest, None, os.environ if environ is None else environ)


def builtin(*, environ: Mapping[str, str] | None = None) -> Settings:
    """Return what holds without a file: the demo endpoint, or the one that ``FAIRQ_BASE_URL`` names.

    Raises:
        PolicyError: when ``FAIRQ_BASE_URL`` is no URL.
    """
    return loads(BUILT_IN, "built-in policy", environ=environ)


def read_bytes(name: str) -> bytes:
    """Return the content of a policy file, up to a little more than a policy may have.

    Raises:
        PolicyError: when there is no such file, or it cannot be read.
    """
    report = Report(name)
    try:
        with Path(name).expanduser().open("rb") as file:
            return file.read(
                4 * yaml12.LONGEST + 4
            )  # a character has up to four bytes; the mark at the start has three
    except FileNotFoundError:
        report.refuse(START, "there is no such file", "`fairq init` writes a policy to begin with")
    except IsADirectoryError:
        report.refuse(START, "this is a folder", "name the file in it, such as policies/team.yaml")
    except (OSError, ValueError, RuntimeError) as error:  # the name holds a NUL; there is no home folder
        reason = error.strerror if isinstance(error, OSError) else str(error)
        report.refuse(START, f"the file cannot be read: {reason}")


def from_bytes(raw: bytes, name: str, *, environ: Mapping[str, str] | None = None) -> Settings:
    """Read a policy from the content of the file `name`.

    Raises:
        PolicyError: with everything that is wrong with it.
    """
    report = Report(name)
    source = Path(name).expanduser().absolute()
    text = yaml12.decoded(raw, report)
    return _settings(text, report, digest_of(raw), source, os.environ if environ is None else environ)


def digest_of(raw: bytes) -> str:
    """Return what tells one content of a file from another."""
    return hashlib.sha256(raw).hexdigest()


def _settings(text: str, report: Report, digest: str, source: Path | None, environ: Mapping[str, str]) -> Settings:
    root = yaml12.read(text, report)
    checker = Checker.of_policies()
    bad = _held_against(checker, root, text, report)
    data = plain(root, bad)
    if isinstance(data, Mapping):
        sense.look(sense.Document(root, data, bad, checker.variables(), environ), report)
    report.close()
    return Settings(
        endpoint=build.endpoint(data, environ),
        rules=build.rules(data),
        time_zone=data.get("time_zone", "UTC"),
        source=source,
        digest=digest,
        guard=data.get("guard", "warn"),
    )


def _held_against(checker: Checker, root: Node, text: str, report: Report) -> frozenset[TreePath]:
    """Report what the schema refuses, and secrets wherever they stand; return the paths that it refuses."""
    problems = sorted(checker.problems(root), key=lambda problem: problem.mark)
    for problem in problems[:MOST]:
        explain.explain(problem, checker, report)
    report.untold = len(problems[MOST:])
    told = {problem.node.mark.line for problem in problems if explain.is_secret(problem)}
    for found in islice(SURELY_SECRET.finditer(text), MOST):
        mark = yaml12.place(text, found.start())
        if mark.line not in told:
            message = "this looks like a key, which must not stand in a policy; it is not repeated here"
            report.add(mark, (), message, explain.MOVE_THE_KEY)
    return frozenset(problem.path for problem in problems)
