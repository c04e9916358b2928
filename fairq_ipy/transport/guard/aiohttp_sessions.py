"""aiohttp: the one method through which all requests of its sessions go, redirects included."""
# ruff: noqa: ANN401, SLF001 - aiohttp's own objects, and the few private names that a response of its kind is made of

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from types import ModuleType
from typing import Any, Final, Self

from fairq_ipy.transport.attempt import Head
from fairq_ipy.transport.guard.routing import OURS, Flow, Outgoing, plain_headers, raw_headers, route_async
from fairq_ipy.transport.guard.watch import Seam, Watch
from fairq_ipy.transport.passing import passing
from fairq_ipy.transport.refusals import RawHeaders

__all__ = ["seams"]

_PACKAGES: Final = frozenset({"aiohttp"})


def seams(watch: Watch, module: ModuleType) -> Iterator[Seam]:
    """Yield the methods to replace in aiohttp."""
    wrappers = _Sessions(watch, module)
    yield module.ClientSession, "_request", wrappers.request
    yield module.ClientSession, "_ws_connect", wrappers.ws_connect


class _Sessions:
    """The wrappers."""

    def __init__(self, watch: Watch, module: ModuleType) -> None:
        self._watch = watch
        self._module = module

    def request(self, original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return the method of sessions."""

        def _request(session: Any, method: str, str_or_url: Any, **settings: Any) -> Awaitable[Any]:
            url = self._url(session, str_or_url) if method.upper() == "POST" else None
            if url is None or not self._watch.reaches(url.host or ""):
                return original(session, method, str_or_url, **settings)  # no coroutine of ours is in the way
            return met(session, method, str_or_url, url, settings)

        async def met(session: Any, method: str, str_or_url: Any, url: Any, settings: dict[str, Any]) -> Any:
            fate = self._watch.judge("aiohttp", url.host, str(url), _PACKAGES)
            if fate is None:
                return await original(session, method, str_or_url, **settings)
            if fate != "queued":
                with passing():
                    return await original(session, method, str_or_url, **settings)
            call = _Call(
                self._module, session, url, settings, lambda kept: original(session, method, str_or_url, **kept)
            )
            return await call.checked(await route_async(self._watch.host, call.outgoing(), call))

        return _request

    def ws_connect(self, original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return the method for websockets, which no queue can hold: what goes through one cannot be told apart."""

        async def _ws_connect(session: Any, url: Any, *args: Any, **settings: Any) -> Any:
            whole = self._url(session, url)
            if whole is not None and self._watch.reaches(whole.host or ""):
                scheme = {"ws": "http", "wss": "https"}.get(whole.scheme, whole.scheme)
                if self._watch.is_endpoint(scheme, whole.host, whole.port):
                    self._watch.out_of_reach("aiohttp's websocket", whole.host, _PACKAGES)
            return await original(session, url, *args, **settings)

        return _ws_connect

    @staticmethod
    def _url(session: Any, url: Any) -> Any:
        """Return the whole URL; ``None`` for what the session will refuse."""
        try:
            return session._build_url(url)
        except (ValueError, TypeError, AssertionError):
            return None


class _Call:
    """One request of aiohttp."""

    def __init__(
        self,
        module: ModuleType,
        session: Any,
        url: Any,
        settings: Mapping[str, Any],
        send: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> None:
        self._module = module
        self._session = session
        self._url = url
        self._send = send
        asked = settings.get("raise_for_status")
        self._raise = session.raise_for_status if asked is None else asked
        # Whether a refusal is raised is decided once the queue has no more to do with it.
        self._settings = {**settings, "raise_for_status": False}
        self._headers = session._prepare_headers(settings.get("headers"))
        if any(name.lower() in OURS for name in self._headers):
            kept = self._headers.copy()
            for name in OURS:
                kept.popall(name, None)
            self._settings["headers"] = kept

    def outgoing(self) -> Outgoing:
        content, data = self._settings.get("json"), self._settings.get("data")
        body: bytes | None = None
        if content is not None:
            text = self._session.json_serialize(content)
            body = text.encode() if isinstance(text, str) else bytes(text)
        elif isinstance(data, (bytes, bytearray, memoryview)):
            body = bytes(data)
        elif isinstance(data, str):
            body = data.encode()
        elif data is None:
            body = b""
        return Outgoing.of(str(self._url), self._headers.items(), body)

    async def send(self) -> Any:
        return await self._send(self._settings)

    def head(self, response: Any) -> tuple[int, RawHeaders]:
        return response.status, raw_headers(response.headers.items())

    async def read(self, response: Any) -> bytes:
        body: bytes = await response.read()
        response.release()
        return body

    def watched(self, response: Any, flow: Flow) -> Any:
        decodes = self._settings.get("auto_decompress")
        coding = response.headers.get("content-encoding", "")
        if coding and not (self._session.auto_decompress if decodes is None else decodes):
            flow.encoded(coding)
        response.content = _Content(response.content, flow)
        return response

    def made(self, head: Head) -> Any:
        return _answer(self._module, self._session, self._url, head)

    async def checked(self, response: Any) -> Any:
        """Do what the session does with statuses: raise, ask a function, or nothing."""
        if callable(self._raise):
            await self._raise(response)
        elif self._raise:
            response.raise_for_status()
        return response


def _answer(module: ModuleType, session: Any, url: Any, head: Head) -> Any:
    """Return a response of the session's own kind that says what `head` says, all of it read."""
    multidict = type(session.headers)
    loop = asyncio.get_running_loop()
    kind = session._response_class
    response = kind.__new__(kind)  # its constructor wants what only a connection has, and more with each release
    named = multidict(plain_headers(head.headers))
    content = module.StreamReader(module.base_protocol.BaseProtocol(loop), 2**16, loop=loop)
    content.feed_data(head.body or b"")
    content.feed_eof()
    facts = {
        "method": "POST",
        "status": head.status,
        "reason": HTTPStatus(head.status).phrase if head.status in set(HTTPStatus) else "",
        "content": content,
        "_real_url": url,
        "_url": url,
        "_headers": named,
        "_history": (),
        "_raw_headers": tuple(head.headers),
        "_request_info": module.RequestInfo(url, "POST", named, url),
        "_body": None,
        "_cache": {},
        "_traces": [],
        "_loop": loop,
        "_session": None,
        "_resolve_charset": lambda _response, _body: "utf-8",
    }
    for name, value in facts.items():
        setattr(response, name, value)
    return response


class _Content:
    """The content of a response, metered as it is taken; all else is that of the stream reader behind it.

    The call is over when the last byte is here, whether or not somebody has taken it.
    """

    def __init__(self, inner: Any, flow: Flow) -> None:
        self._inner = inner
        self._flow = flow
        self._over = False
        here = weakref.WeakMethod(self._arrived)  # a response that is dropped shall be gone at once
        inner.on_eof(lambda: (arrived := here()) and arrived())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property  # type: ignore[misc]  # who asks for the type of a response's content gets what it expects
    def __class__(self) -> type:
        return type(self._inner)

    async def read(self, n: int = -1) -> bytes:
        return await self._passed(self._inner.read(n))

    async def readany(self) -> bytes:
        return await self._passed(self._inner.readany())

    async def readexactly(self, n: int) -> bytes:
        return await self._passed(self._inner.readexactly(n))

    async def readline(self, **settings: Any) -> bytes:
        return await self._passed(self._inner.readline(**settings))

    async def readuntil(self, *args: Any, **settings: Any) -> bytes:
        return await self._passed(self._inner.readuntil(*args, **settings))

    async def readchunk(self) -> tuple[bytes, bool]:
        with _ended(self._flow):
            chunk, end = await self._inner.readchunk()
        return self._counted(chunk), end

    def read_nowait(self, n: int = -1) -> bytes:
        with _ended(self._flow):
            chunk = self._inner.read_nowait(n)
        return self._counted(chunk)

    def __aiter__(self) -> _Pieces:
        return _Pieces(self.readline, b"")

    def iter_chunked(self, n: int) -> _Pieces:
        return _Pieces(lambda: self.read(n), b"")

    def iter_any(self) -> _Pieces:
        return _Pieces(self.readany, b"")

    def iter_chunks(self) -> _Pieces:
        return _Pieces(self.readchunk, (b"", False))

    def set_exception(self, error: BaseException, *args: Any) -> None:
        """The response was closed, or its connection broke."""
        self._inner.set_exception(error, *args)
        self._flow.finish(complete=False, left=True)

    async def _passed(self, reading: Awaitable[bytes]) -> bytes:
        with _ended(self._flow):
            chunk = await reading
        return self._counted(chunk)

    def _counted(self, chunk: bytes) -> bytes:
        if chunk and not self._over:
            self._flow.passed(chunk)
        return chunk

    def _arrived(self) -> None:
        """The last byte is here: count what nobody has taken yet."""
        rest = b"".join(getattr(self._inner, "_buffer", ()))[getattr(self._inner, "_buffer_offset", 0) :]
        self._counted(rest)
        self._over = True
        self._flow.finish(complete=True)


class _Pieces:
    """Pieces of a content, one after the other."""

    def __init__(self, take: Callable[[], Awaitable[Any]], end: object) -> None:
        self._take = take
        self._end = end

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        piece = await self._take()
        if piece == self._end:
            raise StopAsyncIteration
        return piece


@contextmanager
def _ended(flow: Flow) -> Iterator[None]:
    """End the flow when reading does."""
    try:
        yield
    except BaseException as error:
        flow.finish(complete=False, left=not isinstance(error, Exception))
        raise
