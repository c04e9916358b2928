"""Which requests are calls of the endpoint: what passes the queue, and what is none of its business."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

__all__ = ["Governed"]

CALLS: Final = ("chat/completions", "completions", "responses", "embeddings", "messages")
"""The paths below the endpoint's base whose POSTs make a model work."""

PORTS: Final = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Whom a URL reaches, in one spelling."""

    scheme: str
    host: str
    port: int | None


class Governed:
    """Recognises the calls of one endpoint.

    Args:
        base_url: its address, with or without a slash or ``/v1`` at its end.
        paths: further governed paths below it.
    """

    def __init__(self, base_url: str, paths: tuple[str, ...] = ()) -> None:
        parts = urlsplit(base_url)
        self._origin = _origin(parts)
        self._root = _path(parts).removesuffix("/v1")
        self._calls = frozenset((*CALLS, *(path.strip("/") for path in paths)))

    def covers(self, method: str, url: str) -> bool:
        """Return whether that request passes the queue."""
        if method.upper() != "POST":
            return False
        try:
            parts = urlsplit(url)
            if _origin(parts) != self._origin:
                return False
        except ValueError:  # no URL, or no port
            return False
        path = _path(parts)
        if not path.startswith(f"{self._root}/"):
            return False
        below = path[len(self._root) + 1 :]
        return below in self._calls or below.removeprefix("v1/") in self._calls


def _path(parts: SplitResult) -> str:
    """Return the path without a slash at its end, and with single ones inside."""
    return re.sub(r"/{2,}", "/", parts.path).rstrip("/")


def _origin(parts: SplitResult) -> Origin:
    scheme = parts.scheme.lower()
    host = (parts.hostname or "").rstrip(".")
    if ":" in host:
        host = ipaddress.IPv6Address(host).compressed
    return Origin(scheme, host, PORTS.get(scheme) if parts.port is None else parts.port)
