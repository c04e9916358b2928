"""What carries no information: who is paused for it, and how they come back."""

from __future__ import annotations

import pytest

from fairq_ipy.core.messages import Pause, Paused, Resume, Resumed, Unclaimed, Warned
from fairq_ipy.core.model import Receipt, Stall, TenantPolicy
from fairq_ipy.core.stalls import StallWatch

EMPTY = {"chars": 0}


def stalled(core, action="pause", threshold=1, concurrency=1, **rule):
    """Return a core whose tenant has just been stopped by the rule; two more of its calls wait."""
    queue = core(concurrency=concurrency, headroom_for=0, stall=Stall(5, threshold, action, **rule))
    queue.submit_many(threshold + 2)
    for _ in range(threshold):
        queue.settle(queue.running[0], **EMPTY)
    return queue


# -------------------------------------------------------------------------------------------------------- what is empty


@pytest.mark.parametrize(
    ("receipt", "verdict"),
    [
        (Receipt("ok", chars=4), "stall"),
        (Receipt("ok", chars=5), "fine"),
        (Receipt("ok", chars=0, acted=True), "fine"),
        (Receipt("failed", chars=0), "fine"),
        (Receipt("cancelled", chars=0), "fine"),
        (Receipt("truncated", chars=0), "fine"),
        (Receipt("unsent", chars=0), "fine"),
    ],
)
def test_only_a_short_answer_that_came_and_did_nothing_is_empty(receipt, verdict):
    assert StallWatch().judge(receipt, Stall(5, 1), 0.0) == verdict


def test_a_minimum_of_zero_calls_nothing_empty():
    assert StallWatch().judge(Receipt("ok", chars=0), Stall(0, 1), 0.0) == "fine"


def test_one_informative_answer_ends_the_row():
    watch = StallWatch()
    rule = Stall(5, 3)
    answers = [0, 0, 9, 0, 0, 0]
    assert [watch.judge(Receipt("ok", chars=chars), rule, 0.0) for chars in answers] == ["fine"] * 5 + ["stall"]


def test_a_failed_call_neither_adds_to_the_row_nor_ends_it():
    watch = StallWatch()
    answers = [Receipt("ok"), Receipt("failed"), Receipt("ok")]
    assert [watch.judge(answer, Stall(5, 2), 0.0) for answer in answers] == ["fine", "fine", "stall"]


# --------------------------------------------------------------------------------------------------------- what follows


def test_no_rule_no_pause(core):
    queue = core(concurrency=1, stall=None)
    queue.submit_many(20)
    queue.drain(**EMPTY)
    assert queue.of("a").completed == 20


def test_the_pause_is_told_with_its_reason_and_stops_the_tenant_within_threshold_answers(core):
    queue = stalled(core, threshold=3)
    assert queue.last == [Paused("a", "3 empty answers in a row", None)]
    assert queue.running == []
    assert (queue.of("a").state, queue.of("a").why, queue.of("a").queued) == ("stalled", "3 empty answers in a row", 2)
    assert queue.scheduler.place(4, 0.0) == (0, "stalled", None)


def test_a_stalled_tenant_leaves_the_others_alone(core):
    queue = stalled(core)
    assert queue.submit("b") in queue.running


def test_warn_only_says_so_and_begins_a_new_row(core):
    queue = core(concurrency=1, stall=Stall(5, 2, "warn"))
    queue.submit_many(5)
    told = []
    while queue.running:
        queue.settle(queue.running[0], **EMPTY)
        told += [effect for effect in queue.last if isinstance(effect, Warned)]
    assert told == [Warned("a", "2 empty answers in a row")] * 2


