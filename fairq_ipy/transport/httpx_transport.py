"""The governed transports of httpx and httpx2: every model call of a client passes the queue here.

A request that is no model call of the endpoint goes straight to the transport that the client would have had without
us. A model call becomes an `Exchange`: the bytes of its body are read here, on the caller's side, and everything else
happens on the keeper's loop, so that the caller's thread or loop only waits.

Errors come in the caller's own language. What the network does is raised as the library's exceptions, and the
endpoint's answers are answers. A refusal of the queue is an answer, too (`refusals.synthetic`): SDKs repeat what
raises. Two things are raised as they are, since no SDK catches and repeats them: `StreamReclaimedError` while a stream
is being read, and `ConfigurationError`.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from fairq_ipy.core.messages import Place
from fairq_ipy.core.model import Ticket
from fairq_ipy.errors import ConfigurationError, FairqError, QueueTimeoutError
from fairq_ipy.runtime.gate import Gate, LoopGate, ThreadGate
from fairq_ipy.runtime.keeper import Keeper
from fairq_ipy.runtime.scope import Identity
from fairq_ipy.transport import headers, refusals, wire
from fairq_ipy.transport.exchange import Answer, Exchange
from fairq_ipy.transport.host import Current, Host, Request, Response, Transport
from fairq_ipy.transport.library import Library
from fairq_ipy.transport.pools import Pool

__all__ = ["EXTENSION", "FOLLOW", "AsyncGovernedTransport", "Caller", "GovernedTransport", "Wish"]

T = TypeVar("T")

EXTENSION: Final = "fairq"
"""Key of a request's extensions for a `Wish`, and of a response's for the `Account` of its exchange."""

FOLLOW: Final = "fairq_follow"
"""Key of a request's extensions that says whether its client follows redirects."""

SHOW_EVERY: Final = 0.25
"""Seconds between two looks at a waiting call's place."""

# What the body of a request is read as, and the shape of an error depends on.
_ROUTES: Final = ("chat/completions", "completions", "responses", "embeddings", "messages")
_OURS: Final = frozenset({headers.TENANT, headers.PRIORITY})


class Caller(NamedTuple):
    """Who a client asks for.

    Attributes:
        current: returns the session.
        library: the client's library.
        tenant: who asks; ``None`` leaves it to the request and to the scope around the call.
        priority: level; ``None`` likewise.
    """

    current: Current
    library: Library
    tenant: str | None = None
    priority: int | str | None = None


class Wish(NamedTuple):
    """What our own front end wants of one call beyond HTTP; travels in the request's extensions.

    Attributes:
        tenant: who asks; ``None`` takes the client's.
        priority: level; ``None`` likewise.
        max_wait: seconds in the queue at the most.
        deadline: on ``time.monotonic()``, when to give up altogether.
        on_place: called on the caller's thread about four times a second while the call waits, then once with ``None``.
    """

    tenant: str | None = None
    priority: int | str | None = None
    max_wait: float | None = None
    deadline: float | None = None
    on_place: Callable[[Place | None], object] | None = None


