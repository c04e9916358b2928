"""A core that writes down what happens to it, and is checked after every event."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from fairq_ipy.core.messages import (
    Admit,
    Backoff,
    Effect,
    Event,
    PolicyChanged,
    Refuse,
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


@pytest.fixture(scope="session")
def rules() -> Callable[..., Policy]:
    """Make a policy from flat rules."""
    return policy
