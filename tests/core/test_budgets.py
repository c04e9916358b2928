"""How much a tenant may use per window: set aside before a call goes, used by its receipt, given back otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairq_ipy.core.budgets import Meter, meters, settle, tightest
from fairq_ipy.core.messages import Cancel, Ready, Unclaimed, WindowTurned
from fairq_ipy.core.model import Budget, Receipt, TenantPolicy, Ticket


def one(unit="requests", limit=10, per="session"):
    """Return a tenant's only budget."""
    return {"budgets": (Budget(unit, limit, per),)}


# ------------------------------------------------------------------------------------------------------------ the meter


@pytest.mark.parametrize(
    ("used", "reserved", "need", "verdict"),
    [
        (0, 0, 10, "fits"),
        (0, 0, 11, "never"),
        (5, 0, 6, "exhausted"),
        (5, 3, 3, "later"),
        (5, 3, 2, "fits"),
        (10, 0, 0, "exhausted"),
        (12, 0, 1, "exhausted"),
        (0, 10, 0, "fits"),
    ],
)
def test_a_meter_says_whether_a_need_fits_now_later_in_this_window_or_in_none(used, reserved, need, verdict):
    meter = Meter(Budget("tokens", 10, "day"))
    meter.used, meter.reserved = used, reserved
    assert meter.verdict(need) == verdict


@pytest.mark.parametrize("need", [0, 1])
def test_a_budget_of_zero_allows_nothing_in_any_window(need):
    assert Meter(Budget("messages", 0, "day")).verdict(need) == "never"


def test_what_does_not_fit_a_session_never_fits():
    meter = Meter(Budget("tokens", 10, "session"))
    meter.used = 5
    assert meter.verdict(6) == "never"


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()), max_size=40),
    st.sampled_from(["requests", "messages", "tokens"]),
)
def test_used_and_reserved_never_pass_the_limit_when_calls_keep_to_what_they_said(calls, unit):
    meter = Meter(Budget(unit, 12, "day"))
    open_calls = []
    for size, used, ends in calls:
        ticket = Ticket(1, "a", 1, messages=size)
        if meter.verdict(meter.need(ticket, size)) == "fits":
            meter.reserved += meter.need(ticket, size)
            open_calls.append((ticket, size, min(used, size)))
        assert meter.used + meter.reserved <= 12
        if ends and open_calls:
            oldest, held, truth = open_calls.pop(0)
            settle((meter,), oldest, held, Receipt("ok", truth, 0))
        assert meter.used + meter.reserved <= 12
        assert meter.reserved == sum(meter.need(ticket, size) for ticket, size, _ in open_calls)


def test_the_tightest_of_several_budgets_decides():
    loose, later, spent, never = (Meter(Budget("tokens", 10, "day")) for _ in range(4))
    later.reserved, spent.used = 10, 10
    never.budget = Budget("tokens", 10, "session")
    never.used = 10
    ticket = Ticket(1, "a", 1)
    assert tightest((), ticket, 1) == ("fits", None)
    assert tightest((loose,), ticket, 1) == ("fits", None)
    assert tightest((loose, later), ticket, 1) == ("later", later)
    assert tightest((loose, later, spent), ticket, 1) == ("exhausted", spent)
    assert tightest((loose, spent, later, never), ticket, 1) == ("never", never)


def test_new_meters_take_over_what_was_used_of_the_same_unit_and_window():
    before = Meter(Budget("tokens", 10, "day"))
    before.used, before.reserved = 7, 2
    kept, other = meters((Budget("tokens", 20, "day"), Budget("tokens", 20, "hour")), (before,), {"day": 99.0})
    assert (kept.used, kept.reserved, kept.resets_at) == (7, 0, 99.0)
    assert (other.used, other.reserved, other.resets_at) == (0, 0, None)


# --------------------------------------------------------------------------------------------------------- in the queue


def test_parallel_calls_never_slip_past_the_last_free_unit(core):
    queue = core(concurrency=50, queue=None, headroom_for=0, **one(limit=10))
    queue.submit_many(50)
    assert len(queue.running) == 10
    assert len(queue.refused) == 0
    for number in list(queue.running):
        queue.settle(number)
    assert len(queue.admitted) == 10
    assert list(queue.refused.values()) == ["budget"] * 40


def test_no_more_tokens_are_set_aside_than_there_are(core):
    queue = core(concurrency=20, headroom_for=0, **one("tokens", 1000))
    queue.submit_many(20, prompt_tokens=0, max_tokens=300)
    assert len(queue.running) == 3
    assert queue.of("a").budgets[0].reserved == 900


