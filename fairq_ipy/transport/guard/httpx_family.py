"""httpx and httpx2: their transports' methods, so that whatever client holds such a transport is seen.

The transport object that is there does the I/O, with its own certificates, proxies, limits and connections. What it
answers is dealt with as for a transport that was handed to one of our clients (`fairq_ipy.transport.foreign`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Final, cast

from fairq_ipy.errors import BypassBlockedError
from fairq_ipy.transport import refusals
from fairq_ipy.transport.foreign import AsyncForeignTransport, ForeignTransport
from fairq_ipy.transport.governing import Caller, route_of
from fairq_ipy.transport.guard.watch import Seam, Watch
from fairq_ipy.transport.host import Request, Response, Transport
from fairq_ipy.transport.library import Library
from fairq_ipy.transport.passing import passing
from fairq_ipy.transport.redirects import MAX_HOPS, next_hop

__all__ = ["seams"]

FORBIDDEN: Final = 403

# SDKs of this make read `x-should-retry`, and say who they are. They would repeat a call that raises.
_SDK: Final = "x-stainless-lang"

_follows: Final[ContextVar[bool]] = ContextVar("fairq_httpx_follows", default=False)


def seams(watch: Watch, module: ModuleType) -> Iterator[Seam]:
    """Yield the methods to replace in httpx or httpx2."""
    family = _Family(watch, module)
    yield module.HTTPTransport, "handle_request", family.handle_request
    yield module.AsyncHTTPTransport, "handle_async_request", family.handle_async_request
    yield module.Client, "send", family.send
    yield module.AsyncClient, "send", family.async_send


class _Family:
    """The wrappers for one of the two libraries."""

    def __init__(self, watch: Watch, module: ModuleType) -> None:
        self._watch = watch
        self._library = Library(module.__name__, module)
        self._caller = Caller(lambda: watch.host, self._library)
        self._packages = frozenset({module.__name__, module.__name__.replace("httpx", "httpcore")})

    def _fate(self, request: Request) -> str | None:
        """Return what becomes of a POST to the endpoint's host; ``None`` when it is none of the guard's business."""
        return self._watch.judge(self._library.name, request.url.host, str(request.url), self._packages)

    def _fate_elsewhere(self, request: Request) -> str | None:
        """Return what becomes of it on a loop of another kind than asyncio's, which cannot wait for the queue."""
        if self._watch.host.governs("POST", str(request.url)):
            self._watch.out_of_reach(self._library.name, request.url.host, self._packages)
        return None

    def _blocked(self, error: BypassBlockedError, request: Request) -> Response:
        """Return the refusal to SDKs that read it; raise it for all others."""
        if _SDK not in request.headers:
            raise error
        _, raw, body = refusals.synthetic(error, route_of(request.url.path))
        return self._library.module.Response(FORBIDDEN, headers=raw, content=body)

    def handle_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method for sync transports."""

        def handle_request(transport: Transport, request: Request) -> Response:
            if request.method != "POST" or not self._watch.reaches(request.url.host):
                return original(transport, request)
            try:
                fate = self._fate(request)
            except BypassBlockedError as error:
                return self._blocked(error, request)
            if fate == "queued":
                inner = _Inner(original, transport, follows=_follows.get())
                return ForeignTransport(self._caller, inner).handle_request(request)
            if fate is None:
                return original(transport, request)
            with passing():
                return original(transport, request)

        return handle_request

    def handle_async_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method for async transports."""

        def handle_async_request(transport: Transport, request: Request) -> Awaitable[Response]:
            if request.method != "POST" or not self._watch.reaches(request.url.host):
                # calls to other hosts find no coroutine of ours in their way
                return cast("Awaitable[Response]", original(transport, request))
            return met(transport, request)

        async def met(transport: Transport, request: Request) -> Response:
            try:
                fate = self._fate(request) if _on_asyncio() else self._fate_elsewhere(request)
            except BypassBlockedError as error:
                return self._blocked(error, request)
            if fate == "queued":
                inner = _Inner(original, transport, follows=_follows.get())
                return await AsyncForeignTransport(self._caller, inner).handle_async_request(request)
            if fate is None:
                return await original(transport, request)
            with passing():
                return await original(transport, request)

        return handle_async_request

    def send(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method of sync clients, which alone knows whether redirects are followed."""

        def send(client: Any, request: Request, **settings: Any) -> Response:  # noqa: ANN401 - a client of the library
            if request.method != "POST" or not self._watch.reaches(request.url.host):
                return original(client, request, **settings)
            with _following(client, settings):
                return original(client, request, **settings)

        return send

    def async_send(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method of async clients likewise."""

        def send(client: Any, request: Request, **settings: Any) -> Awaitable[Response]:  # noqa: ANN401 - as above
            if request.method != "POST" or not self._watch.reaches(request.url.host):
                return cast("Awaitable[Response]", original(client, request, **settings))
            return met(client, request, settings)

        async def met(client: Any, request: Request, settings: dict[str, Any]) -> Response:  # noqa: ANN401 - as above
            with _following(client, settings):
                return await original(client, request, **settings)

        return send


def _on_asyncio() -> bool:
    return asyncio._get_running_loop() is not None  # noqa: SLF001 - exported for exactly this question


@contextmanager
def _following(client: Any, settings: dict[str, Any]) -> Iterator[None]:  # noqa: ANN401 - a client of the library
    """Tell the transport whether its client goes after redirects."""
    asked = settings.get("follow_redirects")
    before = _follows.get()
    _follows.set(asked if isinstance(asked, bool) else client.follow_redirects)
    try:
        yield
    finally:
        _follows.set(before)


class _Inner:
    """A transport as it was before us, for one call: it goes after redirects within the slot that the call has."""

    def __init__(self, original: Callable[..., Any], transport: Transport, *, follows: bool) -> None:
        self._original = original
        self._transport = transport
        self._follows = follows

    def handle_request(self, request: Request) -> Response:
        for _ in range(MAX_HOPS):
            response = self._original(self._transport, request)
            hop = next_hop(request, response) if self._follows else None
            if hop is None:
                return response
            response.close()
            request = hop
        return self._original(self._transport, request)

    async def handle_async_request(self, request: Request) -> Response:
        for _ in range(MAX_HOPS):
            response = await self._original(self._transport, request)
            hop = next_hop(request, response) if self._follows else None
            if hop is None:
                return response
            await response.aclose()
            request = hop
        return await self._original(self._transport, request)
