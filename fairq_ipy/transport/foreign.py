"""Transports that a user hands in: governed like all others, but run where their client runs.

A custom transport is user code, and the keeper runs none. So it works in the caller's thread or loop, under a permit
that is held until the body is closed. What the keeper's own reading gives to others is missing here, as it must be: a
stream that is opened and not read keeps its slot, and the silence of a server is the transport's own affair.
"""

from __future__ import annotations

import functools
import time
from asyncio import AbstractEventLoop
from types import TracebackType
from typing import Final, Self

from fairq_ipy.core.model import Receipt
from fairq_ipy.errors import EndpointError, FairqError
from fairq_ipy.runtime.gate import Gate, LoopGate, ThreadGate
from fairq_ipy.runtime.holding import Offer
from fairq_ipy.runtime.work import Permit
from fairq_ipy.transport import refusals
from fairq_ipy.transport.attempt import Head, Later, failure
from fairq_ipy.transport.exchange import Account
from fairq_ipy.transport.governing import EXTENSION, FOLLOW, Call, Caller, Governing
from fairq_ipy.transport.host import Request, Response, Transport
from fairq_ipy.transport.meter import Meter
from fairq_ipy.transport.passing import passing
from fairq_ipy.transport.turn import Turn
from fairq_ipy.transport.watched import AsyncWatched, SyncWatched, Watched, check_deadlock

__all__ = ["AsyncForeignTransport", "ForeignTransport"]

_ERROR: Final = 400


class _Foreign(Governing):
    """What the two share.

    Args:
        caller: who asks.
        inner: the user's transport.
    """

    _held_back = frozenset({EXTENSION, FOLLOW})

    def __init__(self, caller: Caller, inner: Transport) -> None:
        super().__init__(caller)
        self._inner = inner

    def _begin(
        self, call: Call, request: Request, gate: Gate[Offer], loop: AbstractEventLoop | None
    ) -> tuple[Turn, bool]:
        """Return a turn that waits at `gate`, still to be submitted, and whether the request asks for events."""
        keeper = call.host.keeper
        check_deadlock(keeper)
        ticket, asked = self._ticket(call, request)
        return Turn(keeper, ticket, gate, loop), asked.stream

    def _watched(
        self, response: Response, kind: type[Watched], turn: Turn, permit: Permit, call: Call, *, streaming: bool
    ) -> Response:
        """Return a response whose body is metered and holds the permit until it is closed."""
        account = Account(permit.ticket, turn.ticket.tenant, permit.attempt, permit.waited)
        meter = Meter(
            turn.ticket.prompt_tokens,
            streaming=streaming and response.status_code < _ERROR,
            content_type=response.headers.get("content-type", ""),
            content_encoding=response.headers.get("content-encoding", ""),
        )
        stream = self._caller.library.stream(kind)(response, meter, account, call.host.keeper, turn.end)
        extensions = {**response.extensions, EXTENSION: account}
        return self._response(response.status_code, response.headers.raw, stream, extensions)

    def _judge(self, response: Response) -> Later:
        """Return what a refusing answer, which was read, means."""
        status, raw, body = response.status_code, response.headers.raw, response.content
        return Later(Head(status, raw, {}, body), status, refusals.retry_after(raw, time.time()))

    def _last_word(self, said: Later, turn: Turn, attempts: int) -> Response:
        """Return an endpoint's refusal as the caller gets it."""
        head = said.head.final()
        account = Account(turn.ticket.id, turn.ticket.tenant, attempts)
        body = self._caller.library.module.ByteStream(head.body or b"")
        return self._response(head.status, head.headers, body, {EXTENSION: account})

    def _refused(self, error: FairqError, call: Call, turn: Turn | None, said: Later | None, attempts: int) -> Response:
        """Return what the caller gets for an error of the queue: that, or the endpoint's answer that led to it."""
        self._give_back(error, call, turn)
        if turn is not None and said is not None and isinstance(error, EndpointError):
            return self._last_word(said, turn, attempts)
        return self._refusal(error, call)

    @staticmethod
    def _give_back(error: BaseException, call: Call, turn: Turn | None) -> None:
        """Give back whatever is held, or leave the queue."""
        if turn is not None:
            receipt = failure(error) if isinstance(error, Exception) else Receipt("cancelled")
            call.host.keeper.post(turn.end, receipt)


class ForeignTransport(_Foreign):
    """A custom transport of a sync client."""

    def handle_request(self, request: Request) -> Response:
        """Send `request` on this thread, under a permit if it is a model call of the endpoint."""
        call = self._call(request)
        if call is None:
            return self._inner.handle_request(self._stripped(request))
        request.read()
        keeper = call.host.keeper
        turn: Turn | None = None
        said: Later | None = None
        attempts = 0
        try:
            gate: ThreadGate[Offer] = keeper.thread_gate()
            turn, streaming = self._begin(call, request, gate, None)
            keeper.submit(turn, turn.ticket)
            while True:
                permit = gate.wait().permit
                attempts = permit.attempt
                with passing():
                    response = self._inner.handle_request(self._stripped(request))
                if not refusals.refuses(response.status_code):
                    return self._watched(response, SyncWatched, turn, permit, call, streaming=streaming)
                response.read()
                said = self._judge(response)
                if not refusals.busy(said.status, said.head.headers, said.head.body or b""):
                    keeper.post(turn.end, Receipt("failed", exact=True, status=said.status))
                    return self._last_word(said, turn, attempts)
                gate = keeper.thread_gate()
                keeper.post(turn.push_back, gate, said.status, said.retry_after)
        except FairqError as error:
            return self._refused(error, call, turn, said, attempts)
        except BaseException as error:
            self._give_back(error, call, turn)
            raise

    def close(self) -> None:
        """Close the custom transport."""
        self._inner.close()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, error, trace)


class AsyncForeignTransport(_Foreign):
    """A custom transport of an async client."""

    async def handle_async_request(self, request: Request) -> Response:
        """Send `request` on this loop, under a permit if it is a model call of the endpoint."""
        call = self._call(request)
        if call is None:
            return await self._inner.handle_async_request(self._stripped(request))
        await request.aread()
        keeper = call.host.keeper
        turn: Turn | None = None
        said: Later | None = None
        attempts = 0
        try:
            gate: LoopGate[Offer] = keeper.loop_gate()
            turn, streaming = self._begin(call, request, gate, gate.loop)
            lost = functools.partial(turn.end, Receipt("cancelled"))
            gate.on_dead = lost
            keeper.submit(turn, turn.ticket)
            while True:
                offer = await gate
                if not offer.claim():  # this loop was busy, and the slot went on; the place in the queue was kept
                    gate = keeper.loop_gate(lost)
                    keeper.post(turn.again, gate)
                    continue
                attempts = offer.permit.attempt
                with passing():
                    response = await self._inner.handle_async_request(self._stripped(request))
                if not refusals.refuses(response.status_code):
                    return self._watched(response, AsyncWatched, turn, offer.permit, call, streaming=streaming)
                await response.aread()
                said = self._judge(response)
                if not refusals.busy(said.status, said.head.headers, said.head.body or b""):
                    keeper.post(turn.end, Receipt("failed", exact=True, status=said.status))
                    return self._last_word(said, turn, attempts)
                gate = keeper.loop_gate(lost)
                keeper.post(turn.push_back, gate, said.status, said.retry_after)
        except FairqError as error:
            return self._refused(error, call, turn, said, attempts)
        except BaseException as error:
            self._give_back(error, call, turn)
            raise

    async def aclose(self) -> None:
        """Close the custom transport."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)
