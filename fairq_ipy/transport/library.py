"""httpx and httpx2, side by side: whichever is there, with the few classes that must be made from its own.

The two share their interface; what differs is whose classes an SDK checks for. Nothing here imports either until
somebody asks for it.
"""

from __future__ import annotations

import functools
import importlib
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from fairq_ipy.errors import ConfigurationError

__all__ = ["Library", "LibraryName", "choose", "load"]

T = TypeVar("T")

LibraryName: TypeAlias = Literal["auto", "httpx", "httpx2"]

NAMES: Final = ("httpx", "httpx2")

# The first major version of an SDK that takes clients of httpx2.
_SDKS_ON_HTTPX2: Final = (("openai", 3), ("anthropic", 1))


class Library(NamedTuple):
    """One of the two.

    Attributes:
        name: ``httpx`` or ``httpx2``.
        module: the module.
    """

    name: str
    module: Any

    def stream(self, kind: type[T]) -> type[T]:
        """Return a class of byte streams as the library's own kind, sync or async; the same one each time."""
        hashable: Any = kind
        made: type[T] = _stream(self.module, hashable)
        return made


@functools.cache
def _stream(module: Any, kind: Any) -> Any:  # noqa: ANN401 - classes that are found at run time
    base = module.AsyncByteStream if hasattr(kind, "aclose") else module.SyncByteStream
    return type(kind.__name__, (kind, base), {})


@functools.cache
def load(name: str) -> Library:
    """Return the library of that name.

    Raises:
        ConfigurationError: it is not installed, or it is none of the two.
    """
    if name not in NAMES:
        raise ConfigurationError(f"library={name!r}: this is 'auto', 'httpx' or 'httpx2'")
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise ConfigurationError(f"library={name!r} needs the package {name}: pip install {name}") from error
    return Library(name, module)


def choose(name: LibraryName = "auto") -> Library:
    """Return the library to make a client of; ``auto`` takes the one that the installed SDKs need.

    Raises:
        ConfigurationError: see `load`.
    """
    # openai 3 takes httpx out of `sys.modules` from whichever thread makes a call, and fails on one that is half
    # imported. So it is whole before the first client can be used, not when `ask` first needs it.
    with suppress(ConfigurationError):
        load("httpx")
    if name != "auto":
        return load(name)
    if any(_major(sdk) >= first for sdk, first in _SDKS_ON_HTTPX2):
        try:
            return load("httpx2")
        except ConfigurationError:  # the SDK's own installation is broken; httpx may still serve everything else
            return load("httpx")
    return load("httpx")


def _major(distribution: str) -> int:
    from importlib import metadata  # a tenth of a second on a slow machine, and only this wants it

    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return 0
    major = version.partition(".")[0]
    return int(major) if major.isdecimal() else 0
