"""Reads the endpoint's URL: one right spelling, or what is wrong with it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from fairq_ipy.policy.wording import cut

DEMO = "demo"

_SCHEMES = {"http": 80, "https": 443}
_WITHOUT_SECRET = "write the URL without it, and name the variable of the key as api_key_env"  # noqa: S105 - a hint
_FORM = "accepted: `demo`, or a URL such as http://localhost:8000/v1"
_HOST = re.compile(r"[^\s\x00-\x20\"#%/:<>?@\[\\\]^`{|}]+")
_BRACKETS = re.compile(r"\[[^\[\]]*\](?::[0-9]*)?")
_CALLS = re.compile(r"/(?:chat/completions|completions|responses|embeddings|messages|models)/*$")


def problem(url: str) -> tuple[str, str] | None:
    """Return what is wrong with `url` and how to mend it, or ``None``. A password in it is never repeated."""
    return None if url == DEMO else next(_complaints(url, _split(url)), None)


def _complaints(url: str, parts: SplitResult | None) -> Iterator[tuple[str, str]]:
    """Yield what is wrong; each check may take for granted that those before it found nothing."""
    if "@" in url:
        yield "a user name or a password must not stand in a URL; it is not repeated here", _WITHOUT_SECRET
    elif re.search(r"[\s\x00-\x1f]", url):
        yield "the address holds a blank or a line break", _FORM
    elif parts is None:
        yield f"the host or the port of {cut(url)} cannot be read", f"{_FORM}, or http://[::1]:8000/v1"
    elif parts.query or parts.fragment:
        yield "the address has a part after ? or #; it is not repeated here, for it may be a secret", _WITHOUT_SECRET
    elif parts.scheme not in _SCHEMES:
        yield f"{cut(url)} does not begin with http:// or https://", _FORM
    elif parts.port == 0 or not _is_host(parts):
        yield f"{cut(url)} names no host, or one that cannot be", _FORM
    elif found := _CALLS.search(parts.path):
        yield f"{cut(url)} is the address of one kind of call", f"take {found[0]} off; the base ends before it"


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # read here, because it is checked when it is read
    except ValueError:
        return None
    return parts


def _is_host(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    if not _BRACKETS.fullmatch(parts.netloc):
        return _HOST.fullmatch(host) is not None and "[" not in parts.netloc
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def normal(url: str) -> str:
    """Return the one right spelling of a good URL: scheme and host in small letters, no default port, no slash last."""
    if url == DEMO:
        return url
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in {None, _SCHEMES[parts.scheme]} else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"
