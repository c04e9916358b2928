"""Header values: what may not be sent, said without saying the value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from fairq_ipy.errors import ConfigurationError

__all__ = ["OURS", "PRIORITY", "TENANT", "check_given", "read"]

TENANT: Final = b"x-fairq-tenant"
PRIORITY: Final = b"x-fairq-priority"

OURS: Final = frozenset({TENANT, PRIORITY})
"""Headers that are meant for the queue, and are not sent on."""

_ODD: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]|^[ \t]|[ \t]$")
_SECRETS: Final = ("authorization", "key", "token", "secret")


def read(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, str]:
    """Return what headers say to the queue, by their names in lower case.

    What no server accepts is refused here, before an error of a lower layer shows the value in its text.

    Raises:
        ConfigurationError: names the header and what is wrong with it, never its value.
    """
    ours: dict[bytes, str] = {}
    for name, value in headers:
        if _ODD.search(value) is not None:
            raise ConfigurationError(_sentence(name.decode("latin-1"), value.decode("latin-1")))
        if name.lower() in OURS:
            ours[name.lower()] = value.decode("latin-1")
    return ours


def check_given(headers: Any) -> None:  # noqa: ANN401 - whatever httpx takes as headers
    """Do the same for headers as a caller gives them: a mapping or pairs, of text or bytes.

    Raises:
        ConfigurationError: see `read`.
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers if isinstance(headers, (list, tuple)) else ()
    for name, value in pairs:
        key = name.decode("latin-1") if isinstance(name, bytes) else str(name)
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        if isinstance(text, str) and (not text.isascii() or _ODD.search(text.encode()) is not None):
            raise ConfigurationError(_sentence(key, text))


def _sentence(name: str, value: str) -> str:
    name = name.lower()
    secret = any(word in name for word in _SECRETS)
    mend = "; the key was probably read from a file or copied together with it: strip it" if secret else ""
    if value.lower() in {"bearer ", "basic "}:
        problem = "holds no key: is the environment variable empty?"
    elif value.rstrip(" \t") != value.rstrip():
        problem = f"ends in a line break{mend}"
    elif value.rstrip() != value:
        problem = f"ends in a blank{mend}"
    elif value.lstrip() != value:
        problem = f"begins with a blank{mend}"
    elif "\r" in value or "\n" in value:
        problem = "has a line break in it"
    elif not value.isascii():
        problem = "has a character in it that is not ASCII, as quotes and dashes from a word processor are not"
    else:
        problem = "has a control character in it"
    return f"the header {name!r} {problem}"
