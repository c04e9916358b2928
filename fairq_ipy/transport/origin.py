"""Whom a URL reaches, in one spelling, so that two URLs can be compared."""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple
from urllib.parse import SplitResult

__all__ = ["PORTS", "Origin", "origin_of", "plain_host"]

PORTS: Final = {"http": 80, "https": 443}
"""The ports of URLs that name none."""

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})


class Origin(NamedTuple):
    """Scheme, host and port of a URL, in one spelling."""

    scheme: str
    host: str
    port: int | None


def origin_of(parts: SplitResult) -> Origin:
    """Return the origin of a URL.

    Raises:
        ValueError: its port is none, or its host is no address though it looks like one.
    """
    scheme = parts.scheme.lower()
    return Origin(scheme, plain_host(parts.hostname or ""), PORTS.get(scheme) if parts.port is None else parts.port)


def plain_host(host: str) -> str:
    """Return the name or address of a host in one spelling; this machine has only one.

    Raises:
        ValueError: it has a colon in it, and is no address.
    """
    host = host.strip("[]").rstrip(".").lower()
    if ":" in host:
        host = ipaddress.IPv6Address(host.partition("%")[0]).compressed
    return "localhost" if host in _LOOPBACK else host
