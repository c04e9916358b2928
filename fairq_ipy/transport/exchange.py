"""One governed call: queued, sent when its turn has come, sent again when the endpoint says "later", and accounted for.

The life of an exchange, all of it on the keeper's thread::

    queued --admitted--> running --settled--> over
      ^                     |
      +-----"later"---------+        refused, or its caller left: over

Whoever waits for it holds a gate for the head of the answer and, for streams, a `Pipe` for its body. The caller may
leave at any moment, by any exception: `leave` is all it has to call, as often as it likes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from fairq_ipy.core.model import Receipt, Ticket
from fairq_ipy.errors import EndpointError, FairqError
from fairq_ipy.runtime.gate import Gate
from fairq_ipy.runtime.keeper import Keeper
from fairq_ipy.runtime.work import Permit
from fairq_ipy.transport.attempt import Attempt, Head, Later
from fairq_ipy.transport.body import Pipe
from fairq_ipy.transport.host import AsyncInner, Request

__all__ = ["Account", "Answer", "Exchange"]

UNSENT: Final = Receipt("unsent")


@dataclass(slots=True)
class Account:
    """What a call was and cost; complete once its body has ended.

    Attributes:
        ticket: number of the call.
        tenant: who asked.
        attempts: how often it was sent.
        wait_s: seconds in the queue, over all attempts.
        service_s: seconds from its last sending to its end; ``None`` before.
        receipt: what it cost; ``None`` before its end.
        finish_reason: how the model ended; ``None`` when it did not say.
        model: the model that answered; empty when it did not say.
    """

    ticket: int
    tenant: str
    attempts: int = 0
    wait_s: float = 0.0
    service_s: float | None = None
    receipt: Receipt | None = None
    finish_reason: str | None = None
    model: str = ""


class Answer(NamedTuple):
    """The beginning of an answer: its head, and the pipe its body comes through unless the head has it whole."""

    head: Head
    pipe: Pipe | None


class Exchange:
    """The `Work` of one call.

    Args:
        keeper: the queue.
        inner: sends the request on the keeper's loop.
        request: what to send; its body must be in memory, since it may be sent more than once.
        ticket: of the call.
        streaming: whether the request asks for events.
        counted: whether the request asks for usage that its caller did not ask for.
        follow: whether redirects within the endpoint are followed under the same permit.
        gate: where the caller waits for the `Answer`.

    Attributes:
        account: what it was and cost.
        gone: whether the caller left.
        counted, follow, inner, keeper, request, streaming, ticket: see above.
    """

    __slots__ = (
        "_attempt",
        "_gate",
        "_later",
        "_pipe",
        "account",
        "counted",
        "follow",
        "gone",
        "inner",
        "keeper",
        "request",
        "streaming",
        "ticket",
    )

    def __init__(
        self,
        keeper: Keeper,
        inner: AsyncInner,
        request: Request,
        *,
        ticket: Ticket,
        streaming: bool,
        counted: bool,
        follow: bool,
        gate: Gate[Answer],
    ) -> None:
        self.keeper = keeper
        self.inner = inner
        self.request = request
        self.ticket = ticket
        self.streaming = streaming
        self.counted = counted
        self.follow = follow
        self.account = Account(ticket.id, ticket.tenant)
        self.gone = False
        self._gate = gate
        self._attempt: Attempt | None = None
        self._later: Head | None = None  # the endpoint's own words, in case they turn out to be its last
        self._pipe: Pipe | None = None

    # -------------------------------------------------------------------------------------------- caller, any thread

    def submit(self) -> None:
        """Queue the call. From now on `leave` must be called by whoever does not take the answer."""
        self.keeper.submit(self, self.ticket)

    def leave(self) -> None:
        """Nobody wants the answer (any more): out of the queue, or off the wire."""
        self.keeper.post(self._left)

    # ------------------------------------------------------------------------------------------------ keeper's thread

    def admitted(self, permit: Permit) -> None:
        """Send the request (`Work`)."""
        self.account.attempts = permit.attempt
        self.account.wait_s = permit.waited
        if self.gone:
            self.keeper.settle(permit.ticket, UNSENT)
            return
        self._attempt = Attempt(self)
        self._attempt.start()

    def refused(self, error: FairqError) -> None:
        """Hand out the error, or the endpoint's own answer where that is what the call ended with (`Work`)."""
        if self._later is not None and isinstance(error, EndpointError):
            self._gate.resolve(Answer(self._later.final(), None))
        else:
            self.fail(error)

    def _left(self) -> None:
        if self.gone:
            return
        self.gone = True
        if self._attempt is not None:
            self._attempt.leave()
        else:
            self.keeper.leave(self.ticket.id)

    # ----------------------------------------------------------------------------------------- from the running attempt

    def open(self, head: Head) -> Pipe:
        """Hand out the head of an answer whose body is still coming."""
        self._pipe = Pipe(self.keeper, self.leave)
        self._gate.resolve(Answer(head, self._pipe))
        return self._pipe

    def whole(self, head: Head, receipt: Receipt) -> None:
        """Settle, and hand out an answer that is all there."""
        self.settle(receipt)
        self._gate.resolve(Answer(head, None))

    def later(self, later: Later) -> None:
        """Give the slot back and the ticket to the queue: the endpoint does not want it now."""
        self._attempt = None
        if self.gone:
            self.keeper.settle(self.ticket.id, Receipt("cancelled", exact=True, status=later.status))
            return
        self._later = later.head
        self.keeper.backoff(self.ticket.id, status=later.status, retry_after=later.retry_after)

    def settle(self, receipt: Receipt) -> None:
        """Give the slot back: the last byte has come, or nobody waits for it."""
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return
        account, meter = self.account, attempt.meter
        account.receipt = receipt
        account.service_s = attempt.age()
        account.finish_reason = meter.finish_reason
        account.model = meter.model
        self.keeper.settle(self.ticket.id, receipt)

    def fail(self, error: BaseException | None) -> None:
        """End what the caller waits for: with an error, or with the end of the body."""
        if self._pipe is not None:
            self._pipe.end(error)
        elif error is not None:
            self._gate.reject(error)
