"""The adaptive concurrency, alone and in the scheduler, against an endpoint whose own limit changes."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest

from fairq_ipy.core.adaptive import MOST_PATIENCE, PATIENCE, WINDOW, AdaptiveLimit
from fairq_ipy.core.messages import Admit, Backoff, Effect, PolicyChanged, Settle, Submit
from fairq_ipy.core.model import Adaptive, Limits, Policy, Receipt, Ticket
from fairq_ipy.core.scheduler import Scheduler


def answers(limit: AdaptiveLimit, count: int) -> int:
    """Give `count` good answers at full use; return how often the limit rose."""
    return sum(limit.answered(limit.limit) for _ in range(count))


def test_a_window_of_full_use_without_refusal_adds_one_slot() -> None:
    limit = AdaptiveLimit(2, 1, 8)
    assert answers(limit, WINDOW - 1) == 0
    assert answers(limit, 1) == 1
    assert limit.limit == 3


def test_answers_beside_free_slots_prove_nothing() -> None:
    limit = AdaptiveLimit(4, 1, 8)
    assert not any(limit.answered(3) for _ in range(10 * WINDOW))
    assert limit.limit == 4


def test_the_limit_stays_within_its_bounds() -> None:
    limit = AdaptiveLimit(20, 2, 5)
    assert limit.limit == 5
    assert answers(limit, 10 * WINDOW) == 0
    for _ in range(5):
        limit.refused(limit.limit)
    assert limit.limit == 2
    limit.bound(3, 4)
    assert limit.limit == 3


def test_a_refusal_of_what_had_been_good_halves_the_limit() -> None:
    limit = AdaptiveLimit(8, 1, 8)
    assert limit.refused(8)
    assert limit.limit == 4


def test_calls_that_were_sent_together_count_once_when_they_are_refused_together() -> None:
    limit = AdaptiveLimit(8, 1, 8)
    assert [limit.refused(8), limit.refused(7), limit.refused(6)] == [True, True, True]
    assert limit.limit == 4


def test_a_refusal_at_the_lower_bound_is_not_answered_by_the_limit() -> None:
    limit = AdaptiveLimit(1, 1, 8)
    assert not limit.refused(1)
    assert limit.limit == 1


def test_a_number_that_was_refused_is_tried_again_only_with_patience_and_then_with_more() -> None:
    limit = AdaptiveLimit(2, 1, 8)
    limit.refused(2)
    for patience in (PATIENCE, 2 * PATIENCE, MOST_PATIENCE, MOST_PATIENCE):
        assert answers(limit, min(patience, MOST_PATIENCE) - 1) == 0
        assert answers(limit, 1) == 1
        limit.refused(2)
        assert limit.limit == 1


def test_an_endpoint_that_grew_is_climbed_window_by_window() -> None:
    limit = AdaptiveLimit(2, 1, 8)
    limit.refused(2)
    answers(limit, PATIENCE + WINDOW)
    assert limit.limit == 3, "the window at the number once refused counts as one of the climb"
    answers(limit, 3 * WINDOW)
    assert limit.limit == 6


class Endpoint:
    """Runs calls of random length against a server that takes so many at once, on a clock of its own."""

    def __init__(self, seed: int) -> None:
        limits = Limits(concurrency=2, adaptive=Adaptive(1, 8), queue=None)
        self.core = Scheduler(Policy(limits=limits, headroom_for=0.0))
        self.random = Random(seed)
        self.now = 0.0
        self.next_id = 0
        self.running: list[tuple[float, int]] = []
        self.refused = 0
        self.answered = 0
        self.used = 0.0

    def ask(self, allowed: int) -> None:
        self.next_id += 1
        self.obey(self.core.handle(Submit(Ticket(self.next_id, "a", 1)), self.now), allowed)

    def obey(self, effects: list[Effect], allowed: int) -> None:
        todo = list(effects)
        while todo:
            effect = todo.pop(0)
            if not isinstance(effect, Admit):
                continue
            if len(self.running) >= allowed:
                self.refused += 1
                todo += self.core.handle(Backoff(effect.id, None, 0.0, 429), self.now)
            else:
                heappush(self.running, (self.now + self.random.uniform(0.5, 1.5), effect.id))

    def phase(self, allowed: int, calls: int) -> tuple[float, float, float]:
        """Answer `calls` calls; return refusals per call, use of what is allowed, and windows to reach 90 % of it."""
        began, refused, used = self.now, self.refused, self.used
        reached = None
        for done in range(calls):
            while self.core.snapshot(self.now).queued < 10:
                self.ask(allowed)
            if reached is None and self.core.snapshot(self.now).cap >= 0.9 * allowed:
                reached = done / WINDOW
            before = self.now
            self.now, number = heappop(self.running)
            self.used += min(len(self.running) + 1, allowed) * (self.now - before)
            self.obey(self.core.handle(Settle(number, Receipt(status=200)), self.now), allowed)
            self.core.check()
        assert reached is not None
        return (self.refused - refused) / calls, (self.used - used) / ((self.now - began) * allowed), reached


@pytest.mark.parametrize("seed", range(3))
def test_a_server_that_allows_three_then_one_then_five_is_followed(seed: int) -> None:
    endpoint = Endpoint(seed)
    for allowed in (3, 1, 5):
        refusals, _, windows = endpoint.phase(allowed, 600)
        assert refusals < 0.02, f"{refusals:.1%} refused while {allowed} were allowed"
        assert windows <= 20, f"{windows} windows to reach {allowed}"
    _, use, _ = endpoint.phase(5, 300)
    assert use >= 0.9


def test_the_cap_in_the_snapshot_is_the_limit_of_the_moment() -> None:
    core = Scheduler(Policy(limits=Limits(concurrency=3, adaptive=Adaptive(1, 8))))
    assert core.snapshot(0.0).cap == 3


def test_a_new_policy_keeps_what_was_learnt_within_its_bounds() -> None:
    core = Scheduler(Policy(limits=Limits(concurrency=6, adaptive=Adaptive(1, 8))))
    core.handle(PolicyChanged(Policy(limits=Limits(concurrency=2, adaptive=Adaptive(1, 5)))), 1.0)
    assert core.snapshot(1.0).cap == 5
    core.handle(PolicyChanged(Policy(limits=Limits(concurrency=2))), 2.0)
    assert core.snapshot(2.0).cap == 2
