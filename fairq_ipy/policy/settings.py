"""What a policy file comes down to: the endpoint, the rules of the queue, and where they were read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from fairq_ipy.core.model import Policy

GuardMode: TypeAlias = Literal["off", "warn", "route", "block"]
"""What becomes of calls of the endpoint by clients that are not ours."""

_CLIMB: Final = 3
"""Folders up to which a path from here reads better than a whole one."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The one shared server.

    Attributes:
        base_url: ``demo``, or a URL as ``http://host:port/v1``: host in small letters, no slash at its end.
        api_key_env: name of the environment variable that holds the key; ``None`` sends none.
        model: the model of a call that names none; ``None`` leaves it to the caller.
        paths: further paths below `base_url` whose POSTs are governed, without a slash at either end.
        stream_usage: whether the server accepts ``stream_options.include_usage``.
    """

    base_url: str
    api_key_env: str | None = None
    model: str | None = None
    paths: tuple[str, ...] = ()
    stream_usage: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """One policy, read.

    Attributes:
        endpoint: whom to ask.
        rules: of the queue.
        time_zone: IANA name; where days and months of budgets begin.
        source: the file, as an absolute path; ``None`` when there is none.
        digest: of the file's bytes, to tell a new content from an old one.
        guard: what becomes of calls of the endpoint by clients that are not ours.
    """

    endpoint: Endpoint
    rules: Policy
    time_zone: str
    source: Path | None
    digest: str
    guard: GuardMode = "warn"

    @property
    def name(self) -> str | None:
        """How people call the policy: its path from the working directory; ``None`` when there is no file.

        A policy that was found above a notebook is named from there too: a whole path would name the machine and the
        person in every notebook that is saved with its outputs.
        """
        if self.source is None:
            return None
        try:
            here = os.path.relpath(self.source)
        except (ValueError, OSError):  # another drive; or the working directory is gone
            return str(self.source)
        return str(self.source) if here.count(os.pardir + os.sep) > _CLIMB else here
