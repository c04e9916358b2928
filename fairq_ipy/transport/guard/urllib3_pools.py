"""urllib3: its pools and their manager, under whatever sits on them (requests above all, which is met first).

A body is watched by giving the response that is there a class of the same name with a few methods more: whoever holds
it, or asks for its type, finds what it expects.
"""

# ruff: noqa: ANN401, FBT001, PLR0917, SLF001 - urllib3's own objects and signatures, and attributes of ours on its responses

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

from fairq_ipy.transport import refusals
from fairq_ipy.transport.attempt import Head
from fairq_ipy.transport.guard.routing import OURS, Flow, Outgoing, plain_headers, raw_headers, route
from fairq_ipy.transport.guard.watch import Seam, Watch
from fairq_ipy.transport.passing import passing
from fairq_ipy.transport.refusals import RawHeaders

__all__ = ["PACKAGES", "response_of", "seams", "watched"]

PACKAGES: Final = frozenset({"http", "requests", "urllib3"})


def seams(watch: Watch, module: ModuleType) -> Iterator[Seam]:
    """Yield the methods to replace in urllib3."""
    wrappers = _Pools(watch, module)
    yield module.PoolManager, "urlopen", wrappers.manager_urlopen
    yield module.HTTPConnectionPool, "urlopen", wrappers.pool_urlopen


