"""The starvation guard: a level that gets nothing for too long gets one admission, whatever floods it from above."""

from __future__ import annotations

import pytest

from fairq_ipy.core.messages import Ready, Unclaimed
from fairq_ipy.core.model import Level


def test_one_late_call_under_an_endless_flood_goes_after_the_bound_and_one_service(core):
    queue = core(concurrency=1, starve_after=30.0, queue=None)
    queue.submit_many(100, "flood", level=1)
    late = queue.submit("low", level=2)
    while late not in queue.admitted:
        queue.now += 7.0
        queue.settle(queue.running[0])
    assert 30.0 <= queue.now < 30.0 + 7.0


def test_before_the_bound_a_sooner_level_goes_first(core):
    queue = core(concurrency=1, starve_after=30.0)
    first, second = queue.submit_many(2, "flood", level=1)
    queue.submit("low", level=2)
    queue.now = 29.999
    queue.settle(first)
    assert queue.running == [second]


def test_the_guard_gives_one_admission_per_bound_not_a_turn_for_all(core):
    queue = core(concurrency=1, starve_after=30.0, queue=None)
    queue.submit_many(100, "flood", level=1)
    low = queue.submit_many(3, "low", level=2)
    while queue.now < 100:
        queue.now += 1.0
        queue.settle(queue.running[0])
    times = {number: when for event, when, effects in queue.journal for e in effects for number in [e.id]}
    assert [times[number] for number in low] == [30.0, 60.0, 90.0]


def test_without_a_guard_the_sooner_level_always_wins(core):
    queue = core(concurrency=1, starve_after=None, queue=None)
    queue.submit_many(20, "flood", level=1)
    low = queue.submit("low", level=2)
    for _ in range(20):
        queue.now += 100.0
        queue.settle(queue.running[0])
    assert queue.running == [low]


def test_of_two_late_levels_the_one_that_waits_longest_goes_first(core):
    queue = core(concurrency=1, starve_after=30.0, queue=None)
    queue.submit_many(5, "flood", level=1)
    third = queue.submit("c", level=3)
    queue.now = 1.0
    second = queue.submit("b", level=2)
    for queue.now in (20.0, 40.0, 42.0):
        queue.settle(queue.running[0])
    assert queue.admitted[2:] == [third, second]


@pytest.mark.parametrize("reserve", [1, 2])
def test_a_reserve_between_a_flood_and_a_late_level_does_not_starve_it(core, reserve):
    levels = (Level(1, "urgent"), Level(2, "interactive", reserve=reserve), Level(3, "batch"))
    queue = core(concurrency=2, levels=levels, starve_after=10.0, headroom_for=0, queue=None)
    queue.submit_many(50, "flood", level=1)
    late = queue.submit("batch", level=3)
    while late not in queue.admitted and queue.now < 100:
        queue.now += 1.0
        queue.settle(queue.running[0])
    assert queue.now == 10.0


def test_a_late_level_that_may_not_go_does_not_stand_in_the_way_of_another(core):
    levels = (Level(1, "urgent"), Level(2, "interactive", reserve=1), Level(3, "batch"))
    queue = core(concurrency=3, levels=levels, starve_after=10.0, headroom_for=0, queue=None)
    queue.submit_many(2, "batch", level=3, max_tokens=1)
    queue.submit_many(50, "flood", level=1)
    queue.submit("batch", level=3)
    queue.now = 1.0
    second = queue.submit("interactive", level=2)
    while second not in queue.admitted and queue.now < 100:
        queue.now += 1.0
        queue.settle(queue.running[-1])
    assert queue.now == 11.0


def test_a_reserve_is_not_broken_for_a_late_level_that_has_a_slot(core):
    queue = core(concurrency=2, levels=(Level(1, "interactive", reserve=1), Level(2, "batch")), headroom_for=0)
    queue.submit_many(2, "batch", level=2)
    queue.tick(1000.0)
    assert len(queue.running) == 1


def test_time_alone_lets_a_late_level_pass_a_reserve_that_keeps_it(core):
    levels = (Level(1, "urgent"), Level(2, "interactive", reserve=1), Level(3, "batch"))
    queue = core(concurrency=2, levels=levels, starve_after=10.0, headroom_for=0)
    queue.submit("person", level=1)
    late = queue.submit("batch", level=3)
    assert late not in queue.running
    assert queue.scheduler.wake_at == 10.0
    queue.tick(10.0)
    assert late in queue.running


def test_a_late_call_that_the_token_rate_has_room_for_goes_when_it_is_late(core):
    queue = core(concurrency=4, tokens_per_minute=100, starve_after=10.0, headroom_for=0)
    queue.submit_many(2, prompt_tokens=60, max_tokens=0)
    small = queue.submit("b", level=2, prompt_tokens=10, max_tokens=0)
    queue.now = 5.0
    queue.submit("c", level=1, prompt_tokens=1, max_tokens=0)
    assert small not in queue.running
    assert queue.scheduler.wake_at == 10.0
    queue.tick(10.0)
    assert small in queue.running
    assert queue.scheduler.wake_at == 60.0


def test_a_call_that_was_put_back_counts_as_waiting_since_it_came(core):
    queue = core(concurrency=1, starve_after=30.0, queue=None)
    first = queue.submit("low", level=2)
    queue.submit_many(3, "flood", level=1)
    queue.now = 29.0
    queue.submit("low", level=2)
    queue.now = 30.0
    queue.tell(Unclaimed(first))
    flood = queue.running[0]
    queue.now = 30.5
    queue.settle(flood)
    queue.tell(Ready(first))
    queue.now = 31.0
    queue.settle(queue.running[0])
    assert queue.running == [first]


def test_a_longer_bound_by_a_new_policy_holds_at_once(core):
    queue = core(concurrency=1, starve_after=30.0)
    first, second = queue.submit_many(2, "flood", level=1)
    queue.submit("low", level=2)
    queue.change(starve_after=60.0)
    queue.now = 45.0
    queue.settle(first)
    assert queue.running == [second]


def test_a_guard_that_a_new_policy_brings_counts_the_time_before(core):
    queue = core(concurrency=1, starve_after=None)
    first, second, _ = queue.submit_many(3, "flood", level=1)
    low = queue.submit("low", level=2)
    queue.now = 20.0
    queue.settle(first)
    queue.change(starve_after=30.0)
    queue.now = 45.0
    queue.settle(second)
    assert queue.running == [low]
