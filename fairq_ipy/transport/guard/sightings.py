"""What the guard saw: who made a call of the endpoint with a client that is not ours, and what became of it."""

from __future__ import annotations

import sys
import sysconfig
from types import FrameType
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ["Bypassed", "Fate", "Seen", "Sighting", "caller", "stands_on"]

Fate: TypeAlias = Literal["queued", "let go", "blocked", "out of reach"]
"""It waited in the queue; it went by; it was refused; it went by since nothing can hold it up."""

UNKNOWN: Final = "?"

_DEPTH: Final = 200
"""Frames that are looked at."""

# Between a library and whoever calls it: loops, pools, and what wraps functions to watch them.
_PLUMBING: Final = frozenset(
    {"anyio", "asyncio", "concurrent", "contextlib", "functools", "opentelemetry", "sniffio", "threading", "wrapt"}
)
_OURS: Final = "fairq_ipy.transport"
_INSTALLED: Final = ("site-packages", "dist-packages", sysconfig.get_path("stdlib"), "<frozen ")


class Sighting(NamedTuple):
    """One kind of call that was seen.

    Attributes:
        library: what sent it, as ``requests``.
        host: whom it went to.
        module: the calling module: the first one outside of the library.
        user: the first module beyond that which is not an installed package; the same as `module` where that is none.
        fate: what became of it.
    """

    library: str
    host: str
    module: str
    user: str
    fate: Fate

    @property
    def place(self) -> str:
        """Where it came from, in words."""
        if self.user in {self.module, UNKNOWN}:
            return f"{self.library} in {self.module}"
        return f"{self.library} in {self.module}, called from {self.user}"


class Seen(NamedTuple):
    """A sighting, and how many calls there were of it."""

    sighting: Sighting
    calls: int


class Bypassed(NamedTuple):
    """A call went past the queue, the first one from its place."""

    sighting: Sighting


def caller(library: frozenset[str]) -> tuple[str, str]:
    """Return the calling module, and the first one that is not installed; see `Sighting`.

    Args:
        library: the top-level packages that make up the library.
    """
    module = UNKNOWN
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - documented for exactly this use
    for _ in range(_DEPTH):
        if frame is None:
            break
        name = _name(frame)
        if module == UNKNOWN and not _between(name, library):
            module = name
        if module != UNKNOWN and not any(part in frame.f_code.co_filename for part in _INSTALLED):
            return module, name
        frame = frame.f_back
    return module, UNKNOWN


def stands_on(libraries: frozenset[str]) -> bool:
    """Return whether the running code was called by one of these top-level packages."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as above
    for _ in range(_DEPTH):
        if frame is None:
            return False
        if _name(frame).partition(".")[0] in libraries:
            return True
        frame = frame.f_back
    return False


def _name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", UNKNOWN))


def _between(name: str, library: frozenset[str]) -> bool:
    """Return whether a module is part of the library, or of what lies between it and its caller."""
    top = name.partition(".")[0]
    return top in library or top in _PLUMBING or name.startswith(_OURS)