class _Governed:
    """What both transports share: which requests are governed, and how an answer becomes a response."""

    def __init__(self, caller: Caller, pool: Pool, plain: Transport) -> None:
        self._caller = caller
        self._pool = pool
        self._plain = plain
        # A client that is forgotten instead of closed leaves no connection behind on the keeper's loop.
        self._forgotten = weakref.finalize(self, pool.close)
        self._forgotten.atexit = False

    def _route(self, host: Host, request: Request) -> str | None:
        """Return the governed path that `request` goes to; ``None`` for what is not governed."""
        if request.method != "POST" or not host.governs("POST", str(request.url)):
            return None
        path: str = request.url.path.rstrip("/")
        return next((route for route in _ROUTES if path.endswith("/" + route)), path)

    def _exchange(self, host: Host, route: str, request: Request, gate: Gate[Answer]) -> Exchange:
        """Return the exchange for a governed request whose body is in memory."""
        keeper = host.keeper
        wish = request.extensions.get(EXTENSION)
        identity = self._identify(host, request, wish if isinstance(wish, Wish) else Wish())
        asked = wire.read(request.content, route)
        ticket = Ticket(
            keeper.next_id(),
            identity.tenant,
            identity.level,
            asked.prompt_tokens,
            asked.max_tokens,
            asked.messages,
            asked.model,
            wish.max_wait if isinstance(wish, Wish) else None,
        )
        return Exchange(
            keeper,
            self._pool.inner(keeper),
            self._stripped(request),
            ticket=ticket,
            streaming=asked.stream,
            follow=request.extensions.get(FOLLOW) is True,
            gate=gate,
        )

    def _identify(self, host: Host, request: Request, wish: Wish) -> Identity:
        """Return who asks: the call's own word, the client's, the headers', else what the session finds."""
        named = {name.lower(): value.decode("latin-1") for name, value in request.headers.raw if name.lower() in _OURS}
        tenants = (wish.tenant, self._caller.tenant, named.get(headers.TENANT))
        priorities = (wish.priority, self._caller.priority, named.get(headers.PRIORITY))
        return host.identify(_first(tenants), _first(priorities))

    def _stripped(self, request: Request) -> Request:
        """Return `request` as it may be sent: without what is meant for us, and without hooks that are user code."""
        raw = request.headers.raw
        ours = any(name.lower() in _OURS for name, _ in raw)
        extensions = request.extensions
        if not ours and not (extensions.keys() & {EXTENSION, FOLLOW, "trace"}):
            return request
        return type(request)(
            request.method,
            request.url,
            headers=[(name, value) for name, value in raw if name.lower() not in _OURS],
            stream=request.stream,
            extensions={key: value for key, value in extensions.items() if key not in {EXTENSION, FOLLOW, "trace"}},
        )

    def _refusal(self, error: FairqError, route: str, wish: object) -> Response:
        """Return what the caller gets for an error of the queue, or raise it."""
        if isinstance(wish, Wish) or isinstance(error, ConfigurationError):
            raise error
        status, raw, body = refusals.synthetic(error, route)
        return self._response(status, raw, self._caller.library.module.ByteStream(body), {})

    def _response(
        self, status: int, raw: list[tuple[bytes, bytes]], stream: object, extensions: dict[str, Any]
    ) -> Response:
        return self._caller.library.module.Response(status, headers=raw, stream=stream, extensions=extensions)


class GovernedTransport(_Governed):
    """The transport of a sync client.

    Args:
        caller: who asks.
        pool: connections for model calls, on the keeper's loop.
        plain: the library's own transport, for everything else.
    """

    def handle_request(self, request: Request) -> Response:
        """Send `request`, through the queue if it is a model call of the endpoint."""
        headers.check(request.headers.raw)
        host = self._caller.current()
        route = self._route(host, request)
        if route is None:
            return self._plain.handle_request(self._stripped(request))
        request.read()
        wish = request.extensions.get(EXTENSION)
        keeper = host.keeper
        gate: ThreadGate[Answer] = keeper.thread_gate()
        exchange: Exchange | None = None
        try:
            exchange = self._exchange(host, route, request, gate)
            exchange.submit()
            answer = _wait(gate, keeper, exchange, wish) if isinstance(wish, Wish) else gate.wait()
            return self._answered(answer, exchange, wish)
        except FairqError as error:
            if exchange is not None:
                exchange.leave()
            return self._refusal(error, route, wish)
        except BaseException:
            if exchange is not None:
                exchange.leave()
            raise

    def _answered(self, answer: Answer, exchange: Exchange, wish: object) -> Response:
        head, pipe = answer
        deadline = wish.deadline if isinstance(wish, Wish) else None
        library = self._caller.library
        stream: Any = library.module.ByteStream(head.body or b"")
        if pipe is not None:
            stream = library.sync_body(pipe, exchange.keeper, deadline)
        return self._response(head.status, head.headers, stream, {**head.extensions, EXTENSION: exchange.account})

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()
        self._plain.close()

    def __enter__(self) -> Self:
        self._plain.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()
        self._plain.__exit__(kind, error, trace)


