"""A core that writes down what happens to it and is checked after every event, and a world that runs calls on it."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from fairq_ipy.core.messages import (
    Admit,
    Backoff,
    Cancel,
    Effect,
    Event,
    Pause,
    PolicyChanged,
    Progress,
    Refuse,
    Resume,
    Settle,
    Snapshot,
    Submit,
    TenantSnapshot,
    Tick,
    Unclaimed,
)
from fairq_ipy.core.model import Limits, Policy, Receipt, TenantPolicy, Ticket
from fairq_ipy.core.scheduler import Scheduler

_LIMITS = {field.name for field in fields(Limits)}
_TENANT = {field.name for field in fields(TenantPolicy)} - _LIMITS


def policy(base: Policy | None = None, **rules: Any) -> Policy:
    """Return a policy from one flat list of rules: those of `Limits`, else of every tenant, else of `Policy` itself."""
    made = Policy() if base is None else base
    limits = {name: rules.pop(name) for name in list(rules) if name in _LIMITS}
    each = {name: rules.pop(name) for name in list(rules) if name in _TENANT}
    return replace(made, limits=replace(made.limits, **limits), defaults=replace(made.defaults, **each), **rules)


class Core:
    """A scheduler and its clock. Calls run until a test ends them; `check()` runs after every event.

    Attributes:
        scheduler: the thing under test.
        now: the time of the next event; a test sets it.
        last: effects of the latest event.
        admitted: ids in order of admission, over all events.
        running: ids in flight.
        refused: reason by id.
        journal: all events with their times and effects.
    """

    def __init__(self, rules: Policy, now: float = 0.0) -> None:
        self.scheduler = Scheduler(rules, now)
        self.now = now
        self.last: list[Effect] = []
        self.admitted: list[int] = []
        self.running: list[int] = []
        self.refused: dict[int, str] = {}
        self.journal: list[tuple[Event, float, list[Effect]]] = []
        self._ids = itertools.count(1)

    def tell(self, event: Event) -> list[Effect]:
        """Hand over an event at `now`."""
        self.last = self.scheduler.handle(event, self.now)
        self.journal.append((event, self.now, self.last))
        if isinstance(event, Settle | Backoff | Unclaimed):
            self.running.remove(event.id)
        for effect in self.last:
            if isinstance(effect, Admit):
                self.admitted.append(effect.id)
                self.running.append(effect.id)
            elif isinstance(effect, Refuse):
                self.refused[effect.id] = effect.reason
        self.scheduler.check()
        return self.last

    def submit(self, tenant: str = "a", level: int = 1, **ticket: Any) -> int:
        """Submit a ticket and return its id."""
        number = ticket.pop("id", None)
        number = next(self._ids) if number is None else number
        self.tell(Submit(Ticket(number, tenant, level, **ticket)))
        return number

    def submit_many(self, count: int, tenant: str = "a", level: int = 1, **ticket: Any) -> list[int]:
        """Submit `count` equal tickets and return their ids."""
        return [self.submit(tenant, level, **ticket) for _ in range(count)]

    def settle(self, number: int, outcome: Any = "ok", **receipt: Any) -> list[Effect]:
        """End a running call; a good answer of some length, unless said otherwise."""
        receipt = {"chars": 100, "status": 200 if outcome == "ok" else None} | receipt
        return self.tell(Settle(number, Receipt(outcome, **receipt)))

    def backoff(self, number: int, retry_after: float | None = None, jitter: float = 0.0) -> list[Effect]:
        """The endpoint refuses a running call."""
        return self.tell(Backoff(number, retry_after, jitter, 429))

    def tick(self, at: float | None = None) -> list[Effect]:
        """Let time pass to `at`."""
        self.now = self.now if at is None else at
        return self.tell(Tick())

    def drain(self, **receipt: Any) -> list[int]:
        """End running calls, oldest first, until nothing runs; return their ids in order of admission."""
        before, start = list(self.running), len(self.admitted)
        while self.running:
            self.settle(self.running[0], **receipt)
        return before + self.admitted[start:]

    def change(self, **rules: Any) -> list[Effect]:
        """Change some rules of the policy that holds."""
        return self.tell(PolicyChanged(policy(self.scheduler.policy, **rules)))

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self.picture.queued

    @property
    def picture(self) -> Snapshot:
        """The snapshot of now."""
        return self.scheduler.snapshot(self.now)

    def of(self, tenant: str) -> TenantSnapshot:
        """Return the row of one tenant."""
        return self.picture.tenants[tenant]


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
        self.waits[ticket.tenant].append(self.now - self.arrived[ticket.id])
        seconds, output = self.serve(ticket)
        for step in range(1, self.chunks + 1):
            event = Progress(ticket.id, output * step // self.chunks)
            self.at(self.now + seconds * step / (self.chunks + 1), lambda event=event: self.tell(event))
        self.at(self.now + seconds, lambda: self._done(ticket, output))

    def _done(self, ticket: Ticket, output: int) -> None:
        self.running.discard(ticket.id)
        self.tokens[ticket.tenant] += ticket.prompt_tokens + output
        self.tell(Settle(ticket.id, Receipt("ok", ticket.prompt_tokens, output, chars=100, status=200)))
        self.on_done(ticket)


@pytest.fixture
def core() -> Iterator[Callable[..., Core]]:
    """Make cores from flat rules; each one is checked again when the test is over, and its journal is replayed."""
    made: list[tuple[Core, Policy, float]] = []

    def make(rules: Policy | None = None, now: float = 0.0, **flat: Any) -> Core:
        first = policy(rules, **flat)
        made.append((Core(first, now), first, now))
        return made[-1][0]

    yield make
    for each, first, start in made:
        each.scheduler.check()
        again = Scheduler(first, start)
        assert [again.handle(event, now) for event, now, _ in each.journal] == [effects for *_, effects in each.journal]
        assert again.snapshot(each.now) == each.picture


@pytest.fixture
def world() -> type[World]:
    """The discrete event loop."""
    return World


@pytest.fixture
def rules() -> Callable[..., Policy]:
    """Make a policy from flat rules."""
    return policy
