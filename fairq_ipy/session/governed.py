"""Which requests are calls of the endpoint: what passes the queue, and what is none of its business."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from fairq_ipy.transport.origin import Origin, origin_of

__all__ = ["Governed"]

CALLS: Final = ("chat/completions", "completions", "responses", "embeddings", "messages")
"""The paths below the endpoint's base whose POSTs make a model work."""


class Governed:
    """Recognises the calls of one endpoint.

    Args:
        base_url: its address, with or without a slash or ``/v1`` at its end; empty for none.
        paths: further governed paths below it.

    Attributes:
        origins: whom the calls go to.
    """

    def __init__(self, base_url: str, paths: tuple[str, ...] = ()) -> None:
        self._bases: dict[tuple[Origin, str], frozenset[str]] = {}
        if base_url:
            parts = urlsplit(base_url)
            base = (origin_of(parts), _path(parts).removesuffix("/v1"))
            self._bases[base] = frozenset((*CALLS, *(path.strip("/") for path in paths)))
        self.origins = frozenset(origin for origin, _ in self._bases)

    def followed_by(self, later: Governed) -> Governed:
        """Return what recognises the calls of `later` too.

        SDK clients keep the address that they were made with. Where a policy changes it, they still come through the
        queue, instead of going past it unseen.
        """
        both = Governed("")
        both._bases = {**self._bases, **later._bases}
        both.origins = self.origins | later.origins
        return both

    def covers(self, method: str, url: str) -> bool:
        """Return whether that request passes the queue."""
        if method.upper() != "POST":
            return False
        try:
            parts = urlsplit(url)
            origin = origin_of(parts)
        except ValueError:  # no URL, or no port
            return False
        path = _path(parts)
        return any(_is_call(path, root, calls) for (known, root), calls in self._bases.items() if known == origin)


def _is_call(path: str, root: str, calls: frozenset[str]) -> bool:
    if not path.startswith(f"{root}/"):
        return False
    below = path[len(root) + 1 :]
    return below in calls or below.removeprefix("v1/") in calls


def _path(parts: SplitResult) -> str:
    """Return the path without a slash at its end, and with single ones inside."""
    return re.sub(r"/{2,}", "/", parts.path).rstrip("/")
