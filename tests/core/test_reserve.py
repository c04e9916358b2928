"""A level's reserve: slots that later levels leave to it, so that an urgent call finds one free."""

from __future__ import annotations

from fairq_ipy.core.messages import Capacity
from fairq_ipy.core.model import Level

THREE = (Level(1, "urgent"), Level(2, "interactive", reserve=1), Level(3, "batch"))
TWO = (Level(1, "interactive", reserve=1), Level(2, "batch"))


def test_a_later_level_leaves_the_reserve_free_before_anybody_ever_used_it(core):
    queue = core(concurrency=2, levels=TWO, headroom_for=0)
    queue.submit_many(2, level=2)
    assert queue.admitted == [1]
    assert queue.submit("person") in queue.running


def test_a_reserve_that_a_new_policy_brings_holds_before_anybody_used_it(core):
    queue = core(concurrency=3, headroom_for=0)
    queue.submit(level=2)
    queue.change(levels=TWO)
    queue.submit_many(2, level=2)
    assert queue.admitted == [1, 2]


def test_a_level_takes_its_own_reserve_and_more(core):
    queue = core(concurrency=2, levels=TWO, headroom_for=0)
    queue.submit_many(2, level=1)
    assert len(queue.running) == 2


def test_a_used_reserve_keeps_nothing_more(core):
    queue = core(concurrency=2, levels=TWO, headroom_for=0)
    queue.submit("person", level=1)
    assert queue.submit(level=2) in queue.running


def test_one_slot_is_always_left_to_the_later_levels(core):
    queue = core(concurrency=2, levels=(Level(1, "interactive", reserve=5), Level(2, "batch")), headroom_for=0)
    queue.submit("person", level=1)
    assert queue.submit(level=2) in queue.running


def test_the_only_slot_is_for_everybody(core):
    queue = core(concurrency=1, levels=TWO)
    assert queue.submit(level=2) in queue.running


def test_the_last_slot_that_the_source_grants_is_for_everybody(core):
    queue = core(concurrency=8, levels=TWO)
    queue.tell(Capacity(1))
    assert queue.submit(level=2) in queue.running


def test_reserves_of_two_levels_add_up_for_the_third(core):
    levels = (Level(1, "urgent", reserve=1), Level(2, "interactive", reserve=1), Level(3, "batch"))
    queue = core(concurrency=4, levels=levels, headroom_for=0)
    queue.submit_many(4, level=3)
    assert len(queue.running) == 2
    queue.submit_many(4, level=2)
    assert len(queue.running) == 3


def test_a_freed_reserve_is_not_handed_to_a_later_level(core):
    queue = core(concurrency=2, levels=TWO, headroom_for=0)
    person = queue.submit("person", level=1)
    queue.submit_many(3, level=2)
    queue.settle(person)
    assert len(queue.running) == 1


def test_the_place_in_line_says_slot_when_a_reserve_keeps_it(core):
    queue = core(concurrency=2, levels=TWO, headroom_for=0)
    _, second = queue.submit_many(2, level=2)
    assert queue.scheduler.place(second, 0.0).why == "slot"
