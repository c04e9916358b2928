"""A world that runs calls: a discrete event loop around a core, in which time costs nothing."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from fairq_ipy.core.messages import Admit, Cancel, Event, Pause, Progress, Refuse, Resume, Settle, Submit, Tick
from fairq_ipy.core.model import Policy, Receipt, Ticket
from fairq_ipy.core.scheduler import Scheduler


class World:
    """A discrete event loop around a core: admitted calls take time, stream, end, and are counted.

    Args:
        rules: the policy.
        serve: what a call costs the server: seconds and output tokens, by ticket.
        chunks: how many progress reports a call sends while it runs.
    """

    def __init__(
        self, rules: Policy, serve: Callable[[Ticket], tuple[float, int]], *, chunks: int = 0, now: float = 0.0
    ) -> None:
        self.scheduler = Scheduler(rules, now)
        self.now = now
        self.serve = serve
        self.chunks = chunks
        self.tickets: dict[int, Ticket] = {}
        self.arrived: dict[int, float] = {}
        self.waits: dict[str, list[float]] = defaultdict(list)
        self.went: dict[str, list[float]] = defaultdict(list)
        self.took: dict[str, list[float]] = defaultdict(list)
        self.order: list[Ticket] = []
        self.tokens: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.on_done: Callable[[Ticket], None] = lambda ticket: None
        self.on_step: Callable[[], None] = lambda: None
        self.running: set[int] = set()
        self._ids = itertools.count(1)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Do something later."""
        heapq.heappush(self._agenda, (when, next(self._order), what))

    def submit(self, tenant: str, level: int = 1, **ticket: Any) -> int:
        """Submit a ticket now and return its id."""
        made = Ticket(next(self._ids), tenant, level, **ticket)
        self.tickets[made.id] = made
        self.arrived[made.id] = self.now
        self.tell(Submit(made))
        return made.id

    def cancel(self, number: int) -> None:
        """The caller of a waiting ticket gives up."""
        self.tell(Cancel(number))

    def pause(self, tenant: str) -> None:
        """Pause a tenant."""
        self.tell(Pause(tenant))

    def resume(self, tenant: str) -> None:
        """Resume a tenant."""
        self.tell(Resume(tenant))

    def run(self, until: float = float("inf")) -> None:
        """Run until then, or until nothing is left to happen."""
        while True:
            wake = self.scheduler.wake_at
            due = self._agenda[0][0] if self._agenda else float("inf")
            if wake is not None and wake < due:
                if wake > until:
                    break
                self.now = max(self.now, wake)
                self.tell(Tick())
            elif due <= until and self._agenda:
                self.now, _, what = heapq.heappop(self._agenda)
                what()
            else:
                break
        self.now = max(self.now, until) if until != float("inf") else self.now

    def tell(self, event: Event) -> None:
        """Hand over an event now, and do what the core orders."""
        for effect in self.scheduler.handle(event, self.now):
            if isinstance(effect, Admit):
                self._admitted(self.tickets[effect.id])
            elif isinstance(effect, Refuse):
                self.refused[self.tickets[effect.id].tenant] += 1
        self.on_step()

    def _admitted(self, ticket: Ticket) -> None:
        self.order.append(ticket)
        self.running.add(ticket.id)
        self.went[ticket.tenant].append(self.now)
        self.waits[ticket.tenant].append(self.now - self.arrived[ticket.id])
        seconds, output = self.serve(ticket)
        for step in range(1, self.chunks + 1):
            event = Progress(ticket.id, output * step // self.chunks)
            self.at(self.now + seconds * step / (self.chunks + 1), lambda event=event: self.tell(event))
        self.at(self.now + seconds, lambda: self._done(ticket, output))

    def _done(self, ticket: Ticket, output: int) -> None:
        self.running.discard(ticket.id)
        self.tokens[ticket.tenant] += ticket.prompt_tokens + output
        self.took[ticket.tenant].append(self.now - self.arrived[ticket.id])
        self.tell(Settle(ticket.id, self.answer(ticket, output)))
        self.on_done(ticket)

    @staticmethod
    def answer(ticket: Ticket, output: int) -> Receipt:
        """Return what an ended call cost; a test may put its own in this place."""
        return Receipt("ok", ticket.prompt_tokens, output, chars=100, status=200)


@pytest.fixture(scope="session")
def world() -> type[World]:
    """The discrete event loop."""
    return World
