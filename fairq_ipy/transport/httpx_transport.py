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

import weakref
from types import TracebackType
from typing import Any, Self

from fairq_ipy.errors import FairqError
from fairq_ipy.runtime.gate import Gate, LoopGate, ThreadGate
from fairq_ipy.transport.body import AsyncBody, SyncBody
from fairq_ipy.transport.exchange import Answer, Exchange
from fairq_ipy.transport.governing import EXTENSION, FOLLOW, Call, Caller, Governing
from fairq_ipy.transport.host import Request, Response, Transport
from fairq_ipy.transport.pools import Pool
from fairq_ipy.transport.sieve import with_usage
from fairq_ipy.transport.waiting import await_answer, wait_for_answer
from fairq_ipy.transport.watched import check_deadlock

__all__ = ["AsyncGovernedTransport", "GovernedTransport"]


class _Governed(Governing):
    """What the two share.

    Args:
        caller: who asks.
        pool: connections for model calls, on the keeper's loop.
        plain: the library's own transport, for everything else.
    """

    def __init__(self, caller: Caller, pool: Pool, plain: Transport) -> None:
        super().__init__(caller)
        self._pool = pool
        self._plain = plain
        # A client that is forgotten instead of closed leaves no connection behind on the keeper's loop.
        self._forgotten = weakref.finalize(self, pool.close)
        self._forgotten.atexit = False

    def _exchange(self, call: Call, request: Request, gate: Gate[Answer]) -> Exchange:
        """Return the exchange for a governed request whose body is in memory."""
        keeper = call.host.keeper
        check_deadlock(keeper)
        ticket, asked = self._ticket(call, request)
        counted = asked.stream and not asked.options and call.wish is None and call.route == "chat/completions"
        counted = counted and call.host.settings.endpoint.stream_usage
        sent = self._stripped(request)
        return Exchange(
            keeper,
            self._pool.inner(keeper),
            self._counted(sent) if counted else sent,
            ticket=ticket,
            streaming=asked.stream,
            counted=counted,
            follow=request.extensions.get(FOLLOW) is True,
            gate=gate,
        )

    @staticmethod
    def _counted(request: Request) -> Request:
        """Return `request` with the wish for usage that its caller did not have."""
        framing = {b"content-length", b"transfer-encoding"}
        return type(request)(
            request.method,
            request.url,
            headers=[(name, value) for name, value in request.headers.raw if name.lower() not in framing],
            content=with_usage(request.read()),
            extensions=request.extensions,
        )

    def _answered(self, answer: Answer, exchange: Exchange, body: type[Any], call: Call) -> Response:
        head, pipe = answer
        if pipe is None:
            stream: object = self._caller.library.module.ByteStream(head.body or b"")
        else:
            kind = self._caller.library.stream(body)
            stream = kind(pipe, exchange.keeper, None if call.wish is None else call.wish.deadline)
        return self._response(head.status, head.headers, stream, {**head.extensions, EXTENSION: exchange.account})


class GovernedTransport(_Governed):
    """The transport of a sync client."""

    def handle_request(self, request: Request) -> Response:
        """Send `request`, through the queue if it is a model call of the endpoint."""
        call = self._call(request)
        if call is None:
            return self._plain.handle_request(self._stripped(request))
        request.read()
        gate: ThreadGate[Answer] = call.host.keeper.thread_gate()
        exchange: Exchange | None = None
        try:
            exchange = self._exchange(call, request, gate)
            exchange.submit()
            answer = gate.wait() if call.wish is None else wait_for_answer(gate, exchange, call.wish)
            return self._answered(answer, exchange, SyncBody, call)
        except BaseException as error:
            if exchange is not None:
                exchange.leave()
            if isinstance(error, FairqError):
                return self._refusal(error, call)
            raise

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
        call = self._call(request)
        if call is None:
            return await self._plain.handle_async_request(self._stripped(request))
        await request.aread()
        exchange: Exchange | None = None

        def dead() -> None:
            if exchange is not None:
                exchange.leave()

        gate: LoopGate[Answer] = call.host.keeper.loop_gate(dead)
        try:
            exchange = self._exchange(call, request, gate)
            exchange.submit()
            answer = await (gate if call.wish is None else await_answer(gate, exchange, call.wish))
            return self._answered(answer, exchange, AsyncBody, call)
        except BaseException as error:
            if exchange is not None:
                exchange.leave()
            if isinstance(error, FairqError):
                return self._refusal(error, call)
            raise

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
