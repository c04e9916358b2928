"""Tells when the policy file has a new content.

The content is read at every look: times of modification are coarse on some file systems, late on others, and untouched
by some editors. A policy is small, so this costs some microseconds.
"""

from __future__ import annotations

import os

from fairq_ipy.errors import PolicyError
from fairq_ipy.policy.loader import digest_of, from_bytes, read_bytes
from fairq_ipy.policy.settings import Settings

_MISSING = "missing"


class Watcher:
    """Watches one file. The one who asks decides how often, and keeps the last good settings.

    Args:
        path: the file.
        digest: of the content that is in use (`Settings.digest`); ``None`` to have the present content told.
    """

    def __init__(self, path: str | os.PathLike[str], digest: str | None) -> None:
        self._name = os.fspath(path)
        self._told = digest
        self._missed = False

    def check(self) -> Settings | PolicyError | None:
        """Look once.

        An editor that saves by renaming, or empties the file first, leaves a moment without content. So a file that is
        gone or empty is told only when the next look finds it so as well.

        Returns:
            The new settings; or the error, when the content is bad or the file stays away; or ``None`` when that is
            what was told last. A bad content that goes back to the good one is told as these settings, once.
        """
        raw, missing = self._read()
        if not raw and not self._missed:
            self._missed = True
            return None
        self._missed = not raw
        state = digest_of(raw) if missing is None else _MISSING
        if state == self._told:
            return None
        self._told = state
        if missing is not None:
            return missing
        try:
            return from_bytes(raw, self._name)
        except PolicyError as error:
            return error

    def _read(self) -> tuple[bytes, PolicyError | None]:
        try:
            return read_bytes(self._name), None
        except PolicyError as error:
            return b"", error
