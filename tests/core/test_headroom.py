"""Headroom: no tenant takes every slot of more than one while another was active lately."""

from __future__ import annotations

from fairq_ipy.core.messages import Capacity, Pause, Unclaimed
from fairq_ipy.core.model import Level


def test_the_last_slot_is_kept_while_another_runs(core):
    queue = core(concurrency=3)
    other = queue.submit("b")
    queue.submit_many(5, "a")
    assert len(queue.running) == 3
    queue.settle(other)
    assert len(queue.running) == 2


def test_the_last_slot_is_kept_for_as_long_as_the_policy_says_after_another_was_active(core):
    queue = core(concurrency=2, headroom_for=60.0)
    queue.settle(queue.submit("b"))
    queue.submit_many(3, "a")
    assert (len(queue.running), queue.scheduler.wake_at, queue.picture.why_held) == (1, 60.0, "headroom")
    assert queue.scheduler.place(3, 0.0) == (0, "headroom", 60.0)
    queue.tick(59.999)
    assert len(queue.running) == 1
    queue.tick(60.0)
    assert len(queue.running) == 2


def test_the_kept_slot_is_for_the_other(core):
    queue = core(concurrency=2)
    queue.settle(queue.submit("b"))
    queue.submit_many(3, "a")
    assert queue.submit("b") in queue.running


def test_who_is_alone_takes_every_slot(core):
    queue = core(concurrency=4)
    queue.submit_many(9, "a")
    assert len(queue.running) == 4


def test_headroom_of_zero_is_off(core):
    queue = core(concurrency=2, headroom_for=0.0)
    queue.settle(queue.submit("b"))
    queue.submit_many(3, "a")
    assert len(queue.running) == 2


def test_a_single_slot_is_for_everybody(core):
    queue = core(concurrency=1)
    queue.settle(queue.submit("b"))
    assert queue.submit("a") in queue.running


def test_ones_own_activity_keeps_nothing(core):
    queue = core(concurrency=2)
    queue.settle(queue.submit("a"))
    queue.now = 1.0
    queue.submit_many(2, "a")
    assert len(queue.running) == 2


def test_the_last_to_leave_but_oneself_counts(core):
    queue = core(concurrency=2, headroom_for=60.0)
    queue.settle(queue.submit("b"))
    for now in (10.0, 20.0):
        queue.now = now
        queue.settle(queue.submit("a"))
    queue.submit_many(2, "a")
    assert queue.scheduler.wake_at == 60.0


def test_of_several_others_the_latest_counts(core):
    queue = core(concurrency=2, headroom_for=60.0)
    for now, tenant in ((0.0, "b"), (10.0, "c"), (20.0, "b")):
        queue.now = now
        queue.settle(queue.submit(tenant))
    queue.submit_many(2, "a")
    assert queue.scheduler.wake_at == 80.0


def test_a_paused_tenants_waiting_calls_are_no_activity(core):
    queue = core(concurrency=2, headroom_for=60.0)
    queue.tell(Pause("b"))
    queue.submit("b")
    queue.submit_many(2, "a")
    assert len(queue.running) == 2


def test_a_tenant_that_is_paused_counts_as_active_until_then(core):
    queue = core(concurrency=2, headroom_for=60.0)
    first = queue.submit("a")
    queue.submit_many(2, "b")
    queue.now = 5.0
    queue.settle(first)
    queue.tell(Pause("b"))
    queue.submit_many(2, "a")
    assert [queue.of("a").in_flight, queue.of("b").in_flight] == [1, 1]
    queue.now = 7.0
    queue.settle(2)
    assert queue.of("a").in_flight == 1
    assert queue.scheduler.wake_at == 67.0


def test_an_offer_that_nobody_took_ends_the_activity(core):
    queue = core(concurrency=2, headroom_for=60.0)
    queue.tell(Unclaimed(queue.submit("b")))
    queue.submit_many(2, "a")
    assert queue.scheduler.wake_at == 60.0


def test_a_shorter_headroom_by_a_new_policy_holds_at_once(core):
    queue = core(concurrency=2, headroom_for=60.0)
    queue.settle(queue.submit("b"))
    queue.submit_many(2, "a")
    queue.now = 10.0
    queue.change(headroom_for=5.0)
    assert len(queue.running) == 2


def test_headroom_looks_over_all_levels(core):
    queue = core(concurrency=2, levels=(Level(1, "i"), Level(2, "b")))
    queue.settle(queue.submit("b", level=1))
    queue.submit("a", level=1)
    queue.submit("a", level=2)
    assert len(queue.running) == 1
    assert queue.submit("c", level=2) in queue.running


def test_a_crowding_tenants_sooner_level_does_not_stop_a_later_level_of_another(core):
    queue = core(concurrency=2)
    queue.submit_many(3, "a", level=1)
    queue.submit("b", level=2)
    queue.settle(1)
    assert [queue.of("a").in_flight, queue.of("b").in_flight] == [1, 1]


def test_a_source_that_grants_only_one_slot_keeps_none(core):
    queue = core(concurrency=2)
    queue.settle(queue.submit("b"))
    queue.tell(Capacity(1))
    assert queue.submit("a") in queue.running


def test_many_copies_of_a_crowding_lane_do_not_hide_the_others(core):
    queue = core(concurrency=2, queue=None)
    queue.submit_many(3, "a", prompt_tokens=1, max_tokens=0)
    queue.submit_many(3, "b", prompt_tokens=1, max_tokens=0)
    for _ in range(2):
        queue.settle(queue.running[0], prompt_tokens=1)
    assert {queue.of("a").in_flight, queue.of("b").in_flight} == {1}
