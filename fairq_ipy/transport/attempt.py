"""One sending of one call, on the keeper's loop: from the first byte of the request to the last of the answer.

Two ways to hand an answer out. Whole: the body is read to its end, judged, settled, and handed over in one piece; so
are all errors. Streamed: the head is held until the first data event, since an error that comes first may still mean
"later"; then the bytes go on as they come, a bounded way ahead of their reader. A body that was to be whole and turns
out to be large goes on as a stream.

The slot is held until the server's last byte, or until the connection is closed because nobody wants the rest or the
server fell silent. Silence is the time without a data event. Only streams are watched for it: who asked for a whole
answer has the timeouts of the client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairq_ipy.core.model import Receipt
from fairq_ipy.errors import ShutDownError, StreamReclaimedError
from fairq_ipy.transport import refusals
from fairq_ipy.transport.host import Request, Response
from fairq_ipy.transport.meter import Meter
from fairq_ipy.transport.redirects import MAX_HOPS, next_hop, too_many
from fairq_ipy.transport.sieve import Sieve

if TYPE_CHECKING:
    from fairq_ipy.transport.body import Pipe
    from fairq_ipy.transport.exchange import Exchange

__all__ = ["Attempt", "Head", "Later", "failure"]

WHOLE: Final = 2**20
"""Bytes of a body that are handed over in one piece."""

HOLD_BACK: Final = 2**16
"""Bytes of a stream that are held back while no data event is among them."""

LINGER: Final = 0.25
"""Seconds that a stream has for its end when the model has said that it is done and the reader is gone: the connection
can be used again, and the last chunk may carry the usage."""

PROGRESS_EVERY: Final = 0.1
"""Seconds between two words to the queue about how much a stream has produced."""

_ERROR: Final = 400

# What went wrong before the endpoint saw anything, by the names that httpx and httpx2 share.
_UNSENT: Final = frozenset(
    {"ConnectError", "ConnectTimeout", "LocalProtocolError", "PoolTimeout", "ProxyError", "UnsupportedProtocol"}
)


def failure(error: BaseException) -> Receipt:
    """Return what a call cost that ended in an error of the network before its answer began."""
    return Receipt("unsent") if type(error).__name__ in _UNSENT else Receipt("failed", exact=True)


class Head(NamedTuple):
    """The beginning of an answer.

    Attributes:
        status: HTTP status.
        headers: as they came.
        extensions: what httpx keeps beside them, as far as it means anything on another thread.
        body: all of the body; ``None`` when it comes through a pipe.
    """

    status: int
    headers: list[tuple[bytes, bytes]]
    extensions: dict[str, Any]
    body: bytes | None = None

    def final(self) -> Head:
        """Return it with a word to SDKs that trying again is not theirs to do: the queue has done that."""
        kept = [(name, value) for name, value in self.headers if name.lower() != b"x-should-retry"]
        return self._replace(headers=[*kept, (b"x-should-retry", b"false")])


class Later(NamedTuple):
    """The endpoint does not want the call now: what it said, in case that is its last word, and for how long."""

    head: Head
    status: int
    retry_after: float | None


class Attempt:
    """One sending.

    Args:
        exchange: the call.

    Attributes:
        meter: what came so far.
    """

    __slots__ = (
        "_begun",
        "_complete",
        "_exchange",
        "_head",
        "_heard",
        "_loop",
        "_pipe",
        "_progressed",
        "_reclaimed",
        "_sent",
        "_task",
        "_watch",
        "meter",
    )

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._loop = exchange.keeper.loop
        self._task: asyncio.Task[None] | None = None
        self._begun = False
        self._sent = self._heard = self._progressed = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None
        self._reclaimed: str | None = None  # why it was taken back
        self._head: Head | None = None
        self._pipe: Pipe | None = None
        self._complete = False
        self.meter = Meter(exchange.ticket.prompt_tokens)

    def age(self) -> float:
        """Return for how many seconds it has been running."""
        return self._loop.time() - self._sent

    def start(self) -> None:
        """Send it."""
        self._task = self._exchange.keeper.spawn(self._run())

    def leave(self) -> None:
        """Nobody wants the rest."""
        if self._task is None or not self._begun:
            return  # `_run` sees it by itself, while a task that is cancelled before its first step never gets there
        if self.meter.finished and not self._complete:
            self._loop.call_later(LINGER, self._task.cancel)
        else:
            self._task.cancel()

    async def _run(self) -> None:
        """Do it all. Whatever happens, the exchange is told in the end, once."""
        exchange = self._exchange
        self._begun = True
        if exchange.gone:
            exchange.settle(Receipt("unsent"))
            return
        error: BaseException | None = None
        later: Later | None = None
        try:
            later = await self._send()
        except asyncio.CancelledError:
            error = self._why_cancelled()
        except BaseException as raised:  # noqa: BLE001 - it belongs to the caller, who waits on another thread
            error = raised
        finally:
            self._unwatch()
        if later is not None:
            exchange.later(later)
            return
        receipt = self._receipt(error)
        if error is None and self._pipe is None and self._head is not None and not exchange.gone:
            exchange.whole(self._head, receipt)
            return
        exchange.settle(receipt)
        exchange.fail(error)

    # ------------------------------------------------------------------------------------------------------ the answer

    async def _send(self) -> Later | None:
        exchange = self._exchange
        if exchange.streaming:
            self._watch_silence()
        response = await self._follow(exchange.request)
        chunks: AsyncIterator[bytes] = aiter(response.stream)
        try:
            head = self._begin(response)
            return await (self._stream if self.meter.streams else self._collect)(chunks, head)
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
            await response.aclose()

    async def _follow(self, request: Request) -> Response:
        """Send `request`; go after redirects to the same origin that keep the method, within the slot that it has."""
        inner = self._exchange.inner
        for _ in range(MAX_HOPS + 1):
            response = await inner.handle_async_request(request)
            hop = next_hop(request, response) if self._exchange.follow else None
            if hop is None:
                return response
            await response.aclose()
            request = hop
        raise too_many(request)

    def _begin(self, response: Response) -> Head:
        headers: list[tuple[bytes, bytes]] = response.headers.raw
        extensions = {key: value for key, value in response.extensions.items() if isinstance(value, bytes)}
        head = self._head = Head(response.status_code, headers, extensions)
        self.meter = Meter(
            self._exchange.ticket.prompt_tokens,
            streaming=self._exchange.streaming and response.status_code < _ERROR,
            content_type=response.headers.get("content-type", ""),
            content_encoding=response.headers.get("content-encoding", ""),
        )
        if self.meter.streams and self._watch is None:
            self._watch_silence()
        return head

    async def _collect(self, chunks: AsyncIterator[bytes], head: Head) -> Later | None:
        """Read a body that is handed over whole, or go on with it as a stream when it gets too large."""
        self._unwatch()
        kept: list[bytes] = []
        size = 0
        async for chunk in chunks:
            self.meter.feed(chunk)
            kept.append(chunk)
            size += len(chunk)
            if size > WHOLE:
                await self._pass_on(chunks, head, kept)
                return None
        self._end()
        self._head = head = head._replace(body=b"".join(kept))
        later = self._judge(head)
        if later is None and refusals.refuses(head.status):
            self._head = head.final()
        return later

    async def _stream(self, chunks: AsyncIterator[bytes], head: Head) -> Later | None:
        """Hand on the events as they come, unless the first of them is an error that means "later"."""
        kept = await self._first(chunks)
        if self.meter.error and not self.meter.said:
            later = self._judge(head._replace(body=b"".join(kept)))
            if later is not None:
                return later
        await self._pass_on(chunks, head, kept)
        return None

    async def _pass_on(self, chunks: AsyncIterator[bytes], head: Head, kept: list[bytes]) -> None:
        pipe = self._pipe = self._exchange.open(head)
        feed, push = self.meter.feed, pipe.push
        sieve = Sieve() if self._exchange.counted and self.meter.streams and self.meter.plain else None
        for chunk in kept:
            push(chunk if sieve is None else sieve.feed(chunk))
        async for chunk in chunks:
            if feed(chunk):
                self._hear()
            if not push(chunk if sieve is None else sieve.feed(chunk)):
                await self._wait_for_room(pipe)
        if sieve is not None:
            push(sieve.end())
        self._end()

    async def _first(self, chunks: AsyncIterator[bytes]) -> list[bytes]:
        """Return what comes until the first data event is complete, that event included."""
        kept: list[bytes] = []
        size = 0
        async for chunk in chunks:
            kept.append(chunk)
            size += len(chunk)
            if self.meter.feed(chunk):
                self._hear()
                self._watch_silence()
                break
            if size > HOLD_BACK:
                break
        return kept

    def _end(self) -> None:
        self.meter.end()
        self._complete = True

    def _judge(self, head: Head) -> Later | None:
        """Return when the endpoint means "later" by an answer that is all there."""
        body = head.body or b""
        if head.status >= _ERROR:
            later = refusals.busy(head.status, head.headers, body)
        else:
            later = bool(self.meter.error) and not self.meter.said and refusals.busy_inside(self.meter.error)
        if not later:
            return None
        return Later(head, head.status, refusals.retry_after(head.headers, time.time()))

    # -------------------------------------------------------------------------------------------------------- silence

    def _hear(self) -> None:
        now = self._heard = self._loop.time()
        if now - self._progressed > PROGRESS_EVERY:
            self._progressed = now
            self._exchange.keeper.progress(self._exchange.ticket.id, self.meter.output_tokens)

    async def _wait_for_room(self, pipe: Pipe) -> None:
        """Wait for the reader, who may be silent for as long as the server may."""
        self._heard = self._loop.time()
        self._watch_silence()
        await pipe.room()
        self._heard = self._loop.time()
        if not self.meter.streams:
            self._unwatch()

    def _watch_silence(self) -> None:
        """Look again when the server, or the reader, will have been silent for as long as it may."""
        self._unwatch()
        limits = self._exchange.keeper.rules.limits
        limit = limits.idle_stream if self.meter.events else limits.first_token
        if limit is not None:
            self._watch = self._loop.call_at(self._heard + limit, self._look, limit)

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _look(self, limit: float) -> None:
        silent = self._loop.time() - self._heard
        if silent < limit:
            self._watch_silence()
        elif self._task is not None:
            if self._pipe is not None and self._pipe.stalled:
                why = f"nobody read the stream for {silent:.3g} s; its slot was taken back: read streams as they come"
            elif self.meter.events:
                why = f"the server sent nothing for {silent:.3g} s (limits.idle_stream); the stream was taken back"
            else:
                why = f"the server sent no data within {silent:.3g} s (limits.first_token); the call was taken back"
            self._reclaimed = why
            self._task.cancel()

    def _why_cancelled(self) -> BaseException | None:
        """Return what the caller gets, if it still waits."""
        exchange = self._exchange
        number, tenant = exchange.ticket.id, exchange.ticket.tenant
        if exchange.gone:
            return None
        if self._reclaimed is None:
            return ShutDownError("the session was closed while the call ran", tenant=tenant, ticket=number)
        silent = self._loop.time() - self._heard
        return StreamReclaimedError(self._reclaimed, tenant=tenant, ticket=number, silent_for=silent)

    # ------------------------------------------------------------------------------------------------------ the account

    def _receipt(self, error: BaseException | None) -> Receipt:
        """Return what it cost, however it ended."""
        exchange, meter = self._exchange, self.meter
        status = None if self._head is None else self._head.status
        if error is not None and status is None and not exchange.gone:
            return failure(error)
        if not self._complete:
            meter.end(complete=False)
        if status is not None and status >= _ERROR:
            # it produced nothing: whatever was reserved for it is given back
            return Receipt("cancelled" if exchange.gone else "failed", exact=True, status=status)
        if exchange.gone and not self._complete and not meter.finished:
            return meter.receipt("cancelled", status)
        return meter.receipt(meter.outcome(complete=self._complete), status)
