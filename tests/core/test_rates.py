"""How fast: what is sent in any 60 seconds stays within the limit, exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairq_ipy.core.limits import RateWindow
from fairq_ipy.core.messages import Unclaimed
from fairq_ipy.core.model import Level


def in_any_minute(sent: list[tuple[float, float]]) -> float:
    """Return the most that was sent in any half-open 60 s."""
    return max(sum(amount for at, amount in sent if start <= at < start + 60.0) for start, _ in sent)


# ----------------------------------------------------------------------------------------------------------- the window


@given(
    gaps=st.lists(st.integers(0, 40), min_size=1, max_size=60),
    amounts=st.lists(st.integers(0, 12), min_size=60, max_size=60),
    limit=st.integers(12, 30),
)
def test_no_60_seconds_ever_hold_more_than_the_limit(gaps, amounts, limit):
    window = RateWindow(limit)
    now = 0.0
    sent = []
    for gap, amount in zip(gaps, amounts, strict=False):
        now = max(now + gap, window.free_at(amount, now + gap))
        assert window.free_at(amount, now) == now
        window.spend(amount, now)
        sent.append((now, amount))
    assert in_any_minute(sent) <= limit


@given(
    gaps=st.lists(st.integers(0, 40), min_size=2, max_size=40),
    amounts=st.lists(st.integers(1, 12), min_size=40, max_size=40),
)
def test_the_window_says_the_earliest_time_at_which_an_amount_fits(gaps, amounts):
    window = RateWindow(12)
    now = 0.0
    sent: list[tuple[float, float]] = []
    for gap, amount in zip(gaps, amounts, strict=False):
        now += gap
        at = window.free_at(amount, now)
        if at > now:
            just_before = [*sent, (at - 0.5, amount)]
            assert in_any_minute(just_before) > 12
        now = at
        window.spend(amount, now)
        sent.append((now, amount))


def test_a_limit_of_none_remembers_nothing():
    window = RateWindow(None)
    assert window.spend(1, 0.0) is None
    assert window.free_at(10**9, 0.0) == 0.0


def test_a_limit_of_zero_lets_nothing_pass_ever():
    assert RateWindow(0).free_at(1, 0.0) == float("inf")


def test_an_amount_above_the_whole_limit_goes_when_the_window_is_empty():
    window = RateWindow(10)
    assert window.free_at(25, 0.0) == 0.0
    window.spend(25, 0.0)
    assert window.free_at(1, 1.0) == 60.0
    window.spend(1, 60.0)
    assert window.free_at(25, 61.0) == 120.0


def test_a_true_amount_takes_the_place_of_its_estimate():
    window = RateWindow(10)
    line = window.spend(8, 0.0)
    window.correct(line, 3, 1.0)
    assert window.free_at(7, 1.0) == 1.0
    assert window.free_at(8, 1.0) == 60.0


def test_a_correction_that_comes_after_its_minute_changes_nothing():
    window = RateWindow(10)
    line = window.spend(8, 0.0)
    window.spend(4, 70.0)
    window.correct(line, 100, 71.0)
    assert window.free_at(6, 71.0) == 71.0


def test_a_correction_in_an_empty_window_changes_nothing():
    window = RateWindow(10)
    line = window.spend(8, 0.0)
    window.correct(line, 100, 71.0)
    assert window.free_at(10, 71.0) == 71.0


# --------------------------------------------------------------------------------------------------------- in the queue


def test_requests_are_spread_over_the_minute_to_the_letter(core):
    queue = core(concurrency=100, requests_per_minute=5, headroom_for=0)
    queue.submit_many(3)
    queue.now = 20.0
    queue.submit_many(20)
    while queue.scheduler.wake_at is not None:
        queue.tick(queue.scheduler.wake_at)
    times = [now for _, now, effects in queue.journal for _ in effects]
    assert len(times) == 23
    assert in_any_minute([(at, 1) for at in times]) == 5
    assert all(later - early >= 60.0 for early, later in zip(times, times[5:], strict=False))


def test_the_wake_up_is_when_the_oldest_request_leaves_the_window(core):
    queue = core(requests_per_minute=1)
    queue.submit()
    queue.now = 10.0
    second = queue.submit()
    assert queue.scheduler.wake_at == 60.0
    assert queue.picture.why_held == "rate"
    assert queue.scheduler.place(second, 10.0) == (0, "rate", 60.0)
    queue.tick(59.999)
    assert second not in queue.running
    queue.tick(60.0)
    assert second in queue.running
    assert queue.picture.why_held == ""


def test_zero_requests_per_minute_admit_nothing(core):
    queue = core(requests_per_minute=0)
    queue.submit()
    queue.tick(1000.0)
    assert queue.running == []
    assert queue.scheduler.wake_at is None


def test_tokens_are_counted_as_expected_and_corrected_when_they_are_known(core):
    queue = core(concurrency=9, tokens_per_minute=1000, headroom_for=0)
    first = queue.submit(prompt_tokens=100, max_tokens=800)
    second = queue.submit(prompt_tokens=500, max_tokens=0)
    assert queue.running == [first, second]
    third = queue.submit(prompt_tokens=300, max_tokens=0)
    assert third not in queue.running
    queue.settle(first, prompt_tokens=100, output_tokens=20)
    assert third in queue.running


def test_a_big_call_is_not_overtaken_by_small_ones_of_its_level_for_ever(core):
    queue = core(concurrency=9, tokens_per_minute=100, headroom_for=0)
    queue.submit("small", prompt_tokens=50, max_tokens=0)
    big = queue.submit("big", prompt_tokens=90, max_tokens=0)
    queue.submit("small", prompt_tokens=50, max_tokens=0)
    assert queue.running == [1]
    queue.tick(60.0)
    assert queue.admitted == [1, big]


def test_a_call_that_was_never_sent_gives_its_request_back(core):
    queue = core(requests_per_minute=1)
    first, second = queue.submit_many(2)
    queue.settle(first, "unsent")
    assert queue.running == [second]


def test_an_offer_that_nobody_took_gives_its_request_back(core):
    queue = core(requests_per_minute=1)
    first, second = queue.submit_many(2)
    queue.tell(Unclaimed(first))
    assert queue.running == [second]


def test_a_call_that_the_endpoint_refused_has_used_its_request_but_no_tokens(core):
    queue = core(requests_per_minute=2, tokens_per_minute=100, headroom_for=0)
    number = queue.submit(prompt_tokens=100, max_tokens=0)
    queue.backoff(number, 5.0)
    queue.tick(5.0)
    assert queue.running == [number]
    queue.backoff(number, 5.0)
    queue.tick(30.0)
    assert queue.running == []
    assert queue.scheduler.wake_at == 60.0


def test_a_rate_that_is_lifted_lets_everybody_go_at_once(core):
    queue = core(concurrency=5, requests_per_minute=1, headroom_for=0)
    queue.submit_many(4)
    queue.change(requests_per_minute=None)
    assert len(queue.running) == 4


def test_a_rate_that_is_lowered_counts_what_was_sent_before(core):
    queue = core(concurrency=9, requests_per_minute=5, headroom_for=0)
    queue.submit_many(4)
    queue.now = 10.0
    queue.change(requests_per_minute=2)
    waiting = queue.submit()
    queue.tick(59.0)
    assert waiting not in queue.running


def test_a_starving_level_changes_nothing_about_the_rate(core):
    queue = core(concurrency=9, requests_per_minute=1, starve_after=10.0, levels=(Level(1, "a"), Level(2, "b")))
    queue.submit()
    queue.submit("b", level=2)
    queue.submit("c", level=1)
    queue.tick(30.0)
    assert queue.running == [1]


@pytest.mark.parametrize("max_tokens", [0, 5])
def test_the_expected_output_is_never_above_the_calls_own_limit(core, max_tokens):
    queue = core(tokens_per_minute=10 + max_tokens, headroom_for=0)
    queue.submit(prompt_tokens=5, max_tokens=max_tokens)
    queue.submit(prompt_tokens=5 - max_tokens, max_tokens=max_tokens)
    assert len(queue.running) == 2
