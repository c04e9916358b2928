"""From the keeper's steady clock to the time of day, for everything that people see.

Inside, times are seconds of a monotonic clock, which sleeps with the machine and never jumps. Outside they are seconds
since the epoch. The distance of the two is taken anew for every conversion, since either may have moved on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from fairq_ipy.core.messages import BudgetState, Effect, Held, Paused, Place, Snapshot, TenantSnapshot

__all__ = ["Wall"]

TIMES: Final = frozenset({"resets_at", "resumes_at", "until", "held_until"})


class Wall:
    """Converts times of one steady clock.

    Args:
        clock: the steady clock, in seconds.
        wall: the time of day, in seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._wall = wall

    def shift(self) -> float:
        """Return what to add to a steady time now."""
        return self._wall() - self._clock()

    def facts(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts of a refusal, its times as seconds since the epoch."""
        if TIMES.isdisjoint(facts):
            return dict(facts)
        shift = self.shift()
        return {key: value + shift if key in TIMES and value is not None else value for key, value in facts.items()}

    def effect(self, effect: Effect) -> Effect:
        """Return an effect as listeners see it."""
        if isinstance(effect, Held):
            return Held(effect.until + self.shift())
        if isinstance(effect, Paused):
            return effect._replace(until=_moved(effect.until, self.shift()))
        return effect

    def place(self, place: Place | None) -> Place | None:
        """Return a place as callers see it."""
        return None if place is None else place._replace(until=_moved(place.until, self.shift()))

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot as callers see it."""
        shift = self.shift()
        tenants = {name: _tenant(row, shift) for name, row in snapshot.tenants.items()}
        return replace(snapshot, held_until=_moved(snapshot.held_until, shift), tenants=MappingProxyType(tenants))


def _moved(at: float | None, shift: float) -> float | None:
    return None if at is None else at + shift


def _tenant(row: TenantSnapshot, shift: float) -> TenantSnapshot:
    if row.until is None and all(budget.resets_at is None for budget in row.budgets):
        return row
    return replace(row, until=_moved(row.until, shift), budgets=tuple(_budget(each, shift) for each in row.budgets))


def _budget(budget: BudgetState, shift: float) -> BudgetState:
    return budget if budget.resets_at is None else replace(budget, resets_at=budget.resets_at + shift)