def test_evict_pauses_and_refuses_what_waits_in_every_lane(core):
    queue = core(concurrency=2, headroom_for=0, stall=Stall(5, 1, "evict"))
    first, sleeping = queue.submit_many(2)
    queue.tell(Unclaimed(sleeping))
    running = queue.submit()
    waiting = [queue.submit(), queue.submit(level=2)]
    other = queue.submit("b")
    queue.settle(first, **EMPTY)
    assert queue.refused == dict.fromkeys([sleeping, *waiting], "evicted")
    assert queue.last[1].facts == {"why": "1 empty answers in a row"}
    assert queue.running == [running, other]


def test_a_call_in_flight_when_its_tenant_was_stalled_ends_in_peace(core):
    queue = stalled(core, threshold=1, concurrency=2)
    assert len(queue.running) == 1
    queue.settle(queue.running[0], **EMPTY)
    assert queue.last == []
    assert queue.of("a").state == "stalled"


def test_a_good_answer_of_a_call_in_flight_brings_the_tenant_back(core):
    queue = stalled(core, concurrency=2)
    queue.settle(queue.running[0])
    assert queue.last[0] == Resumed("a")
    assert (len(queue.running), queue.of("a").why) == (1, "")


# --------------------------------------------------------------------------------------------------------- the way back


def test_a_person_brings_a_stalled_tenant_back(core):
    queue = stalled(core)
    queue.tell(Resume("a"))
    assert queue.last[0] == Resumed("a")
    assert len(queue.running) == 1
    assert (queue.of("a").state, queue.of("a").why) == ("running", "")


def test_after_the_cool_down_one_probe_goes(core):
    queue = stalled(core, concurrency=2, resume_after=60.0)
    queue.settle(queue.running[0], "failed")
    assert (queue.of("a").until, queue.scheduler.wake_at) == (60.0, 60.0)
    queue.tick(59.999)
    assert queue.running == []
    queue.tick(60.0)
    assert len(queue.running) == 1
    assert (queue.of("a").state, queue.of("a").until) == ("probing", None)


def test_who_waits_behind_a_probe_is_told_so(core):
    queue = stalled(core, resume_after=60.0)
    queue.tick(60.0)
    assert queue.scheduler.place(3, 60.0) == (0, "stalled", None)


def test_a_good_probe_brings_the_tenant_back(core):
    queue = stalled(core, resume_after=60.0)
    queue.tick(60.0)
    queue.settle(queue.running[0])
    assert queue.last[0] == Resumed("a")
    assert queue.of("a").state == "running"


def test_each_empty_probe_doubles_the_cool_down_up_to_its_bound(core):
    queue = core(concurrency=1, stall=Stall(5, 1, "pause", resume_after=10.0, resume_max=35.0))
    queue.submit_many(10)
    lengths = []
    for _ in range(5):
        queue.settle(queue.running[0], **EMPTY)
        lengths.append(queue.last[0].until - queue.now)
        assert queue.running == []
        queue.tick(queue.scheduler.wake_at)
    assert lengths == [10.0, 20.0, 35.0, 35.0, 35.0]


def test_a_stall_after_a_recovery_begins_with_the_first_cool_down(core):
    queue = core(concurrency=1, stall=Stall(5, 1, "pause", resume_after=10.0))
    queue.submit_many(10)
    for chars in (0, 0, 9, 0):
        queue.settle(queue.running[0], chars=chars)
        until = queue.of("a").until
        queue.tick(queue.scheduler.wake_at)
    assert until == queue.journal[-2][1] + 10.0


@pytest.mark.parametrize("outcome", ["failed", "cancelled", "truncated", "unsent"])
def test_a_probe_without_an_answer_is_followed_by_another(core, outcome):
    queue = stalled(core, resume_after=60.0)
    queue.tick(60.0)
    queue.settle(queue.running[0], outcome)
    assert (len(queue.running), queue.of("a").state) == (1, "probing")


def test_a_probe_waits_for_the_calls_that_were_in_flight_when_the_tenant_was_stalled(core):
    queue = stalled(core, concurrency=3, threshold=1, resume_after=60.0)
    assert len(queue.running) == 2
    queue.submit()
    queue.tick(60.0)
    assert len(queue.running) == 2
    queue.settle(queue.running[0], "failed")
    queue.settle(queue.running[0], "failed")
    assert len(queue.running) == 1