def test_what_was_set_aside_and_not_used_lets_the_next_go(core):
    queue = core(concurrency=20, headroom_for=0, **one("tokens", 1000))
    queue.submit_many(20, max_tokens=300)
    queue.settle(1, output_tokens=10)
    assert queue.of("a").budgets[0].used == 10
    assert len(queue.running) == 3
    queue.settle(2, output_tokens=10)
    queue.settle(3, output_tokens=10)
    assert len(queue.running) == 3


def test_without_a_limit_of_its_own_a_call_sets_aside_what_is_expected(core):
    queue = core(concurrency=9, headroom_for=0, **one("tokens", 1000))
    queue.submit(prompt_tokens=100)
    assert queue.of("a").budgets[0].reserved == 100 + 256
    queue.settle(1, prompt_tokens=100, output_tokens=40)
    queue.submit(prompt_tokens=100)
    assert queue.of("a").budgets[0].reserved == 100 + 40


def test_messages_are_counted_per_call(core):
    queue = core(concurrency=9, headroom_for=0, **one("messages", 10))
    queue.submit_many(3, messages=4)
    assert len(queue.running) == 2
    queue.settle(1)
    queue.settle(2)
    assert queue.of("a").budgets[0].used == 8
    assert list(queue.refused.values()) == ["budget"]


@pytest.mark.parametrize("outcome", ["ok", "failed", "cancelled", "truncated"])
def test_a_call_that_reached_the_endpoint_has_used_its_request(core, outcome):
    queue = core(**one("requests", 1))
    queue.settle(queue.submit(), outcome)
    assert queue.of("a").budgets[0].used == 1
    assert queue.refused == {queue.submit(): "budget"}


def test_a_call_that_was_never_sent_has_used_nothing(core):
    queue = core(**one("requests", 1))
    queue.settle(queue.submit(), "unsent", prompt_tokens=5, output_tokens=5)
    assert queue.of("a").budgets[0].used == 0
    assert queue.submit() in queue.running


def test_an_offer_that_nobody_took_has_used_nothing(core):
    queue = core(**one("requests", 1))
    first = queue.submit()
    queue.tell(Unclaimed(first))
    assert queue.of("a").budgets[0].reserved == 0
    assert queue.submit() in queue.running


def test_a_call_that_the_endpoint_refused_has_used_nothing(core):
    queue = core(**one("requests", 1))
    number = queue.submit()
    queue.backoff(number, 1.0)
    assert (queue.of("a").budgets[0].used, queue.of("a").budgets[0].reserved) == (0, 0)
    queue.tick(1.0)
    assert queue.running == [number]


def test_a_call_that_used_more_than_it_said_exhausts_the_budget(core):
    queue = core(concurrency=1, **one("tokens", 100))
    first = queue.submit(prompt_tokens=10, max_tokens=50)
    second = queue.submit(prompt_tokens=10, max_tokens=50)
    queue.settle(first, prompt_tokens=10, output_tokens=500)
    assert queue.of("a").budgets[0].used == 510
    assert queue.refused == {second: "budget"}
    assert queue.of("a").state == "over_budget"


def test_one_tenants_budget_is_not_anothers(core):
    queue = core(headroom_for=0, **one("requests", 1))
    assert {queue.submit("a"), queue.submit("b")} == set(queue.running)


def test_of_several_budgets_all_hold(core):
    queue = core(concurrency=9, headroom_for=0, budgets=(Budget("requests", 5, "day"), Budget("messages", 4, "hour")))
    queue.submit_many(3, messages=2)
    assert len(queue.running) == 2


# ------------------------------------------------------------------------------------------------------- refuse or wait


def test_exhausted_is_refused_with_what_the_error_says(core):
    queue = core(**one("requests", 1, "day"))
    queue.tell(WindowTurned("day", 86_400.0))
    queue.settle(queue.submit())
    queue.submit()
    facts = {"budget": "requests per day", "limit": 1, "used": 1, "resets_at": 86_400.0}
    assert queue.last[0].facts == facts


@pytest.mark.parametrize("unit", ["requests", "messages", "tokens"])
@pytest.mark.parametrize("on_exhausted", ["refuse", "wait"])
@pytest.mark.parametrize("per", ["session", "day"])
def test_zero_means_none_at_all_also_for_who_waits(core, unit, on_exhausted, per):
    queue = core(on_exhausted=on_exhausted, **one(unit, 0, per))
    assert queue.refused == {queue.submit(prompt_tokens=1): "budget"}


def test_no_budget_means_no_limit(core):
    queue = core(concurrency=99, headroom_for=0, budgets=())
    queue.submit_many(99, prompt_tokens=10**9)
    assert len(queue.running) == 99


