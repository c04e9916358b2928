"""Asking for usage on a caller's behalf, without the caller seeing any of it.

Where the policy says that the endpoint takes ``stream_options.include_usage``, a stream that does not say itself what
it wants is sent with it, and the extra chunk that carries the count and no choices is kept back: many loops read
``choices[0]`` of every chunk.
"""

from __future__ import annotations

import json
import re
from typing import Final

from fairq_ipy.transport.sse import MAX_EVENT, Parser

__all__ = ["Sieve", "with_usage"]

_OPTION: Final = b'"stream_options": {"include_usage": true}, '

# Two line ends in a row; each of them is taken whole, so that CR LF is never two.
_BLANK_LINE: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")


def with_usage(body: bytes) -> bytes:
    """Return the body of a streaming request, a JSON object, with the option as its first key."""
    brace = body.index(b"{") + 1
    return body[:brace] + _OPTION + body[brace:]


class Sieve:
    """Passes a stream of events on, whole event by whole event, without the chunk that only carries usage."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return what may go on now."""
        data = self._rest + chunk if self._rest else chunk
        start = 0
        passed: list[bytes] = []
        for match in _BLANK_LINE.finditer(data):
            if match.end() == len(data) and data.endswith(b"\r"):
                break  # the LF of this CR may still come
            event = data[start : match.end()]
            start = match.end()
            if not _only_usage(event):
                passed.append(event)
        self._rest = data[start:]
        if len(self._rest) > MAX_EVENT:
            passed.append(self.end())
        return b"".join(passed)

    def end(self) -> bytes:
        """Return what is left at the end."""
        rest, self._rest = self._rest, b""
        return rest


def _only_usage(event: bytes) -> bool:
    if b'"usage"' not in event:
        return False
    for read in Parser().feed(event):
        try:
            content = json.loads(read.data)
        except (ValueError, RecursionError):
            return False
        return isinstance(content, dict) and content.get("choices") == [] and bool(content.get("usage"))
    return False
