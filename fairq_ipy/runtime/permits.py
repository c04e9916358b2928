"""Permits for work that does its own I/O: a block, a function in the queue, a decorator.

::

    with fairq.permit(cost=1800, messages=12) as permit:        # also `async with`
        answer = my_client.post(...)
        permit.spent(prompt_tokens=1750, output_tokens=420)

A permit is given back on every way out of its block, cancellation and interrupts included, and by garbage collection
when somebody drops it without leaving.
"""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from fairq_ipy.core.model import CREDIBLE, Outcome, Receipt, Ticket
from fairq_ipy.errors import ConfigurationError
from fairq_ipy.runtime.gate import Gate
from fairq_ipy.runtime.holding import Holding, Offer
from fairq_ipy.runtime.keeper import Keeper
from fairq_ipy.runtime.scope import Identity, current_lender, leave_all, set_lender
from fairq_ipy.runtime.work import Lender

__all__ = ["PermitBlock", "sweep"]

UNKNOWN_OUTPUT: Final = 500
"""Output tokens that a permit of unknown cost counts for: the size of an ordinary answer. Counting it as nothing would
let whoever names no cost outrun all others."""


LOST: Final = Receipt("cancelled", acted=True)
"""What a permit cost whose block was never left: nobody is there to say."""


class PermitBlock:
    """One slot of the endpoint, held while the block runs. Calls that are made inside use it, one at a time.

    Make it with ``fairq.permit(...)``. It may be entered again after it was left.

    Args:
        keeper: whose queue.
        identify: returns who asks, from the context in which the block is entered.
        cost: estimated tokens of the request; ``None`` when that is not known.
        messages: messages in it, for the tenant's limits.
        on_loop: whether a block entered with ``async with`` needs its loop to end.

    Attributes:
        ticket: number of the call, as in ``%fairq story``.
        waited: seconds in the queue.
    """

    def __init__(
        self,
        keeper: Keeper,
        identify: Callable[[], Identity],
        *,
        cost: int | None = None,
        messages: int | None = None,
        on_loop: bool = True,
    ) -> None:
        self._keeper = keeper
        self._identify = identify
        self._cost = None if cost is None else _count("cost", cost)
        self._messages = 0 if messages is None else _count("messages", messages)
        self._on_loop = on_loop
        self._spent: tuple[int, int] | None = None
        self._holding: Holding | None = None
        self._lost: weakref.finalize[..., PermitBlock] | None = None
        self._entered: Holding | None = None
        self._outer: Lender | None = None
        self.ticket = 0
        self.waited = 0.0

    def spent(self, *, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """Say what the work really cost, in tokens; it replaces the estimate when the block is left."""
        self._spent = (_count("prompt_tokens", prompt_tokens), _count("output_tokens", output_tokens))

    # ------------------------------------------------------------------------------------------------- the two blocks

    def __enter__(self) -> Self:
        self._check_free()
        try:
            self.take()
            self.enter()
            return self
        except BaseException:  # nothing stands behind an interrupt that strikes before the block has begun
            self._leave("unsent")
            raise

    async def __aenter__(self) -> Self:
        self._check_free()
        try:
            await self.atake()
            self.enter()
            return self
        except BaseException:
            self._leave("unsent")
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._leave(_outcome(error))
        except BaseException:  # an interrupt that strikes inside: once more, and then it may go on
            self._leave("cancelled")
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._leave(_outcome(error))
        except BaseException:
            self._leave("cancelled")
            raise

    def _leave(self, outcome: Outcome) -> None:
        if self._entered is not None and current_lender() is self._entered:
            set_lender(self._outer)
        self._entered = None
        self.give_back(outcome)

    # ------------------------------------------------------------------------------------------------------- its steps

    def take(self) -> None:
        """Wait for the slot, blocking; raises what the queue says when there is none to be had."""
        self._check_free()
        try:
            gate = self._keeper.thread_gate()
            self._ask(gate, None)
            self._has(gate.wait())
        except BaseException:
            self.give_back("unsent")
            raise

    async def atake(self) -> None:
        """Wait for the slot in a task."""
        self._check_free()
        keeper = self._keeper
        try:
            gate = keeper.loop_gate()
            holding = self._ask(gate, gate.loop if self._on_loop else None)
            while True:
                gate.on_dead = functools.partial(holding.end, LOST)
                offer = await gate
                if offer.claim():
                    break
                # This loop was busy for so long that the slot went to somebody else; the place in line was kept.
                gate = keeper.loop_gate()
                keeper.post(holding.again, gate)
            self._has(offer)
        except BaseException:
            self.give_back("unsent")
            raise

    def enter(self) -> None:
        """Let the calls of the present context run under this permit."""
        self._outer = current_lender()
        self._entered = self._holding
        set_lender(self._entered)

    def give_back(self, outcome: Outcome) -> None:
        """Give the slot back, or stop waiting for it; from any thread, once or more."""
        try:
            self._give_back(outcome)
        except BaseException:  # an interrupt that strikes inside: once more, and then it may go on
            self._give_back(outcome)
            raise

    def _give_back(self, outcome: Outcome) -> None:
        holding = self._holding
        if holding is None:
            return
        self._keeper.post(holding.end, self._receipt(outcome))
        if self._lost is not None:
            self._lost.detach()
        self._holding = None

    def _check_free(self) -> None:
        if self._holding is not None:
            raise ConfigurationError(
                "this permit is in use; make one of its own for every block: `with fairq.permit():`"
            )

    def _ask(self, gate: Gate[Offer], loop: asyncio.AbstractEventLoop | None) -> Holding:
        keeper = self._keeper
        who = self._identify()
        self.ticket = keeper.next_id()
        ticket = Ticket(
            self.ticket,
            who.tenant,
            who.level,
            prompt_tokens=0 if self._cost is None else self._cost,
            max_tokens=UNKNOWN_OUTPUT if self._cost is None else 0,
            messages=self._messages,
        )
        self._spent = None
        holding = self._holding = Holding(keeper, ticket, gate, loop)
        self._lost = weakref.finalize(self, keeper.post, holding.end, LOST)
        self._lost.atexit = False
        keeper.submit(holding, ticket)
        return holding

    def _has(self, offer: Offer) -> None:
        self.waited = offer.permit.waited

    def _receipt(self, outcome: Outcome) -> Receipt:
        # Nobody saw the answer, so nothing can be said about how informative it is.
        if self._spent is not None:
            return Receipt(outcome, *self._spent, exact=True, acted=True)
        if self._cost is not None:
            return Receipt(outcome, self._cost, acted=True)
        return Receipt(outcome, 0, UNKNOWN_OUTPUT, acted=True)


def sweep() -> None:
    """Undo, in the present context, the blocks that were left without their exit; for a notebook, after an interrupt.

    Python looks for signals also when ``__exit__`` has just been called, before its first instruction: an interrupt
    that strikes there leaves a block open, and the traceback that is kept of it keeps the garbage collector away.
    """
    lender = current_lender()
    if isinstance(lender, Holding):
        lender.abandon(LOST)
    set_lender(None)
    leave_all()


def _outcome(error: BaseException | None) -> Outcome:
    if error is None:
        return "ok"
    return "failed" if isinstance(error, Exception) else "cancelled"


def _count(name: str, value: int) -> int:
    if type(value) is not int or not 0 <= value <= CREDIBLE:
        found = "a larger one" if type(value) is int and value > CREDIBLE else repr(value)
        raise ConfigurationError(f"{name} is a whole number from 0 to {CREDIBLE:_}, not {found}")
    return value