def test_who_waits_goes_when_the_window_turns(core):
    queue = core(on_exhausted="wait", **one("requests", 1, "minute"))
    queue.tell(WindowTurned("minute", 60.0))
    queue.settle(queue.submit())
    second = queue.submit()
    assert (queue.running, queue.refused) == ([], {})
    assert queue.scheduler.place(second, 0.0) == (0, "budget", 60.0)
    assert queue.of("a").state == "over_budget"
    queue.now = 60.0
    queue.tell(WindowTurned("minute", 120.0))
    assert queue.running == [second]
    assert queue.of("a").budgets[0].resets_at == 120.0


def test_a_turning_window_leaves_other_windows_alone(core):
    queue = core(on_exhausted="wait", **one("requests", 1, "day"))
    queue.settle(queue.submit())
    queue.submit()
    queue.tell(WindowTurned("minute", 60.0))
    assert queue.running == []
    assert queue.of("a").budgets[0].used == 1


def test_a_turning_window_keeps_what_running_calls_have_set_aside(core):
    queue = core(**one("requests", 2, "minute"))
    queue.submit()
    queue.tell(WindowTurned("minute", 60.0))
    assert queue.of("a").budgets[0].reserved == 1
    queue.settle(1)
    assert queue.of("a").budgets[0].used == 1


@pytest.mark.parametrize("on_exhausted", ["refuse", "wait"])
def test_who_does_not_fit_only_because_of_running_calls_waits_for_them(core, on_exhausted):
    queue = core(concurrency=9, headroom_for=0, on_exhausted=on_exhausted, **one("tokens", 100, "day"))
    first = queue.submit(max_tokens=80)
    second = queue.submit(max_tokens=60)
    assert (queue.running, queue.refused) == ([first], {})
    queue.settle(first, output_tokens=20)
    assert queue.running == [second]


def test_who_waits_for_a_window_is_refused_when_no_window_is_large_enough(core):
    queue = core(on_exhausted="wait", **one("tokens", 100, "day"))
    assert queue.refused == {queue.submit(max_tokens=101): "budget"}


def test_who_waits_is_refused_when_a_session_is_used_up(core):
    queue = core(on_exhausted="wait", **one("requests", 1, "session"))
    queue.settle(queue.submit())
    assert queue.refused == {queue.submit(): "budget"}


def test_nobody_waits_for_a_window_that_will_not_help(core):
    budgets = (Budget("requests", 1, "minute"), Budget("requests", 1, "session"))
    queue = core(on_exhausted="wait", budgets=budgets)
    queue.settle(queue.submit())
    assert queue.refused == {queue.submit(): "budget"}
    assert queue.last[0].facts["budget"] == "requests per session"


def test_a_waiting_call_that_no_longer_fits_the_session_is_refused_at_once(core):
    queue = core(concurrency=1, on_exhausted="wait", **one("tokens", 100, "session"))
    first, second = queue.submit(max_tokens=50), queue.submit(max_tokens=50)
    queue.settle(first, output_tokens=60)
    assert queue.refused == {second: "budget"}


def test_when_a_call_refuses_itself_the_next_in_line_gets_the_slot(core):
    queue = core(concurrency=1, headroom_for=0, tenants={"a": TenantPolicy(on_exhausted="wait", **one("tokens", 100))})
    blocker = queue.submit("b")
    queue.submit("a", max_tokens=60)
    second = queue.submit("b")
    queue.settle(blocker)
    queue.settle(queue.running[0], output_tokens=60)
    assert queue.running == [second]


def test_a_parked_call_does_not_hold_up_anybody(core):
    limited = TenantPolicy(on_exhausted="wait", **one("requests", 1, "minute"))
    queue = core(concurrency=2, tenants={"a": limited})
    queue.settle(queue.submit("a"))
    parked = queue.submit("a")
    other = queue.submit("b")
    assert queue.running == [other]
    assert queue.scheduler.place(parked, 0.0).why == "budget"


def test_a_parked_lane_looks_again_when_its_head_gives_up(core):
    queue = core(concurrency=9, headroom_for=0, on_exhausted="wait", **one("tokens", 100, "day"))
    queue.submit(max_tokens=80)
    large, small = queue.submit(max_tokens=60), queue.submit(max_tokens=10)
    assert small not in queue.running
    queue.tell(Cancel(large))
    assert small in queue.running


def test_headroom_is_not_kept_for_who_has_just_been_refused(core):
    queue = core(tenants={"b": TenantPolicy(on_exhausted="wait", **one("tokens", 100))})
    queue.submit("a")
    first, second = queue.submit("b", max_tokens=60), queue.submit("b", max_tokens=40)
    queue.tell(Unclaimed(first))
    queue.settle(second, output_tokens=60)
    queue.tell(Ready(first))
    assert queue.refused == {first: "budget"}
    assert queue.picture.why_held == ""
    assert queue.scheduler.wake_at is None
