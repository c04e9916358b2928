"""Writes the first policy of a team, and the schema beside it."""

from __future__ import annotations

import errno
import json
import os
import re
from importlib.resources import files
from pathlib import Path

from fairq_ipy.policy import schema, variables
from fairq_ipy.policy.loader import loads

SCHEMA_NAME = "fairq.schema.json"
"""What the first line of the starter names, so that editors find it wherever the project is cloned."""

_BASE_URL = re.compile(r"(?<=^  base_url: ).*$", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z$][A-Za-z0-9${}:/._~\[\]-]*")


def text(endpoint: str | None = None) -> str:
    """Return the commented policy for a server.

    Args:
        endpoint: its URL, or ``${NAME}``; ``FAIRQ_BASE_URL`` decides when left out.

    Raises:
        PolicyError: when it is no URL that a policy may have.
    """
    starter = files("fairq_ipy.policy").joinpath("starter.yaml").read_text(encoding="utf-8")
    if endpoint is None:
        return starter
    written = endpoint if _PLAIN.fullmatch(endpoint) else json.dumps(endpoint)
    policy = _BASE_URL.sub(lambda _: written, starter, count=1)
    if not variables.unset(endpoint, os.environ):  # what a variable will hold cannot be judged before it is set
        loads(policy)
    return policy


def write(path: Path, *, endpoint: str | None = None, overwrite: bool = False) -> list[Path]:
    """Write the policy to `path`, and the schema beside it; folders that are missing are made.

    Returns:
        What was written. A schema that is there already stays, unless `overwrite` is set.

    Raises:
        PolicyError: when `endpoint` is no URL that a policy may have; nothing is written.
        FileExistsError: when there is something at `path`, unless `overwrite` is set; nothing is written.
        OSError: when it cannot be written.
    """
    policy = text(endpoint)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path.parent)) from error
    beside = path.with_name(SCHEMA_NAME)
    written = [path]
    _put(path, policy, overwrite=overwrite)
    try:
        _put(beside, schema.text(), overwrite=overwrite)
    except FileExistsError:
        return written
    return [*written, beside]


def _put(path: Path, content: str, *, overwrite: bool) -> None:
    """Write a file whole or not at all: a notebook may be watching it."""
    raw = content.encode("utf-8")
    if not overwrite:
        with path.open("xb") as file:
            file.write(raw)
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(raw)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
