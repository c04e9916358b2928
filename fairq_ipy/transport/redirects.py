"""Redirects of a model call within its endpoint: followed under the slot that the call has, in place of its client.

A hop that the client made by itself would come in as another call, wait again and be counted again.
"""

from __future__ import annotations

import sys
from typing import Final

from fairq_ipy.transport.host import Request, Response

__all__ = ["MAX_HOPS", "SAME_METHOD", "next_hop", "too_many"]

MAX_HOPS: Final = 5
"""Redirects that are followed within one sending; one more ends the call, since a client would begin to count anew."""

SAME_METHOD: Final = frozenset({307, 308})


def next_hop(request: Request, response: Response) -> Request | None:
    """Return the request that `response` sends on to the same origin; ``None`` when it does nothing of the kind."""
    location = response.headers.get("location")
    if not location or response.status_code not in SAME_METHOD:
        return None
    url = request.url.join(location)
    if (url.scheme, url.host, url.port) != (request.url.scheme, request.url.host, request.url.port):
        return None
    return type(request)(
        request.method, url, headers=request.headers, stream=request.stream, extensions=request.extensions
    )


def too_many(request: Request) -> Exception:
    """Return the error for a call that is sent on and on, in the words of the library that made its request."""
    library = sys.modules[type(request).__module__.partition(".")[0]]
    error: Exception = library.TooManyRedirects(f"more than {MAX_HOPS} redirects of one call", request=request)
    return error
