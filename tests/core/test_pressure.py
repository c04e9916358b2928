"""What the endpoint's refusals ask of us: a hold, one probe, then a ramp; and retries within a bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairq_ipy.core.limits import Pressure
from fairq_ipy.core.messages import Capacity, Close, Held, Hold
from fairq_ipy.core.model import Backpressure

RULES = Backpressure(retries=3, base=1.0, max_hold=120.0)


# ------------------------------------------------------------------------------------------------------------ the holds


@given(retry_after=st.floats(0.001, 120.0), jitter=st.floats(0.0, 1.0, exclude_max=True))
def test_a_hold_is_never_shorter_than_asked_for_and_at_most_a_tenth_longer(retry_after, jitter):
    pressure = Pressure()
    assert pressure.refused(retry_after, jitter, RULES, 1000.0)
    assert retry_after <= pressure.held_until - 1000.0 + 1e-9
    assert pressure.held_until - 1000.0 <= retry_after * 1.1 + 1e-9


def test_a_retry_after_beyond_reason_is_cut(core):
    pressure = Pressure()
    pressure.refused(3600.0, 0.0, RULES, 0.0)
    assert pressure.held_until == 120.0


@pytest.mark.parametrize("retry_after", [None, 0.0, -5.0, float("nan")])
def test_without_a_sane_retry_after_the_hold_is_the_policys_own(retry_after):
    pressure = Pressure()
    pressure.refused(retry_after, 0.0, RULES, 0.0)
    assert pressure.held_until == 1.0


def test_an_endless_retry_after_is_cut():
    pressure = Pressure()
    pressure.refused(float("inf"), 0.0, RULES, 0.0)
    assert pressure.held_until == 120.0


def test_the_policys_own_hold_doubles_with_every_refusal_in_a_row_up_to_its_bound():
    pressure = Pressure()
    lengths = []
    now = 0.0
    for _ in range(40):
        pressure.refused(None, 0.0, RULES, now)
        lengths.append(pressure.held_until - now)
        now = pressure.held_until
    assert lengths == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0] + [120.0] * 33


@given(st.floats(0.0, 1.0, exclude_max=True))
def test_jitter_only_ever_lengthens_the_policys_own_hold(jitter):
    pressure = Pressure()
    pressure.refused(None, jitter, RULES, 0.0)
    assert 1.0 <= pressure.held_until <= 2.0


def test_calls_that_are_refused_together_make_one_hold_and_one_step(core):
    queue = core(concurrency=4, headroom_for=0)
    for number in queue.submit_many(4):
        queue.backoff(number)
    assert queue.picture.held_until == 1.0
    queue.tick(1.0)
    queue.backoff(queue.running[0])
    assert queue.picture.held_until == 1.0 + 2.0


def test_a_straggler_that_is_refused_during_the_hold_does_not_lengthen_it(core):
    queue = core(concurrency=2, headroom_for=0)
    first, second = queue.submit_many(2)
    queue.backoff(first)
    queue.now = 0.5
    assert queue.backoff(second) == []
    assert queue.picture.held_until == 1.0


def test_a_later_refusal_that_asks_for_more_lengthens_the_hold(core):
    queue = core(concurrency=2, headroom_for=0)
    first, second = queue.submit_many(2)
    assert queue.backoff(first, 10.0) == [Held(10.0)]
    assert queue.backoff(second, 20.0) == [Held(20.0)]


def test_a_later_refusal_that_asks_for_less_changes_nothing(core):
    queue = core(concurrency=2, headroom_for=0)
    first, second = queue.submit_many(2)
    queue.backoff(first, 20.0)
    assert queue.backoff(second, 5.0) == []
    assert queue.picture.held_until == 20.0


def test_nothing_is_admitted_while_the_endpoint_is_held(core):
    queue = core(concurrency=2, headroom_for=0)
    queue.tell(Hold(10.0))
    queue.submit("a")
    queue.tick(9.999)
    assert queue.running == []
    assert queue.scheduler.wake_at == 10.0
    queue.tick(10.0)
    assert queue.running == [1]


@pytest.mark.parametrize("until", [-5.0, 0.0])
def test_a_hold_that_is_over_already_changes_nothing(core, until):
    queue = core(concurrency=4, headroom_for=0)
    assert queue.tell(Hold(until)) == []
    queue.submit_many(4)
    assert len(queue.running) == 4


def test_a_hold_that_ends_before_the_present_one_changes_nothing(core):
    queue = core(concurrency=4, headroom_for=0)
    queue.tell(Hold(10.0))
    assert queue.tell(Hold(5.0)) == []
    assert queue.picture.held_until == 10.0


def test_an_ended_hold_is_no_longer_shown(core):
    queue = core()
    queue.tell(Hold(10.0))
    assert queue.picture.held_until == 10.0
    queue.now = 10.0
    assert queue.picture.held_until is None


# ------------------------------------------------------------------------------------------------------- probe and ramp


def test_after_a_hold_one_probe_goes_then_two_then_four(core):
    queue = core(concurrency=8, headroom_for=0)
    first, *_ = queue.submit_many(20)
    for number in list(queue.running):
        queue.backoff(number, 10.0)
    queue.tick(10.0)
    assert queue.running == [first]
    seen = []
    while len(queue.running) < 8:
        queue.settle(queue.running[0])
        seen.append(len(queue.running))
    assert seen == [2, 4, 8]


def test_a_success_of_a_call_that_ends_during_the_hold_proves_nothing(core):
    queue = core(concurrency=8, headroom_for=0)
    refused, *others = queue.submit_many(8)
    queue.submit_many(8)
    queue.backoff(refused, 30.0)
    for number in others:
        queue.settle(number)
    queue.tick(30.0)
    assert queue.running == [refused]


def test_a_success_during_the_hold_does_not_begin_the_row_anew(core):
    queue = core(concurrency=2, headroom_for=0)
    refused, other = queue.submit_many(2)
    queue.backoff(refused)
    queue.settle(other)
    queue.tick(1.0)
    queue.backoff(refused)
    assert queue.picture.held_until == 1.0 + 2.0


@pytest.mark.parametrize(
    ("outcome", "status"), [("failed", 500), ("failed", None), ("cancelled", None), ("failed", 429)]
)
def test_a_probe_without_an_answer_leaves_the_ramp_at_one(core, outcome, status):
    queue = core(concurrency=4, headroom_for=0)
    queue.tell(Hold(1.0))
    queue.submit_many(4)
    queue.tick(1.0)
    queue.settle(queue.running[0], outcome, status=status)
    assert len(queue.running) == 1


@pytest.mark.parametrize(("outcome", "status"), [("ok", None), ("failed", 400), ("cancelled", 200), ("truncated", 200)])
def test_an_answer_of_any_kind_shows_that_the_endpoint_is_back(core, outcome, status):
    queue = core(concurrency=4, headroom_for=0)
    queue.tell(Hold(1.0))
    queue.submit_many(4)
    queue.tick(1.0)
    queue.settle(queue.running[0], outcome, status=status)
    assert len(queue.running) == 2


def test_a_refused_probe_is_followed_by_one_probe(core):
    queue = core(concurrency=4, headroom_for=0)
    queue.tell(Hold(1.0))
    queue.submit_many(4)
    queue.tick(1.0)
    queue.backoff(queue.running[0], 1.0)
    queue.tick(2.0)
    assert len(queue.running) == 1


def test_a_refusal_on_the_ramp_begins_it_anew(core):
    queue = core(concurrency=8, headroom_for=0)
    queue.tell(Hold(1.0))
    queue.submit_many(8)
    queue.tick(1.0)
    queue.settle(queue.running[0])
    assert len(queue.running) == 2
    for number in list(queue.running):
        queue.backoff(number, 1.0)
    queue.tick(2.0)
    assert len(queue.running) == 1


def test_a_refusal_without_any_hold_still_begins_the_ramp_anew(core):
    queue = core(concurrency=4, headroom_for=0, backpressure=Backpressure(base=0.0))
    queue.submit_many(20)
    queue.backoff(queue.running[0])
    for number in queue.running[:3]:
        queue.settle(number)
    assert len(queue.running) == 4
    queue.backoff(queue.running[0])
    for number in queue.running[:3]:
        queue.settle(number, "failed")
    assert len(queue.running) == 1


def test_the_cap_that_is_shown_is_the_policys_also_on_the_ramp(core):
    queue = core(concurrency=4)
    queue.tell(Hold(1.0))
    assert queue.picture.cap == 4


def test_a_smaller_cap_ends_the_ramp_sooner(core):
    queue = core(concurrency=8, headroom_for=0)
    queue.tell(Hold(1.0))
    queue.submit_many(8)
    queue.tell(Capacity(2))
    queue.tick(1.0)
    queue.settle(queue.running[0])
    assert len(queue.running) == 2
    queue.tell(Capacity(None))
    assert len(queue.running) == 7


# -------------------------------------------------------------------------------------------------------------- retries


def test_a_refused_call_goes_first_again_with_its_next_attempt(core):
    queue = core(concurrency=1)
    first, second = queue.submit_many(2)
    queue.now = 1.0
    queue.backoff(first, 5.0)
    queue.tick(6.0)
    assert queue.last[0]._asdict() == {"id": first, "attempt": 2, "waited": 5.0}
    queue.settle(first)
    assert queue.running == [second]


def test_a_call_is_sent_again_as_often_as_the_policy_says_and_then_refused(core):
    queue = core(concurrency=1, backpressure=Backpressure(retries=2))
    number = queue.submit()
    for _ in range(3):
        queue.tick(queue.scheduler.wake_at or queue.now)
        queue.backoff(number, 5.0)
    assert queue.refused == {number: "endpoint"}
    refusal = queue.last[0]
    assert refusal.facts == {"status": 429, "attempts": 3, "retry_after": 5.0}
    assert queue.picture.refusals_by_endpoint == 3
    assert queue.picture.retries == 2


def test_no_retries_means_refused_at_the_first_refusal(core):
    queue = core(concurrency=1, backpressure=Backpressure(retries=0))
    number = queue.submit()
    queue.backoff(number, 5.0)
    assert queue.refused == {number: "endpoint"}


def test_a_call_refused_by_the_endpoint_while_closing_is_not_sent_again(core):
    queue = core(concurrency=1)
    number = queue.submit()
    queue.tell(Close())
    queue.backoff(number, 5.0)
    assert queue.refused == {number: "endpoint"}
