"""The calls of this session, read from the keeper's journal: one row each, for ``%fairq log``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from fairq_ipy.core.messages import Admit, Backoff, Cancel, Effect, Event, Refuse, Settle, Submit

__all__ = ["Call", "Entry", "latest"]


class Entry(Protocol):
    """One line of the journal."""

    @property
    def now(self) -> float:
        """Seconds on the keeper's clock."""

    @property
    def event(self) -> Event:
        """What the core was told."""

    @property
    def effects(self) -> list[Effect]:
        """What it answered."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as far as it has come.

    Attributes:
        ticket: its number.
        tenant, level, model: who asked, how urgently, whom.
        asked: when, on the keeper's clock.
        outcome: ``waiting``, ``running``, the outcome of its receipt, ``cancelled``, or why it was refused.
        waited: seconds in the queue; ``None`` before its admission.
        admitted: when it was admitted for the last time.
        service: seconds from its last admission to its end.
        tokens: prompt and output tokens; ``None`` before its end.
        exact: whether the endpoint counted them.
        attempts: how often it was admitted.
    """

    ticket: int
    tenant: str
    level: int
    model: str
    asked: float
    outcome: str = "waiting"
    waited: float | None = None
    admitted: float | None = None
    service: float | None = None
    tokens: int | None = None
    exact: bool = False
    attempts: int = 0


def latest(journal: Iterable[Entry], most: int, tenant: str | None = None) -> list[Call]:
    """Return the latest calls, the newest last.

    Args:
        journal: the keeper's.
        most: how many.
        tenant: only the calls of this one; ``None`` for all.
    """
    calls: dict[int, Call] = {}
    for line in journal:
        _event(calls, line.now, line.event)
        for effect in line.effects:
            _effect(calls, line.now, effect)
    found = [call for call in calls.values() if tenant is None or call.tenant == tenant]
    return found[-most:]


def _event(calls: dict[int, Call], now: float, event: Event) -> None:
    match event:
        case Submit(ticket):
            calls[ticket.id] = Call(ticket.id, ticket.tenant, ticket.level, ticket.model, now)
        case Settle(number, receipt) if number in calls:
            call = calls[number]
            calls[number] = replace(
                call,
                outcome=receipt.outcome,
                service=None if call.admitted is None else now - call.admitted,
                tokens=receipt.prompt_tokens + receipt.output_tokens,
                exact=receipt.exact,
            )
        case Cancel(number) if number in calls and calls[number].outcome == "waiting":
            calls[number] = replace(calls[number], outcome="cancelled")
        case Backoff(number) if number in calls:
            calls[number] = replace(calls[number], outcome="waiting")


def _effect(calls: dict[int, Call], now: float, effect: Effect) -> None:
    match effect:
        case Admit(number, attempt, waited) if number in calls:
            calls[number] = replace(
                calls[number], outcome="running", admitted=now, waited=waited, attempts=max(1, attempt)
            )
        case Refuse(number, reason) if number in calls:
            calls[number] = replace(calls[number], outcome=reason.replace("_", " "))
