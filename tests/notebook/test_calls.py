"""The rows of ``%fairq log``, from a real core's journal."""

from __future__ import annotations

from typing import Any

from fairq_ipy.core.messages import Backoff, Cancel, Event, Settle, Submit, Tick
from fairq_ipy.core.model import Backpressure, Limits, Policy, Receipt, Ticket
from fairq_ipy.core.scheduler import Scheduler
from fairq_ipy.notebook.calls import Call, latest
from fairq_ipy.runtime.journal import Journal


class Desk:
    """A core and its journal."""

    def __init__(self, **limits: Any) -> None:
        self.now = 100.0
        self.core = Scheduler(Policy(limits=Limits(**limits), backpressure=Backpressure(base=1.0)), self.now)
        self.journal = Journal(1000)

    def tell(self, event: Event, after: float = 0.0) -> None:
        self.now += after
        self.journal.append((self.now, event, self.core.handle(event, self.now)))

    def ask(self, number: int, tenant: str = "logs") -> None:
        self.tell(Submit(Ticket(number, tenant, 2, prompt_tokens=7, model="m")))

    def calls(self, most: int = 20, tenant: str | None = None) -> list[Call]:
        return latest(self.journal, most, tenant)


def test_a_call_that_runs_to_its_end() -> None:
    desk = Desk(concurrency=1)
    desk.ask(1)
    desk.tell(Settle(1, Receipt("ok", 7, 5, exact=True)), after=2)
    assert desk.calls() == [
        Call(1, "logs", 2, "m", 100.0, "ok", waited=0.0, admitted=100.0, service=2.0, tokens=12, exact=True, attempts=1)
    ]


def test_each_state_on_the_way() -> None:
    desk = Desk(concurrency=1, queue=2)
    for number in (1, 2, 3, 4):
        desk.ask(number)
    desk.tell(Cancel(3))
    assert [call.outcome for call in desk.calls()] == ["running", "waiting", "cancelled", "queue full"]


def test_a_second_attempt_is_the_same_call() -> None:
    desk = Desk(concurrency=1)
    desk.ask(1)
    desk.tell(Backoff(1, 1.0, 0.0, 429), after=1)
    assert [call.outcome for call in desk.calls()] == ["waiting"]
    desk.tell(Tick(), after=60)
    desk.tell(Settle(1, Receipt("ok", 7, 5)), after=1)
    (call,) = desk.calls()
    assert (call.outcome, call.attempts, call.service, call.asked) == ("ok", 2, 1.0, 100.0)


def test_the_latest_come_last_and_only_those_of_the_tenant() -> None:
    desk = Desk(concurrency=9)
    for number in range(1, 7):
        desk.ask(number, tenant="logs" if number % 2 else "notes")
    assert [call.ticket for call in desk.calls(most=2)] == [5, 6]
    assert [call.ticket for call in desk.calls(most=2, tenant="logs")] == [3, 5]


def test_what_the_journal_has_forgotten_is_left_out() -> None:
    desk = Desk(concurrency=1)
    desk.ask(1)
    desk.journal = Journal(1000)
    desk.tell(Settle(1, Receipt("ok", 7, 5)))
    assert desk.calls() == []
