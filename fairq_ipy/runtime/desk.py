"""The keeper's side of the core, without its thread: events in, effects done, nothing lost when a `Work` fails.

Everything here runs on the keeper's thread. What a `Work` does while it is told of an effect (settling at once, say)
becomes the next event instead of a nested one, so that effects are done in the order in which the core named them.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from fairq_ipy.core.messages import (
    Admit,
    Backoff,
    Cancel,
    Effect,
    Event,
    Place,
    Progress,
    Ready,
    Refuse,
    Settle,
    Submit,
    Tick,
    Unclaimed,
)
from fairq_ipy.core.model import Policy, Reason, Receipt, Ticket
from fairq_ipy.core.scheduler import Scheduler
from fairq_ipy.errors import FairqError
from fairq_ipy.runtime.journal import Journal
from fairq_ipy.runtime.refusals import refusal
from fairq_ipy.runtime.wall import Wall
from fairq_ipy.runtime.work import Lender, Permit, Work

__all__ = ["Desk"]

UNSENT: Final = Receipt("unsent")

log = logging.getLogger(__name__)


class Desk:
    """One core, and the works whose tickets it knows.

    Args:
        rules: the policy that holds at first.
        clock: the steady clock, in seconds.
        journal_size: lines that the journal holds.
        source: how people call the file that the rules are from; errors say it.

    Attributes:
        began: the core's first time; a replay of the journal begins there.
        journal: every event and its effects, the latest ones.
        on_effect: called with what concerns no single call (`Paused`, `Resumed`, `Warned`, `Held`), its times as
            seconds since the epoch. It must not block.
        source: see above.
        wall: converts this clock's times for people.
    """

    def __init__(
        self,
        rules: Policy,
        *,
        clock: Callable[[], float] = time.monotonic,
        journal_size: int = 10_000,
        source: str = "the policy",
    ) -> None:
        self.journal = Journal(journal_size)
        self.on_effect: Callable[[Effect], None] | None = None
        self.source = source
        self.wall = Wall(clock)
        self._clock = clock
        self.began = clock()
        self._core = Scheduler(rules, self.began)
        self._random = random.Random()  # noqa: S311 - jitter; a generator of its own leaves the user's seed alone
        self._works: dict[int, tuple[Work, Ticket]] = {}
        self._running: set[int] = set()
        self._loans: dict[int, Lender] = {}
        self._events: deque[Event] = deque()
        self._feeding = False

    @property
    def rules(self) -> Policy:
        """The policy that holds now."""
        return self._core.policy

    def now(self) -> float:
        """Return the time on the keeper's clock, in seconds."""
        return self._clock()

    # ------------------------------------------------------------------------------------- how a running call goes on

    def progress(self, id: int, output_tokens: int) -> None:  # noqa: A002 - the ticket's own word for it
        """A running call has produced this many output tokens so far."""
        if id in self._running:
            self.feed(Progress(id, output_tokens))
        elif (lender := self._loans.get(id)) is not None:
            lender.progressed(id, output_tokens)

    def settle(self, id: int, receipt: Receipt) -> None:  # noqa: A002 - the ticket's own word for it
        """A running call is over. A second receipt for the same call changes nothing."""
        if id in self._running:
            self._running.discard(id)
            del self._works[id]
            self.feed(Settle(id, receipt))
        elif (lender := self._loans.get(id)) is not None:
            lender.returned(id, receipt)

    def backoff(self, id: int, *, status: int | None, retry_after: float | None) -> None:  # noqa: A002 - see above
        """The endpoint refused a running call for now; it is admitted again later, or refused for good.

        Args:
            id: the call.
            status: HTTP status.
            retry_after: seconds that the endpoint asked for; ``None`` when it named none that makes sense.
        """
        if id in self._running:
            self._running.discard(id)
            self.feed(Backoff(id, retry_after, self._random.random(), status))
        elif (lender := self._loans.get(id)) is not None:
            lender.pushed_back(id, status, retry_after)

    def unclaimed(self, id: int) -> None:  # noqa: A002 - see above
        """The waiter of an admitted call did not take its permit in time; it keeps its place until `ready`."""
        if id in self._running:
            self._running.discard(id)
            self.feed(Unclaimed(id))
        elif (lender := self._loans.get(id)) is not None:
            lender.unclaimed(id)

    def ready(self, id: int) -> None:  # noqa: A002 - see above
        """The waiter of an unclaimed call can take an offer again."""
        if id in self._works:
            self.feed(Ready(id))
        elif (lender := self._loans.get(id)) is not None:
            lender.ready(id)

    # ------------------------------------------------------------------------------------------------ how a call comes

    def enqueue(self, work: Work, ticket: Ticket) -> None:
        """Queue `work`."""
        self._works[ticket.id] = (work, ticket)
        self.feed(Submit(ticket))

    def borrow(self, work: Work, ticket: Ticket, lender: Lender) -> None:
        """Let `work` run under its caller's permit; queue it when that is over."""
        self._loans[ticket.id] = lender
        if not lender.lend(work, ticket):
            del self._loans[ticket.id]
            self.enqueue(work, ticket)

    def over(self, id: int) -> None:  # noqa: A002 - see above
        """A call that ran under a permit has ended."""
        self._loans.pop(id, None)

    def leave(self, id: int) -> None:  # noqa: A002 - see above
        """The caller of a waiting call left. Nothing happens to one that runs or is over."""
        if id in self._running:
            return
        if self._works.pop(id, None) is not None:
            self.feed(Cancel(id))
        elif (lender := self._loans.get(id)) is not None:
            lender.left(id)

    def where(self, id: int) -> Place | None:  # noqa: A002 - see above
        """Return where a waiting call stands, on the keeper's clock."""
        lender = self._loans.get(id)
        return self._core.place(id, self._clock()) if lender is None else lender.place(id)

    def runs(self, id: int) -> bool:  # noqa: A002 - see above
        """Return whether that call holds a slot."""
        return id in self._running

    # ------------------------------------------------------------------------------------------------------- the core

    def feed(self, event: Event) -> None:
        """Tell the core what happened, and do what it answers."""
        if self._feeding:
            self._events.append(event)
            return
        self._feeding = True
        try:
            self._handle(event)
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._feeding = False

    def tick(self) -> None:
        """Wake the core if it wants to be woken."""
        due = self._core.wake_at
        if due is not None and due <= self._clock():
            self.feed(Tick())

    def _handle(self, event: Event) -> None:
        now = self._clock()
        try:
            effects = self._core.handle(event, now)
        except Exception as error:
            log.exception("the core refuses %s", type(event).__name__)
            if isinstance(event, Submit) and (found := self._works.pop(event.ticket.id, None)) is not None:
                self._fail(*found, error)
            return
        self.journal.append((now, event, effects))
        for effect in effects:
            if type(effect) is Admit:
                self._admit(effect)
            elif type(effect) is Refuse:
                self._refuse(effect)
            elif self.on_effect is not None:
                self.tell(self.on_effect, self.wall.effect(effect))

    def _admit(self, effect: Admit) -> None:
        number = effect.id
        found = self._works.get(number)
        if found is None:  # its caller left in the same moment: pass the slot on
            self._events.append(Settle(number, UNSENT))
            return
        self._running.add(number)
        work, ticket = found
        self.start(work, ticket, Permit(*effect))

    def start(self, work: Work, ticket: Ticket, permit: Permit) -> None:
        """Tell `work` that it may go. When that fails its slot comes back, and its caller is told why."""
        try:
            work.admitted(permit)
        except BaseException as error:
            log.exception("call %d could not be started", ticket.id)
            self._fail(work, ticket, error)

    def _refuse(self, effect: Refuse) -> None:
        found = self._works.pop(effect.id, None)
        if found is not None:
            work, ticket = found
            self.turn_away(work, self.refusal(effect.reason, ticket, effect.facts))

    def refusal(self, reason: Reason, ticket: Ticket, facts: Mapping[str, Any]) -> FairqError:
        """Return the error for a refused call; times among its facts are on the keeper's clock."""
        return refusal(reason, ticket, self.wall.facts(facts), self.rules, self.source)

    def turn_away(self, work: Work, error: FairqError) -> None:
        """Tell `work` that it is over."""
        self.tell(work.refused, error)

    def _fail(self, work: Work, ticket: Ticket, error: BaseException) -> None:
        self.settle(ticket.id, UNSENT)
        text = f"call {ticket.id} could not be started: {str(error) or type(error).__name__}"
        told = FairqError(text, tenant=ticket.tenant, ticket=ticket.id)
        told.__cause__ = error
        self.turn_away(work, told)

    @staticmethod
    def tell(function: Callable[[Any], None], argument: object) -> None:
        """Call somebody who is told something; what goes wrong there is theirs, and is logged."""
        try:
            function(argument)
        except BaseException:
            log.exception("%s failed", getattr(function, "__qualname__", function))
