"""Things that happened behind the user's back, kept until there is a cell to say them in.

The keeper's thread learns that a policy broke, or that a tenant was paused by the stall rule. It must not print: the
output would land in whatever cell runs, or in none. So it leaves a line here, and the next cell begins with it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["Notices"]

_MOST: Final = 20
"""Lines kept; with more, the oldest go."""


class Notices:
    """Lines that wait to be shown. Any thread may add; the main thread takes."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_MOST)

    def add(self, line: str) -> None:
        """Keep a line; the same one twice in a row is kept once."""
        if not self._lines or self._lines[-1] != line:
            self._lines.append(line)

    def take(self) -> list[str]:
        """Return all lines, oldest first, and forget them."""
        taken = []
        while self._lines:
            taken.append(self._lines.popleft())
        return taken
