"""One call of any library through the queue, its I/O done by that library where its caller runs.

A library brings a `Call` or an `AsyncCall`: how its request is sent (again), and how its answers are read, watched and
made. Everything else is here, the same for all: who asks, waiting, the endpoint's "later", the queue's refusals.
"""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from fairq_ipy.core.model import Receipt, Ticket
from fairq_ipy.errors import ConfigurationError, EndpointError, FairqError
from fairq_ipy.runtime.gate import Gate, LoopGate, ThreadGate
from fairq_ipy.runtime.holding import Offer
from fairq_ipy.runtime.keeper import Keeper
from fairq_ipy.runtime.work import Permit
from fairq_ipy.transport import headers, refusals, wire
from fairq_ipy.transport.attempt import Head, Later
from fairq_ipy.transport.exchange import Account
from fairq_ipy.transport.governing import route_of
from fairq_ipy.transport.host import Host
from fairq_ipy.transport.meter import Meter
from fairq_ipy.transport.passing import passing
from fairq_ipy.transport.refusals import RawHeaders
from fairq_ipy.transport.turn import Turn
from fairq_ipy.transport.watched import Tap, check_deadlock

__all__ = ["OURS", "AsyncCall", "Call", "Flow", "Outgoing", "plain_headers", "raw_headers", "route", "route_async"]

R = TypeVar("R")

OURS: Final = frozenset({headers.TENANT.decode(), headers.PRIORITY.decode()})
"""Names of the headers that are meant for us, in lower case."""

_ERROR: Final = 400

# What no longer holds of a body that was read, and taken out of its encoding, to be handed out again.
_FRAMING: Final = frozenset({"connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding"})

# What went wrong before the endpoint saw anything, by the names of the libraries' errors.
_UNSENT: Final = frozenset(
    {
        "ClientConnectorError",
        "ClientConnectorDNSError",
        "ClientProxyConnectionError",
        "ConnectTimeout",
        "ConnectTimeoutError",
        "ConnectionTimeoutError",
        "InvalidURL",
        "NameResolutionError",
        "NewConnectionError",
        "ProxyError",
    }
)


class Outgoing(NamedTuple):
    """A request as the queue sees it.

    Attributes:
        url: where it goes.
        tenant: who asks, by its header; ``None`` without.
        priority: likewise.
        body: its bytes; ``None`` when they can only be read once, by whoever sends them.
        size: how many there are, as far as that is known.
    """

    url: str
    tenant: str | None
    priority: str | None
    body: bytes | None
    size: int = 0

    @classmethod
    def of(cls, url: str, pairs: Iterable[tuple[str, str]], body: bytes | str | None) -> Outgoing:
        """Return it for a URL, all headers, and the body; a body of any other type cannot be read beforehand."""
        named = {str(name).lower(): str(value) for name, value in pairs}
        if isinstance(body, str):
            body = body.encode("utf-8", "surrogatepass")
        length = named.get("content-length", "")
        size = len(body) if body is not None else int(length) if length.isdecimal() else 0
        tenant, priority = (named.get(name.decode()) for name in (headers.TENANT, headers.PRIORITY))
        return cls(url, tenant, priority, body, size)


class Call(Protocol[R]):
    """A request of one library, with all that its sender may need to do."""

    def send(self) -> R:
        """Send it, as it would have been sent without us; once more when the endpoint said "later"."""

    def head(self, response: R) -> tuple[int, RawHeaders]:
        """Return status and headers."""

    def read(self, response: R) -> bytes:
        """Return the whole body, out of its encoding, and let go of the connection."""

    def watched(self, response: R, flow: Flow) -> R:
        """Return the response with a body that passes through `flow`."""

    def made(self, head: Head) -> R:
        """Return a response that says what `head` says."""


class AsyncCall(Protocol[R]):
    """The same for a library that awaits."""

    async def send(self) -> R:
        """See `Call`."""

    def head(self, response: R) -> tuple[int, RawHeaders]:
        """See `Call`."""

    async def read(self, response: R) -> bytes:
        """See `Call`."""

    def watched(self, response: R, flow: Flow) -> R:
        """See `Call`."""

    def made(self, head: Head) -> R:
        """See `Call`."""


class Flow(Tap):
    """The body of an answer as it passes, out of its encoding unless `encoded` is called before the first bytes."""

    def __init__(self, status: int, account: Account, keeper: Keeper, turn: Turn, **of_meter: Any) -> None:
        super().__init__(status, Meter(turn.ticket.prompt_tokens, **of_meter), account, keeper, turn.end)
        self._prompt_tokens = turn.ticket.prompt_tokens
        self._of_meter = of_meter

    def encoded(self, coding: str) -> None:
        """Expect the bytes as they were sent, in this content coding."""
        self._meter = Meter(self._prompt_tokens, **self._of_meter, content_encoding=coding)


