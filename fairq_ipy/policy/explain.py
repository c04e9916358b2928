"""Says what is wrong with a value or a key, what is accepted instead, and what was probably meant.

A suggestion is never guessed twice: candidates are made from what was found, and the first one that the schema accepts
is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

from fairq_ipy.policy.report import Report
from fairq_ipy.policy.schema import Checker, Problem, Schema
from fairq_ipy.policy.tree import Scalar
from fairq_ipy.policy.wording import SECRET_NAME, cut, listed, nearest, shown
from fairq_ipy.policy.yaml12 import resolved

_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9_]{0,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][-+]?[0-9]{1,2})?")
_TIME = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*([A-Za-z]+)")
_UNITS = (
    ("ms", "ms|millis.*"),
    ("s", "s|secs?|seconds?"),
    ("m", "m|mins?|minutes?"),
    ("h", "h|hrs?|hours?"),
    ("d", "d|days?"),
)
_NO_LIMIT = frozenset({"none", "null", "no", "never", "false", "off", "inf", ".inf", "infinite", "infinity", "-1"})
_SWITCH = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}

MOVE_THE_KEY = (
    "put the key into an environment variable, name it here as `api_key_env: FAIRQ_API_KEY`, and replace the key "
    "that was written down"
)


def is_secret(problem: Problem) -> bool:
    """Return whether the problem is a key of the endpoint, or may be one, that stands in the file."""
    if problem.keyword == "additionalProperties":
        is_text = isinstance(problem.node, Scalar) and isinstance(problem.node.value, str)
        return is_text and SECRET_NAME.fullmatch(str(problem.path[-1])) is not None
    return bool(problem.schema.get("x-quiet"))


def explain(problem: Problem, checker: Checker, report: Report) -> None:
    """Add the finding for one problem."""
    accepted = accepted_by(problem.schema)
    match problem.keyword:
        case "additionalProperties":
            message, hint = _unknown_key(problem, checker)
        case "required":
            part = checker.resolved(problem.schema["properties"][problem.path[-1]])
            message, hint = f"`{problem.path[-1]}` is missing", f"add it; {accepted_by(part)}"
        case "propertyNames":
            message, hint = "this name cannot be used", accepted
        case "minProperties" | "maxProperties":
            message, hint = f"too {'few' if problem.keyword == 'minProperties' else 'many'} keys", accepted
        case "maxItems":
            message, hint = f"more than {problem.schema['maxItems']} items", accepted
        case _:
            message, hint = _value(problem, checker)
    report.add(problem.mark, problem.path, message, hint)


def accepted_by(schema: Schema) -> str:
    """Return the accepted form in the words of the schema."""
    return f"accepted: {schema['errorMessage']}"


def _unknown_key(problem: Problem, checker: Checker) -> tuple[str, str]:
    key, known = str(problem.path[-1]), problem.schema["properties"]
    if is_secret(problem):
        return f"a secret must not stand in a policy; the value of `{cut(key)}` is not repeated here", MOVE_THE_KEY
    message = f"`{cut(key)}` is not a key of this section"
    if near := nearest(key, known):
        return message, f"did you mean `{near}`?"
    elsewhere = [path for path, _ in checker.places() if path[-1] != "*"]
    if near := nearest(key, (str(path[-1]) for path in elsewhere)):
        meant = [path for path in elsewhere if path[-1] == near]
        closest = [path for path in meant if path[0] == problem.path[0]] or meant
        return message, f"did you mean {listed('`' + '.'.join(map(str, path)) + '`' for path in closest)}?"
    return message, f"accepted: {listed(known)}"


def _value(problem: Problem, checker: Checker) -> tuple[str, str]:
    node, schema = problem.node, problem.schema
    hint = accepted_by(schema)
    if schema.get("x-quiet"):
        return "this is not the name of a variable; it is not repeated here, for it may be a secret", hint
    if isinstance(node, Scalar) and node.value is None:
        found, hint = "there is no value here", f"{hint}; or take the line out"
    else:
        found = f"{shown(node)} is not accepted here"
    if isinstance(node, Scalar) and (meant := _meant(node, schema, checker)):
        hint += f"; did you mean {meant}?"
    return found, hint


class _Candidate(NamedTuple):
    text: str
    quoted: bool = False


def _meant(node: Scalar, schema: Schema, checker: Checker) -> str | None:
    """Return the first of the candidates that the schema accepts, as YAML."""
    for text, quoted in _candidates(node, schema):
        if checker.fits(Scalar(text if quoted else resolved(text), text, quoted, node.mark), schema):
            return json.dumps(text, ensure_ascii=False) if quoted else text
    return None


def _candidates(node: Scalar, schema: Schema) -> Iterator[_Candidate]:
    """Yield what may have been meant, the likeliest first."""
    text = node.text.strip()
    lowered = text.lower()
    yield _Candidate(text, quoted=not node.quoted)
    if _NUMBER.fullmatch(text):
        number = Decimal(text.replace("_", ""))
        written = f"{number:f}"
        yield _Candidate(f"{int(number)}" if number == int(number) else written)
        yield _Candidate(f"{written.removesuffix('.0')}s")
    if time := _TIME.fullmatch(text):
        yield from (_Candidate(time[1] + unit) for unit, words in _UNITS if re.fullmatch(words, time[2].lower()))
    yield _Candidate(lowered)
    if lowered in _SWITCH:
        yield _Candidate(_SWITCH[lowered])
    if lowered in _NO_LIMIT:
        # a name fits as well where a name is wanted, but nobody means it
        yield from (_Candidate(word) for word in ("unlimited", "off") if word in schema.get("pattern", ""))
    words = [
        word for word in schema.get("enum", schema.get("examples", ())) if isinstance(word, str) and word.isalpha()
    ]
    if near := nearest(text, words):
        yield _Candidate(near)