class AsyncGovernedTransport(_Governed):
    """The transport of an async client. One client may serve several loops, also one after the other."""

    async def handle_async_request(self, request: Request) -> Response:
        """Send `request`, through the queue if it is a model call of the endpoint."""
        headers.check(request.headers.raw)
        host = self._caller.current()
        route = self._route(host, request)
        if route is None:
            return await self._plain.handle_async_request(self._stripped(request))
        await request.aread()
        wish = request.extensions.get(EXTENSION)
        keeper = host.keeper
        exchange: Exchange | None = None

        def dead() -> None:
            if exchange is not None:
                exchange.leave()

        gate: LoopGate[Answer] = keeper.loop_gate(dead)
        try:
            exchange = self._exchange(host, route, request, gate)
            exchange.submit()
            answer = await (_await(gate, keeper, exchange, wish) if isinstance(wish, Wish) else gate)
            return self._answered(answer, exchange, wish)
        except FairqError as error:
            if exchange is not None:
                exchange.leave()
            return self._refusal(error, route, wish)
        except BaseException:
            if exchange is not None:
                exchange.leave()
            raise

    def _answered(self, answer: Answer, exchange: Exchange, wish: object) -> Response:
        head, pipe = answer
        deadline = wish.deadline if isinstance(wish, Wish) else None
        library = self._caller.library
        stream: Any = library.module.ByteStream(head.body or b"")
        if pipe is not None:
            stream = library.async_body(pipe, exchange.keeper, deadline)
        return self._response(head.status, head.headers, stream, {**head.extensions, EXTENSION: exchange.account})

    async def aclose(self) -> None:
        """Close all connections."""
        self._pool.close()
        await self._plain.aclose()

    async def __aenter__(self) -> Self:
        await self._plain.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()
        await self._plain.__aexit__(kind, error, trace)


def _first(values: tuple[T | None, ...]) -> T | None:
    return next((value for value in values if value is not None), None)


def _wait(gate: ThreadGate[Answer], keeper: Keeper, exchange: Exchange, wish: Wish) -> Answer:
    """Wait as our own front end does: with a deadline, and showing the place meanwhile."""
    shown: Place | None = None
    while True:
        step = _step(wish)
        try:
            answer = gate.wait(step)
        except TimeoutError:
            if gate.done:
                raise
        else:
            _show(wish, None, shown)
            return answer
        _check_deadline(exchange, wish)
        shown = _show(wish, keeper.place(exchange.ticket.id), shown)


async def _await(gate: LoopGate[Answer], keeper: Keeper, exchange: Exchange, wish: Wish) -> Answer:
    """Do the same for a task."""
    shown: Place | None = None
    while not gate.done:
        await asyncio.wait([gate.future], timeout=_step(wish))
        if not gate.done:
            _check_deadline(exchange, wish)
            shown = _show(wish, keeper.place(exchange.ticket.id), shown)
    _show(wish, None, shown)
    return await gate


def _step(wish: Wish) -> float | None:
    """Return after how many seconds there is something to do besides waiting."""
    step = None if wish.on_place is None else SHOW_EVERY
    if wish.deadline is None:
        return step
    left = max(wish.deadline - time.monotonic(), 0.0)
    return left if step is None else min(left, step)


def _show(wish: Wish, place: Place | None, shown: Place | None) -> Place | None:
    """Show a place; that the wait is over is shown once, and only to those who saw it begin."""
    if wish.on_place is not None and (place is not None or shown is not None):
        wish.on_place(place)
    return place


def _check_deadline(exchange: Exchange, wish: Wish) -> None:
    if wish.deadline is None or time.monotonic() < wish.deadline:
        return
    if exchange.account.attempts:
        raise TimeoutError
    ticket = exchange.ticket
    waited = 0.0 if wish.max_wait is None else wish.max_wait
    text = f"waited {waited:.3g} s in the queue and was not sent; try again when less is queued, or allow it more time"
    raise QueueTimeoutError(text, tenant=ticket.tenant, ticket=ticket.id, waited=waited)
