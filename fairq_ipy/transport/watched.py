"""Bodies that their caller reads from a custom transport: metered as they pass, holding their slot until they end.

A caller that asks again while its own open bodies hold every slot would wait for itself; it is told so at once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Final

from fairq_ipy.core.model import Receipt
from fairq_ipy.errors import WouldDeadlockError
from fairq_ipy.runtime.keeper import Keeper
from fairq_ipy.runtime.scope import current_lender
from fairq_ipy.transport.exchange import Account
from fairq_ipy.transport.host import Response
from fairq_ipy.transport.meter import Meter

__all__ = ["AsyncWatched", "SyncWatched", "Tap", "Watched", "check_deadlock"]

PROGRESS_EVERY: Final = 0.1
"""Seconds between two words to the queue about how much a stream has produced."""

_ERROR: Final = 400


def _who_runs() -> int:
    """Return the identity of the running task, or outside of tasks of the thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return -threading.get_ident() if task is None else id(task)


class _Open:
    """A stream in the hands of its caller, and the slot that it holds.

    Attributes:
        closed: whether it is over; set by the caller itself, so that what it does next finds it so.
    """

    __slots__ = ("_lender", "_owner", "closed", "keeper", "ticket")

    def __init__(self, keeper: Keeper, ticket: int) -> None:
        self._owner = _who_runs()
        self._lender = current_lender()
        self.keeper = keeper
        self.ticket = ticket
        self.closed = False

    def blocks(self, keeper: Keeper) -> bool:
        """Return whether only the present caller can free this slot."""
        return not self.closed and self.keeper is keeper and self._owner == _who_runs()

    def lent_by(self, lender: object) -> bool:
        """Return whether it runs under the permit `lender`."""
        return self._lender is lender


# Streams that the running code opened: what it must not wait for. A context variable, since it follows the caller.
_opened: Final[ContextVar[tuple[_Open, ...]]] = ContextVar("fairq_opened", default=())


def check_deadlock(keeper: Keeper) -> None:
    """Refuse a call that would wait for its own caller to close a stream.

    Raises:
        WouldDeadlockError: every slot is held by open streams of the very caller.
    """
    opened = _opened.get()
    if not opened:
        return
    mine = [stream for stream in opened if stream.blocks(keeper)]
    lender = current_lender()
    if lender is None:
        stuck = len(mine) >= keeper.rules.limits.concurrency
    else:
        mine = [stream for stream in mine if stream.lent_by(lender)]
        stuck = bool(mine)
    if stuck and mine:
        outer = mine[-1].ticket
        text = (
            f"call {outer} holds the slot that this call waits for, and its stream is open in the same place: "
            "read it to its end or close it first"
        )
        raise WouldDeadlockError(text, outer=outer)


class Tap:
    """What sees the bytes of one body pass, and gives its permit back at the end.

    Args:
        status: of the answer.
        meter: for it.
        account: of the call.
        keeper: the queue.
        end: gives the permit back; belongs to the keeper's thread.
    """

    def __init__(
        self, status: int, meter: Meter, account: Account, keeper: Keeper, end: Callable[[Receipt], None]
    ) -> None:
        self._status = status
        self._meter = meter
        self._keeper = keeper
        self._end = end
        self._account = account
        self._began = self._progressed = time.monotonic()
        self._open = _Open(keeper, account.ticket)
        _opened.set((*(each for each in _opened.get() if not each.closed), self._open))

    def passed(self, chunk: bytes) -> bytes:
        """Meter `chunk`, and return it."""
        if self._meter.feed(chunk):
            now = time.monotonic()
            if now - self._progressed > PROGRESS_EVERY:
                self._progressed = now
                self._keeper.post(self._keeper.progress, self._account.ticket, self._meter.output_tokens)
        return chunk

    def finish(self, *, complete: bool, left: bool = False) -> None:
        """Give the permit back, once.

        Args:
            complete: whether the body came to its own end.
            left: whether its reader ended it.
        """
        if self._open.closed:
            return
        self._open.closed = True
        meter, status = self._meter, self._status
        meter.end(complete=complete)
        if status >= _ERROR:
            receipt = Receipt("failed", exact=True, status=status)
        elif left and not meter.finished:
            receipt = meter.receipt("cancelled", status)
        else:
            receipt = meter.receipt(meter.outcome(complete=complete), status)
        account = self._account
        account.receipt = receipt
        account.service_s = time.monotonic() - self._began
        account.finish_reason, account.model = meter.finish_reason, meter.model
        self._keeper.post(self._end, receipt)

    def __del__(self) -> None:
        self.finish(complete=False, left=True)


class Watched(Tap):
    """A body that its caller reads from a custom transport, metered as it passes.

    Args:
        response: of the transport.
        meter, account, keeper, end: see `Tap`.
    """

    def __init__(
        self, response: Response, meter: Meter, account: Account, keeper: Keeper, end: Callable[[Receipt], None]
    ) -> None:
        super().__init__(response.status_code, meter, account, keeper, end)
        self._stream = response.stream


class SyncWatched(Watched):
    """The body for a thread."""

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._stream:
                yield self.passed(chunk)
            self.finish(complete=True)
        except BaseException as error:
            self.finish(complete=False, left=not isinstance(error, Exception))
            raise

    def close(self) -> None:
        """Close the transport's stream, and give the permit back."""
        try:
            self._stream.close()
        finally:
            self.finish(complete=False, left=True)


class AsyncWatched(Watched):
    """The body for a task."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                yield self.passed(chunk)
            self.finish(complete=True)
        except BaseException as error:
            self.finish(complete=False, left=not isinstance(error, Exception))
            raise

    async def aclose(self) -> None:
        """Close the transport's stream, and give the permit back."""
        try:
            await self._stream.aclose()
        finally:
            self.finish(complete=False, left=True)
