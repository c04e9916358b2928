"""Fills in ``${NAME}`` and ``${NAME:-default}``, in the two places where the schema says so."""

from __future__ import annotations

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}")


def filled(text: str, environ: Mapping[str, str]) -> str:
    """Return `text` with every variable's value; a variable that is empty counts as not set, as in a shell.

    What a variable holds is never filled in again.
    """
    return _VARIABLE.sub(lambda found: environ.get(found["name"]) or found["default"] or "", text)


def names(text: str) -> tuple[str, ...]:
    """Return the names of the variables in `text`, in order."""
    return tuple(found["name"] for found in _VARIABLE.finditer(text))


def unset(text: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that have neither a value nor a default."""
    found = _VARIABLE.finditer(text)
    return tuple(each["name"] for each in found if each["default"] is None and not environ.get(each["name"]))


def is_broken(text: str) -> bool:
    """Return whether a ``${`` begins something that is no variable."""
    return "${" in _VARIABLE.sub("", text)
