"""A permit in the hands of user code: how it is offered, lent to the calls inside its block, and given back.

The slot of a permit belongs to its block. A governed call inside the block runs under that permit while it carries no
other call; further ones wait for it in a line of their own. So the calls of one block can never wait for a slot that
only the block itself can free, at any depth (a permit inside a permit borrows, too), and two blocks that hold a slot
each cannot wait for each other's. A caller that wants its calls to run side by side does not put a permit around them.

The calls inside are part of the permit's own ticket: their tokens are added up on its receipt, and when the endpoint
refuses one of them, the whole ticket goes back into the queue, slot and all, and its turn is the inner call's turn.

A thread that waits takes its permit by itself. A task can only take it when its loop comes round: it is made an
*offer*, which it must claim in time, lest a blocked loop sit on a slot. Everything here runs on the keeper's thread,
except `Offer.claim`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Literal

from fairq_ipy.core.budgets import too_large
from fairq_ipy.core.messages import Place
from fairq_ipy.core.model import Receipt, Ticket
from fairq_ipy.errors import FairqError
from fairq_ipy.runtime.gate import Gate, LoopGate
from fairq_ipy.runtime.work import Lender, Permit, Work

if TYPE_CHECKING:
    from fairq_ipy.runtime.keeper import Keeper

__all__ = ["Holding", "Offer"]

CLAIM_WITHIN: Final = 0.05
"""Seconds in which the first offer must be claimed. Doubled for every further one, so that a loop whose every turn
takes longer gets its permit in the end."""

UNSENT: Final = Receipt("unsent")

State = Literal["waiting", "offered", "away", "held", "resting", "ending", "over"]


class Offer:
    """A permit that one side takes: its caller claims it, or the keeper takes it back."""

    __slots__ = ("_token", "permit")

    def __init__(self, permit: Permit) -> None:
        self.permit = permit
        self._token = [permit]

    def claim(self) -> bool:
        """Take it; return whether it was still there. Any thread."""
        try:
            self._token.pop()
        except IndexError:
            return False
        return True


class Loan:
    """One call inside the block."""

    __slots__ = ("attempts", "since", "ticket", "timer", "work")

    def __init__(self, work: Work, ticket: Ticket, now: float) -> None:
        self.work = work
        self.ticket = ticket
        self.since = now
        self.attempts = 0
        self.timer: asyncio.TimerHandle | None = None

    def calm(self) -> None:
        """Let its deadline pass: it has its turn, or is gone."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Holding:
    """The keeper's side of one permit: the `Work` of its ticket, and the `Lender` of the calls inside.

    Args:
        keeper: the keeper.
        ticket: its ticket.
        gate: where the caller waits for an `Offer`.
        loop: the loop that must run for the block to end; ``None`` when a thread ends it.
    """

    __slots__ = (
        "_away",
        "_current",
        "_gate",
        "_going",
        "_keeper",
        "_lent",
        "_line",
        "_offer",
        "_patience",
        "_receipt",
        "_state",
        "loop",
        "ticket",
    )

    def __init__(
        self, keeper: Keeper, ticket: Ticket, gate: Gate[Offer], loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self._keeper = keeper
        self._gate = gate
        self._state: State = "waiting"
        self._offer: Offer | None = None
        self._patience = CLAIM_WITHIN
        self._line: deque[Loan] = deque()
        self._away: dict[int, Loan] = {}
        self._current: Loan | None = None
        self._going = False
        self._lent: Receipt | None = None
        self._receipt = UNSENT
        self.loop = loop
        self.ticket = ticket

    # ------------------------------------------------------------------------------------------- its own ticket (Work)

    def admitted(self, permit: Permit) -> None:
        """Offer the permit, or go on with the inner call that was pushed back."""
        if self._state == "resting":
            self._state = "held"
            self._go_on()
            return
        offer = Offer(permit)
        if isinstance(self._gate, LoopGate):
            self._state, self._offer = "offered", offer
            self._keeper.loop.call_later(self._patience, self._take_back, offer)
        else:
            self._state = "held"
        self._gate.resolve(offer)

    def refused(self, error: FairqError) -> None:
        """Tell whoever waits: the caller of the block, and the calls inside (pushed back, or the keeper closes)."""
        self._state = "over"
        self._gate.reject(error)
        loan, self._current = self._current, None
        if loan is not None:
            self._keeper.over(loan.ticket.id)
            self._keeper.turn_away(loan.work, error)
        self._let_queue(error)

    def _take_back(self, offer: Offer) -> None:
        if self._state == "offered" and offer is self._offer and offer.claim():
            self._patience *= 2
            self._state = "away"
            self._keeper.unclaimed(self.ticket.id)

    def again(self, gate: Gate[Offer]) -> None:
        """Its caller missed the offer, and waits at a new gate."""
        self._gate = gate
        if self._state == "away":
            self._state = "waiting"
            self._keeper.ready(self.ticket.id)
        elif self._state == "offered" and self._offer is not None:  # anew, at the gate that nobody waits at any more
            gate.resolve(self._offer)

    def end(self, receipt: Receipt) -> None:
        """Its block was left, by whatever way, or its caller gave up waiting. The second time nothing happens."""
        state, self._state = self._state, "over"
        if state in ("waiting", "away", "resting"):
            self._keeper.leave(self.ticket.id)
        elif state == "offered" and self._offer is not None and self._offer.claim():
            self._keeper.settle(self.ticket.id, UNSENT)
        elif state in ("offered", "held"):
            self._receipt = receipt
            if self._current is None:
                self._settle()
            else:
                self._state = "ending"  # a call that outlives its block keeps the slot until its own end
        elif state == "ending":
            self._state = state
        self._let_queue(None)

    def abandon(self, receipt: Receipt) -> None:
        """Do as `end`, from any thread."""
        self._keeper.post(self.end, receipt)

    def _settle(self) -> None:
        receipt = self._receipt
        if self._lent is not None and not receipt.exact:
            receipt = self._lent._replace(outcome=receipt.outcome)
        self._keeper.settle(self.ticket.id, receipt)

    # ------------------------------------------------------------------------------------- the calls inside (Lender)

    def lend(self, work: Work, ticket: Ticket) -> bool:
        """Take `work` in, to be admitted under this permit in its turn; ``False`` when the permit is over."""
        if self._state == "offered":
            self._state = "held"  # who makes calls inside the block has claimed it
        if self._state not in ("held", "resting"):
            return False
        keeper = self._keeper
        keeper.journal.lend(ticket.id, self.ticket.id)
        large = too_large(keeper.rules.tenant(ticket.tenant).context, ticket)
        if large is not None:
            keeper.over(ticket.id)
            keeper.turn_away(work, keeper.refusal("context", ticket, large))
            return True
        loan = Loan(work, ticket, keeper.now())
        self._line.append(loan)
        wait = keeper.rules.limits.max_wait if ticket.max_wait is None else ticket.max_wait
        if self._current is not None and wait is not None:
            loan.timer = keeper.loop.call_later(wait, self._too_late, loan)
        self._go_on()
        return True

    def _go_on(self) -> None:
        """Let the next call of the line run. A call that ends while it is started is the loop's to follow up."""
        if self._going:
            return
        self._going = True
        try:
            while self._state == "held" and self._current is None and self._line:
                loan = self._current = self._line.popleft()
                loan.calm()
                loan.attempts += 1
                waited = self._keeper.now() - loan.since
                self._keeper.start(loan.work, loan.ticket, Permit(loan.ticket.id, loan.attempts, waited))
        finally:
            self._going = False

    def _take_current(self, id: int) -> Loan | None:  # noqa: A002 - the ticket's own word for it
        loan = self._current
        if loan is None or loan.ticket.id != id:
            return None
        self._current = None
        return loan

    def _free_again(self) -> None:
        """The slot carries no call (any more)."""
        if self._state == "ending":
            self._state = "over"
            self._settle()
            self._let_queue(None)
        else:
            self._go_on()

    def progressed(self, id: int, output_tokens: int) -> None:  # noqa: A002 - see above
        """An inner call has produced this many output tokens so far."""
        if self._current is not None and self._current.ticket.id == id:
            before = 0 if self._lent is None else self._lent.output_tokens
            self._keeper.progress(self.ticket.id, before + output_tokens)

    def returned(self, id: int, receipt: Receipt) -> None:  # noqa: A002 - see above
        """An inner call is over."""
        if self._take_current(id) is not None:
            self._keeper.over(id)
            if receipt.outcome != "unsent":
                self._lent = receipt if self._lent is None else _sum(self._lent, receipt)
            self._free_again()

    def pushed_back(self, id: int, status: int | None, retry_after: float | None) -> None:  # noqa: A002 - see above
        """The endpoint refused an inner call for now: the whole ticket takes its turn again."""
        loan = self._take_current(id)
        if loan is None:
            return
        self._line.appendleft(loan)
        ending = self._state == "ending"
        self._state = "resting"
        self._keeper.backoff(self.ticket.id, status=status, retry_after=retry_after)
        if ending:
            self.end(UNSENT)

    def unclaimed(self, id: int) -> None:  # noqa: A002 - see above
        """A permit inside was offered this one's slot, and did not claim it in time."""
        loan = self._take_current(id)
        if loan is not None:
            self._away[id] = loan
            self._free_again()

    def ready(self, id: int) -> None:  # noqa: A002 - see above
        """Its caller is back."""
        loan = self._away.pop(id, None)
        if loan is not None:
            self._line.appendleft(loan)
            self._go_on()

    def left(self, id: int) -> None:  # noqa: A002 - see above
        """The caller of a waiting inner call left."""
        loan = self._away.pop(id, None) or next((each for each in self._line if each.ticket.id == id), None)
        if loan is not None:
            self._drop(loan)

    def place(self, id: int) -> Place | None:  # noqa: A002 - see above
        """Return where an inner call stands in the line of this permit."""
        why: Literal["hold", "slot"] = "hold" if self._state == "resting" else "slot"
        ahead = int(self._current is not None)
        return next((Place(ahead + at, why) for at, loan in enumerate(self._line) if loan.ticket.id == id), None)

    def stuck_without(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether this slot stays taken until `loop` runs."""
        if self.loop is not loop or self._state not in ("offered", "held"):
            return False
        inner = None if self._current is None else self._current.work
        return inner is None or (isinstance(inner, Lender) and inner.stuck_without(loop))

    def _too_late(self, loan: Loan) -> None:
        if loan in self._line:
            self._drop(loan)
            facts = {"waited": self._keeper.now() - loan.since}
            self._keeper.turn_away(loan.work, self._keeper.refusal("queue_timeout", loan.ticket, facts))

    def _drop(self, loan: Loan) -> None:
        loan.calm()
        if loan in self._line:
            self._line.remove(loan)
        self._keeper.over(loan.ticket.id)

    def _let_queue(self, error: FairqError | None) -> None:
        """The permit is over: who waits for it queues like any other call, unless the endpoint has had enough of it."""
        keeper = self._keeper
        tired = error is not None and error.reason == "endpoint"
        for loan in [*self._line, *self._away.values()]:
            self._drop(loan)
            if tired and error is not None and loan.attempts > keeper.rules.backpressure.retries:
                keeper.turn_away(loan.work, error)
            else:
                keeper.enqueue(loan.work, loan.ticket)
        self._away.clear()


def _sum(one: Receipt, other: Receipt) -> Receipt:
    return one._replace(
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        exact=one.exact and other.exact,
        chars=one.chars + other.chars,
        acted=one.acted or other.acted,
        status=other.status,
    )