def test_a_cool_down_of_zero_probes_at_once(core):
    queue = stalled(core, resume_after=0.0)
    queue.tick(queue.scheduler.wake_at)
    assert queue.now == 0.0
    assert len(queue.running) == 1


def test_a_cool_down_that_a_person_cut_short_wakes_nobody_later(core):
    queue = stalled(core, resume_after=60.0)
    queue.tell(Resume("a"))
    queue.settle(queue.running[0])
    queue.tick(60.0)
    assert (queue.last, queue.scheduler.wake_at, queue.of("a").state) == ([], None, "running")


def test_a_second_stall_is_not_ended_by_the_first_ones_cool_down(core):
    queue = core(concurrency=1, stall=Stall(5, 1, "pause", resume_after=60.0))
    queue.submit_many(5)
    queue.settle(queue.running[0], **EMPTY)
    queue.tell(Resume("a"))
    queue.now = 30.0
    queue.settle(queue.running[0], **EMPTY)
    queue.tick(60.0)
    assert queue.running == []
    assert queue.scheduler.wake_at == 90.0


# ------------------------------------------------------------------------------------------------ with a person's pause


def test_a_good_answer_does_not_undo_a_persons_pause(core):
    queue = stalled(core, resume_after=60.0)
    queue.tick(60.0)
    queue.tell(Pause("a", "lunch"))
    queue.settle(queue.running[0])
    assert Resumed("a") not in queue.last
    assert (queue.running, queue.of("a").state, queue.of("a").why) == ([], "paused", "lunch")


def test_a_stall_does_not_hide_who_paused_the_tenant(core):
    queue = core(concurrency=2, headroom_for=0, stall=Stall(5, 1, "pause", resume_after=60.0))
    queue.submit_many(2)
    queue.tell(Pause("a", "lunch"))
    queue.settle(1, **EMPTY)
    assert (queue.of("a").state, queue.of("a").why, queue.of("a").until) == ("paused", "lunch", None)


def test_a_cool_down_does_not_end_a_persons_pause(core):
    queue = stalled(core, resume_after=60.0)
    queue.tell(Pause("a"))
    queue.tick(60.0)
    assert queue.running == []


def test_resume_by_a_person_ends_both(core):
    queue = stalled(core, resume_after=60.0)
    queue.tell(Pause("a"))
    queue.tell(Resume("a"))
    assert len(queue.running) == 1


# --------------------------------------------------------------------------------------------------------- a new policy


@pytest.mark.parametrize("rule", [None, Stall(5, 1, "warn")])
def test_a_policy_that_no_longer_pauses_brings_the_tenant_back_and_says_so(core, rule):
    queue = stalled(core)
    queue.change(stall=rule)
    assert queue.last[0] == Resumed("a")
    assert (len(queue.running), queue.of("a").why) == (1, "")


def test_a_policy_without_a_rule_leaves_a_persons_pause_alone(core):
    queue = stalled(core)
    queue.tell(Pause("a", "lunch"))
    queue.change(stall=None)
    assert queue.last == []
    assert (queue.of("a").state, queue.of("a").why) == ("paused", "lunch")


def test_a_policy_that_changes_something_else_keeps_the_tenant_stalled(core):
    queue = stalled(core)
    queue.change(concurrency=5)
    assert queue.of("a").state == "stalled"


def test_one_tenants_rule_is_not_anothers(core):
    queue = core(concurrency=1, tenants={"a": TenantPolicy(stall=Stall(5, 1))})
    queue.settle(queue.submit("b"), **EMPTY)
    queue.settle(queue.submit("a"), **EMPTY)
    assert (queue.of("a").state, queue.of("b").state) == ("stalled", "idle")