class _Pools:
    """The wrappers."""

    def __init__(self, watch: Watch, module: ModuleType) -> None:
        self._watch = watch
        self._module = module

    def manager_urlopen(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method of managers, which go after redirects from pool to pool."""

        def urlopen(manager: Any, method: str, url: str, *args: Any, **settings: Any) -> Any:
            if method.upper() != "POST":
                return original(manager, method, url, *args, **settings)
            host = self._module.util.parse_url(url).host or ""
            given = settings.get("headers")
            headers = manager.headers if given is None else given

            def send(kept: Any) -> Any:
                return original(manager, method, url, *args, **{**settings, "headers": kept})

            found = self._met(url, host, settings, headers, send)
            return original(manager, method, url, *args, **settings) if found is None else found

        return urlopen

    def pool_urlopen(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method of pools."""

        def urlopen(
            pool: Any,
            method: str,
            url: str,
            body: Any = None,
            headers: Any = None,
            retries: Any = None,
            *args: Any,
            **settings: Any,
        ) -> Any:
            if method.upper() != "POST" or not (self._watch.reaches(pool.host) or "://" in url):
                return original(pool, method, url, body, headers, retries, *args, **settings)
            whole = url if "://" in url else f"{pool.scheme}://{_bracketed(pool.host)}:{pool.port}{url}"
            host = self._module.util.parse_url(whole).host or ""
            if self._watch.mode == "route" and self._watch.host.governs("POST", whole):
                retries = self._calm(pool.retries if retries is None else retries)

            def send(kept: Any) -> Any:
                return original(pool, method, url, body, kept, retries, *args, **settings)

            given = pool.headers if headers is None else headers
            found = self._met(whole, host, {**settings, "body": body}, given, send)
            return send(headers) if found is None else found

        return urlopen

    def _met(self, url: str, host: str, settings: dict[str, Any], headers: Any, send: Callable[[Any], Any]) -> Any:
        """Deal with a call; return ``None`` when it is none of the guard's business."""
        if not self._watch.reaches(host):
            return None
        fate = self._watch.judge("urllib3", host, url, PACKAGES)
        if fate is None:
            return None
        if fate != "queued":
            with passing():
                return send(headers)
        outgoing = Outgoing.of(url, headers.items(), settings.get("body"))
        kept = headers
        if any(name.lower() in OURS for name in headers):
            kept = {name: value for name, value in headers.items() if name.lower() not in OURS}
        call = _Call(self._module, functools.partial(send, kept), url, preload=settings.get("preload_content", True))
        return route(self._watch.host, outgoing, call)

    def _calm(self, retries: Any) -> Any:
        """Return retries that leave the endpoint's "later" to the queue, which bounds and spaces it for all."""
        if not isinstance(retries, self._module.Retry):
            return retries
        kept = [status for status in retries.status_forcelist if not refusals.refuses(status)]
        return retries.new(status_forcelist=frozenset(kept), respect_retry_after_header=False)


class _Call:
    """One request of urllib3."""

    def __init__(self, module: ModuleType, send: Callable[[], Any], url: str, *, preload: bool) -> None:
        self._module = module
        self._url = url
        self._preload = preload
        self.send = send

    def head(self, response: Any) -> tuple[int, RawHeaders]:
        return response.status, raw_headers(response.headers.items())

    def read(self, response: Any) -> bytes:
        body: bytes = response.data if self._preload else response.read(decode_content=True)
        response.release_conn()
        return body or b""

    def watched(self, response: Any, flow: Flow) -> Any:
        if not self._preload:
            return watched(response, flow)
        flow.passed(response.data or b"")
        flow.finish(complete=True)
        return response

    def made(self, head: Head) -> Any:
        return response_of(self._module, head, self._url, preload=self._preload)


def response_of(module: ModuleType, head: Head, url: str, *, preload: bool = False) -> Any:
    """Return a response of urllib3 that says what `head` says."""
    return module.HTTPResponse(
        io.BytesIO(head.body or b""),
        headers=module.response.HTTPHeaderDict(plain_headers(head.headers)),
        status=head.status,
        version=11,
        preload_content=preload,
        request_method="POST",
        request_url=url,
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


# ------------------------------------------------------------------------------------------------ watching a response


def watched(response: Any, flow: Flow) -> Any:
    """Return `response`, whose body passes through `flow` from now on, whichever way it is read."""
    response._fairq_flow = flow  # it must live as long as the response does
    kind: type[object] = type(response)
    response.__class__ = _watching(kind)  # type: ignore[arg-type]  # classes can be hashed
    response._fairq_look()
    return response


@functools.cache
def _watching(kind: type[object]) -> type[object]:
    return type(kind.__name__, (_Watching, kind), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})


class _Watching:
    """The methods through which all bytes of a response come, and those that end it."""

    _fairq_flow: Flow
    _fairq_depth = 0
    _fairq_begun = False
    closed: bool
    decode_content: bool
    headers: Any

    def read(self, amt: int | None = None, decode_content: bool | None = None, *args: Any, **settings: Any) -> bytes:
        return self._fairq_read(super().read, amt, decode_content, *args, **settings)  # type: ignore[misc]  # the base's

    def read1(self, amt: int | None = None, decode_content: bool | None = None) -> bytes:
        return self._fairq_read(super().read1, amt, decode_content)  # type: ignore[misc]  # the base's

    def _fairq_read(
        self, read: Callable[..., bytes], amt: int | None, decode_content: bool | None, *args: Any, **settings: Any
    ) -> bytes:
        with self._fairq_inside():
            chunk = read(amt, decode_content, *args, **settings)
        return self._fairq_pass(chunk, decode_content)

    def read_chunked(self, amt: int | None = None, decode_content: bool | None = None) -> Iterator[bytes]:
        chunks = super().read_chunked(amt, decode_content)  # type: ignore[misc]  # the base's
        try:
            while True:
                with self._fairq_inside():
                    chunk = next(chunks, None)
                if chunk is None:
                    break
                yield self._fairq_pass(chunk, decode_content)
        except GeneratorExit:
            with self._fairq_inside():
                chunks.close()  # urllib3 closes the connection with it
            self._fairq_flow.finish(complete=False, left=True)
            raise
        self._fairq_flow.finish(complete=True)

    def stream(self, amt: int | None = 2**16, decode_content: bool | None = None) -> Iterator[bytes]:
        yield from super().stream(amt, decode_content)  # type: ignore[misc]  # the base's
        self._fairq_flow.finish(complete=True)

    def release_conn(self) -> None:
        super().release_conn()  # type: ignore[misc]  # the base's
        if not self._fairq_depth:
            self._fairq_flow.finish(complete=self.closed, left=not self.closed)

    def close(self) -> None:
        try:
            super().close()  # type: ignore[misc]  # the base's
        finally:
            if not self._fairq_depth:
                self._fairq_flow.finish(complete=False, left=True)

    @contextmanager
    def _fairq_inside(self) -> Iterator[None]:
        """Let urllib3 close and release as it reads: what came is counted first."""
        self._fairq_depth += 1
        try:
            yield
        except BaseException as error:
            self._fairq_flow.finish(complete=False, left=not isinstance(error, Exception))
            raise
        finally:
            self._fairq_depth -= 1

    def _fairq_pass(self, chunk: bytes, decode_content: bool | None) -> bytes:
        decoded = self.decode_content if decode_content is None else decode_content
        coding = self.headers.get("content-encoding", "")
        if coding and not decoded and not self._fairq_begun:
            self._fairq_flow.encoded(coding)
        self._fairq_begun = True
        if chunk:
            self._fairq_flow.passed(chunk)
        self._fairq_look()
        return chunk

    def _fairq_look(self) -> None:
        """See whether all of it is here, and nothing of it waits to be taken out of its encoding."""
        waiting = len(getattr(self, "_decoded_buffer", ())) or getattr(
            getattr(self, "_decoder", None), "has_unconsumed_tail", False
        )
        if self.closed and not waiting:
            self._fairq_flow.finish(complete=True)