class _Trip:
    """What becomes of one call."""

    def __init__(self, host: Host, outgoing: Outgoing) -> None:
        self._host = host
        self._outgoing = outgoing
        self._path = route_of(urlsplit(outgoing.url).path)
        self._turn: Turn | None = None
        self._streaming = False
        self._said: Later | None = None
        self.keeper = host.keeper

    def begin(self, gate: Gate[Offer], loop: AbstractEventLoop | None) -> Turn:
        """Queue the call."""
        keeper, outgoing = self.keeper, self._outgoing
        check_deadlock(keeper)
        identity = self._host.identify(outgoing.tenant, outgoing.priority)
        if outgoing.body is None:
            asked = wire.Asked(prompt_tokens=wire.tokens(outgoing.size))
        else:
            asked = wire.read(outgoing.body, self._path)
        self._streaming = asked.stream
        ticket = Ticket(
            keeper.next_id(),
            identity.tenant,
            identity.level,
            asked.prompt_tokens,
            asked.max_tokens,
            asked.messages,
            asked.model,
        )
        turn = self._turn = Turn(keeper, ticket, gate, loop)
        if isinstance(gate, LoopGate):
            gate.on_dead = self.lost
        keeper.submit(turn, ticket)
        return turn

    def lost(self) -> None:
        """The loop of its caller is gone. On the keeper's thread."""
        if self._turn is not None:
            self._turn.end(Receipt("cancelled"))

    def flow(self, turn: Turn, permit: Permit, status: int, raw: RawHeaders) -> Flow:
        """Return what the body of its answer passes through."""
        account = Account(permit.ticket, turn.ticket.tenant, permit.attempt, permit.waited)
        return Flow(
            status,
            account,
            self.keeper,
            turn,
            streaming=self._streaming and status < _ERROR,
            content_type="".join(refusals.header(raw, b"content-type")[:1]),
        )

    def final(self, turn: Turn, status: int, raw: RawHeaders, body: bytes) -> Head | None:
        """Return a refusal of the endpoint as its caller gets it; ``None`` when the call is to be sent again later."""
        head = Head(status, [pair for pair in raw if pair[0].decode("latin-1").lower() not in _FRAMING], {}, body)
        said = self._said = Later(head, status, refusals.retry_after(raw, time.time()))
        busy = refusals.busy(status, raw, body)
        if busy and self._outgoing.body is not None:
            return None
        if busy:  # it cannot be sent again, but the endpoint shall have its rest
            self.keeper.post(turn.push_back, self.keeper.thread_gate(), status, said.retry_after)
        self.keeper.post(turn.end, Receipt("failed", exact=True, status=status))
        return head.final()

    def push_back(self, turn: Turn, gate: Gate[Offer]) -> None:
        """Wait for another turn."""
        said = self._said
        if said is not None:
            self.keeper.post(turn.push_back, gate, said.status, said.retry_after)

    def refused(self, error: FairqError) -> Head:
        """Return what the caller gets for an error of the queue: that, or the endpoint's answer that led to it."""
        self.give_back(error)
        if self._said is not None and isinstance(error, EndpointError):
            return self._said.head.final()
        if isinstance(error, ConfigurationError):
            raise error
        status, raw, body = refusals.synthetic(error, self._path)
        return Head(status, raw, {}, body)

    def give_back(self, error: BaseException) -> None:
        """Give back whatever is held, or leave the queue."""
        if self._turn is None:
            return
        receipt = Receipt("cancelled")
        if isinstance(error, Exception):
            receipt = Receipt("unsent") if _was_unsent(error) else Receipt("failed", exact=True)
        self.keeper.post(self._turn.end, receipt)


def route(host: Host, outgoing: Outgoing, call: Call[R]) -> R:
    """Send a call from this thread when its turn has come, and return its answer.

    Raises:
        ConfigurationError: what is wrong is no matter of the call. All other refusals are answers.
    """
    trip = _Trip(host, outgoing)
    keeper = trip.keeper
    try:
        gate: ThreadGate[Offer] = keeper.thread_gate()
        turn = trip.begin(gate, None)
        while True:
            permit = gate.wait().permit
            with passing():
                response = call.send()
            status, raw = call.head(response)
            if not refusals.refuses(status):
                return call.watched(response, trip.flow(turn, permit, status, raw))
            final = trip.final(turn, status, raw, call.read(response))
            if final is not None:
                return call.made(final)
            gate = keeper.thread_gate()
            trip.push_back(turn, gate)
    except FairqError as error:
        return call.made(trip.refused(error))
    except BaseException as error:
        trip.give_back(error)
        raise


async def route_async(host: Host, outgoing: Outgoing, call: AsyncCall[R]) -> R:
    """Do the same from a task."""
    trip = _Trip(host, outgoing)
    keeper = trip.keeper
    try:
        gate: LoopGate[Offer] = keeper.loop_gate()
        turn = trip.begin(gate, gate.loop)
        while True:
            offer = await gate
            if not offer.claim():  # this loop was busy, and the slot went on; the place in the queue was kept
                gate = keeper.loop_gate(trip.lost)
                keeper.post(turn.again, gate)
                continue
            with passing():
                response = await call.send()
            status, raw = call.head(response)
            if not refusals.refuses(status):
                return call.watched(response, trip.flow(turn, offer.permit, status, raw))
            final = trip.final(turn, status, raw, await call.read(response))
            if final is not None:
                return call.made(final)
            gate = keeper.loop_gate(trip.lost)
            trip.push_back(turn, gate)
    except FairqError as error:
        return call.made(trip.refused(error))
    except BaseException as error:
        trip.give_back(error)
        raise


def raw_headers(pairs: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Return headers as they travel."""
    return [(name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in pairs]


def plain_headers(raw: RawHeaders) -> list[tuple[str, str]]:
    """Return headers as text."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]


def _was_unsent(error: BaseException) -> bool:
    """Return whether the endpoint saw nothing of a call; libraries wrap one error in another."""
    todo: list[object] = [error]
    for _ in range(10):
        if not todo:
            return False
        each = todo.pop(0)
        if type(each).__name__ in _UNSENT:
            return True
        if isinstance(each, BaseException):
            todo += [getattr(each, "reason", None), each.__cause__, *each.args]
    return False
