"""requests: its adapters, which the sessions of all its users send through.

An adapter sees single requests; its session goes after redirects. So the session is asked whether it does, and a
redirect within the endpoint is followed by us, under the slot that the call has.
"""
# ruff: noqa: ANN401 - requests' own objects

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from fairq_ipy.transport.attempt import Head
from fairq_ipy.transport.guard import urllib3_pools
from fairq_ipy.transport.guard.routing import OURS, Flow, Outgoing, raw_headers, route
from fairq_ipy.transport.guard.watch import Seam, Watch
from fairq_ipy.transport.passing import passing
from fairq_ipy.transport.redirects import MAX_HOPS, SAME_METHOD
from fairq_ipy.transport.refusals import RawHeaders

__all__ = ["seams"]

_follows: Final[ContextVar[bool]] = ContextVar("fairq_requests_follows", default=False)


def seams(watch: Watch, module: ModuleType) -> Iterator[Seam]:
    """Yield the methods to replace in requests."""
    wrappers = _Adapters(watch)
    yield module.adapters.HTTPAdapter, "send", wrappers.adapter_send
    yield module.Session, "send", wrappers.session_send


class _Adapters:
    """The wrappers."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def adapter_send(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method of adapters."""

        def send(adapter: Any, request: Any, *args: Any, **settings: Any) -> Any:
            fate = None
            if request.method == "POST":
                host = urlsplit(request.url).hostname or ""
                if self._watch.reaches(host):
                    fate = self._watch.judge("requests", host, request.url, urllib3_pools.PACKAGES)
            if fate is None:
                return original(adapter, request, *args, **settings)
            if fate != "queued":
                with passing():
                    return original(adapter, request, *args, **settings)
            call = _Call(adapter, request, lambda what: original(adapter, what, *args, **settings))
            return route(self._watch.host, call.outgoing(), call)

        return send

    def session_send(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method of sessions."""

        def send(session: Any, request: Any, **settings: Any) -> Any:
            if request.method != "POST" or not self._watch.reaches(urlsplit(request.url).hostname or ""):
                return original(session, request, **settings)
            before = _follows.get()
            _follows.set(settings.get("allow_redirects", True) is True)
            try:
                return original(session, request, **settings)
            finally:
                _follows.set(before)

        return send


class _Call:
    """One request of requests."""

    def __init__(self, adapter: Any, request: Any, send: Callable[[Any], Any]) -> None:
        self._adapter = adapter
        self._given = request
        self._request = _without_ours(request)
        self._send = send
        self._follows = _follows.get()

    def outgoing(self) -> Outgoing:
        body = self._given.body
        known = body if isinstance(body, (bytes, str)) else b"" if body is None else None
        return Outgoing.of(self._given.url, self._given.headers.items(), known)

    def send(self) -> Any:
        request = self._request
        for _ in range(MAX_HOPS):
            response = self._send(request)
            hop = self._hop(request, response)
            if hop is None:
                return response
            response.content  # noqa: B018 - reading it frees the connection for the hop
            response.close()
            request = hop
        return self._send(request)

    def _hop(self, request: Any, response: Any) -> Any:
        """Return the request that a redirect to the same origin asks for."""
        location = response.headers.get("location")
        if not (self._follows and location and response.status_code in SAME_METHOD):
            return None
        url = urljoin(request.url, location)
        if urlsplit(url)[:2] != urlsplit(request.url)[:2]:
            return None
        hop = request.copy()
        hop.url = url
        return hop

    def head(self, response: Any) -> tuple[int, RawHeaders]:
        return response.status_code, raw_headers(response.headers.items())

    def read(self, response: Any) -> bytes:
        body: bytes = response.content
        response.close()
        return body or b""

    def watched(self, response: Any, flow: Flow) -> Any:
        if isinstance(response.raw, urllib3().HTTPResponse):
            urllib3_pools.watched(response.raw, flow)
        else:  # from an adapter that answers out of its own stock
            flow.finish(complete=False)
        return response

    def made(self, head: Head) -> Any:
        raw = urllib3_pools.response_of(urllib3(), head, self._given.url)
        return self._adapter.build_response(self._given, raw)


def urllib3() -> ModuleType:
    """Return urllib3, which requests has imported."""
    return importlib.import_module("urllib3")


def _without_ours(request: Any) -> Any:
    """Return the request as it may be sent."""
    if not any(name.lower() in OURS for name in request.headers):
        return request
    kept = request.copy()
    for name in OURS:
        kept.headers.pop(name, None)
    return kept
