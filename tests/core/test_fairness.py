"""Who is next within a level: by weighted cost, corrected as the truth comes in, with nothing saved up."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest

from fairq_ipy.core.messages import Cancel, Pause, Progress, Ready, Resume, Settle, Submit, Unclaimed, WindowTurned
from fairq_ipy.core.model import Backpressure, Budget, Receipt, TenantPolicy, Ticket
from fairq_ipy.core.scheduler import Scheduler

EXACT = {"prompt_tokens": 100, "max_tokens": 0}
"""A call whose cost is known beforehand."""


def tenants(queue, ids):
    """Return the tenants of some ids, as letters in a row."""
    return "".join(event.ticket.tenant for number in ids for event, *_ in queue.journal if _submits(event, number))


def _submits(event, number):
    return hasattr(event, "ticket") and event.ticket.id == number


def longest_run(letters, tenant):
    """Return how often a tenant went at the most without anybody in between."""
    return max((len(list(group)) for who, group in groupby(letters) if who == tenant), default=0)


# ------------------------------------------------------------------------------------------------------ first in, first


def test_200_calls_of_one_tenant_at_one_instant_go_strictly_in_order(core):
    queue = core(concurrency=1, queue=None)
    ids = queue.submit_many(200)
    queue.drain()
    assert queue.admitted == ids


@pytest.mark.parametrize("cap", [1, 3])
def test_200_calls_of_one_level_from_tenants_that_come_in_turn_go_in_order(core, cap):
    queue = core(concurrency=cap, queue=None)
    ids = [queue.submit("abcd"[number % 4], **EXACT) for number in range(200)]
    while queue.running:
        queue.settle(queue.running[0], prompt_tokens=100)
    assert queue.admitted == ids


def test_levels_0_1_and_9_go_in_that_order(core):
    queue = core(concurrency=1, queue=None)
    blocker = queue.submit("x", level=5)
    ids = {level: queue.submit_many(5, level=level) for level in (9, 1, 0)}
    queue.settle(blocker)
    assert queue.drain() == ids[0] + ids[1] + ids[9]


def test_a_call_that_was_refused_by_the_endpoint_keeps_its_place_in_its_lane(core):
    queue = core(concurrency=3, queue=None, headroom_for=0)
    ids = queue.submit_many(6)
    for number in (3, 1, 2):
        queue.backoff(number, 1.0)
    queue.tick(1.0)
    assert queue.drain() == ids


def test_a_call_that_comes_back_between_others_takes_its_old_place(core):
    queue = core(concurrency=1)
    first, second, third, fourth = queue.submit_many(4)
    queue.tell(Unclaimed(first))
    queue.tell(Unclaimed(second))
    assert queue.running == [third]
    queue.tell(Ready(second))
    queue.tell(Ready(first))
    queue.settle(third)
    assert queue.drain() == [first, second, fourth]


def test_cancelled_calls_in_the_middle_and_at_the_end_leave_the_order_alone(core):
    queue = core(concurrency=1, queue=None)
    ids = queue.submit_many(400)
    for number in ids[10:390] + ids[395:]:
        queue.tell(Cancel(number))
    assert queue.drain() == ids[:10] + ids[390:395]


# ---------------------------------------------------------------------------------------------------------- fair shares


def test_equal_costs_make_round_robin(core):
    queue = core(concurrency=1, queue=None)
    for tenant in "abc":
        queue.submit_many(10, tenant, **EXACT)
    assert tenants(queue, queue.drain(prompt_tokens=100)) == "abc" * 10


def test_a_flood_does_not_delay_the_first_call_of_another(core):
    queue = core(concurrency=1, queue=None)
    queue.submit_many(100, "a", **EXACT)
    queue.submit("b", **EXACT)
    assert tenants(queue, queue.drain(prompt_tokens=100)[:3]) == "aba"


def test_who_is_cheap_goes_more_often(core):
    queue = core(concurrency=1, queue=None)
    queue.submit_many(10, "a", prompt_tokens=300, max_tokens=0)
    queue.submit_many(30, "b", prompt_tokens=100, max_tokens=0)
    order = tenants(queue, queue.running)
    while queue.running:
        tenant = tenants(queue, queue.running)
        queue.settle(queue.running[0], prompt_tokens=300 if tenant == "a" else 100)
        order += tenants(queue, queue.running)
    assert Counter(order[:20]) == {"a": 5, "b": 15}


def test_weights_are_shares(core):
    queue = core(concurrency=1, queue=None, tenants={"a": TenantPolicy(weight=3.0), "b": TenantPolicy(weight=1.0)})
    queue.submit_many(40, "a", **EXACT)
    queue.submit_many(40, "b", **EXACT)
    assert Counter(tenants(queue, queue.drain(prompt_tokens=100))[:40]) == {"a": 30, "b": 10}


def test_a_new_weight_holds_for_the_next_admission(core):
    queue = core(concurrency=1, queue=None)
    queue.submit_many(40, "a", **EXACT)
    queue.submit_many(40, "b", **EXACT)
    queue.change(tenants={"a": TenantPolicy(weight=4.0)})
    assert Counter(tenants(queue, queue.drain(prompt_tokens=100))[:40])["a"] == pytest.approx(32, abs=2)


def test_a_call_is_corrected_by_the_weight_it_was_charged_with(core):
    queue = core(concurrency=1, queue=None)
    queue.submit_many(20, "a", **EXACT)
    queue.submit_many(20, "b", **EXACT)
    queue.change(tenants={"a": TenantPolicy(weight=1000.0)})
    queue.settle(queue.running[0], prompt_tokens=100)
    assert tenants(queue, queue.running) == "b"


def test_a_stream_that_grows_beyond_its_estimate_is_charged_while_it_runs(core):
    queue = core(concurrency=2, queue=None, headroom_for=0)
    long = queue.submit("a", prompt_tokens=0)
    queue.submit_many(10, "a", prompt_tokens=0)
    queue.submit_many(10, "b", prompt_tokens=0)
    queue.tell(Progress(long, 256 * 4))
    order = ""
    for _ in range(4):
        other = next(number for number in queue.running if number != long)
        queue.settle(other, output_tokens=256)
        order += tenants(queue, [queue.admitted[-1]])
    assert order == "bbbb"


def test_progress_below_the_estimate_changes_nothing_yet(core):
    queue = core(concurrency=1, queue=None)
    first = queue.submit("a", prompt_tokens=0)
    queue.submit("b", prompt_tokens=0)
    queue.submit("a", prompt_tokens=0)
    queue.tell(Progress(first, 100))
    assert tenants(queue, queue.drain(output_tokens=100)) == "aba"


def test_progress_is_not_charged_twice(core):
    queue = core(concurrency=1, queue=None)
    first = queue.submit("a", prompt_tokens=0, max_tokens=10)
    for sofar in (20, 20, 15, 30):
        queue.tell(Progress(first, sofar))
    queue.settle(first, output_tokens=30)
    queue.submit("c", prompt_tokens=0, max_tokens=0)
    queue.submit_many(5, "a", prompt_tokens=50, max_tokens=0)
    queue.submit_many(5, "b", prompt_tokens=50, max_tokens=0)
    assert longest_run(tenants(queue, queue.drain(prompt_tokens=50)), "b") <= 2


def test_a_call_that_was_never_sent_costs_nothing(core):
    queue = core(concurrency=1, queue=None)
    queue.submit("x", **EXACT)
    queue.submit_many(3, "a", **EXACT)
    queue.submit_many(3, "b", **EXACT)
    queue.settle(queue.running[0], prompt_tokens=100)
    assert tenants(queue, queue.running) == "a"
    queue.settle(queue.running[0], "unsent")
    assert tenants(queue, queue.drain(prompt_tokens=100)) == "babab"


def test_a_cancelled_call_costs_what_it_had_produced(core):
    queue = core(concurrency=1, queue=None)
    queue.submit("a", prompt_tokens=0, max_tokens=1000)
    queue.submit_many(20, "a", prompt_tokens=100, max_tokens=0)
    queue.submit_many(20, "b", prompt_tokens=100, max_tokens=0)
    queue.settle(queue.running[0], "cancelled", output_tokens=250)
    assert longest_run(tenants(queue, queue.drain(prompt_tokens=100)), "b") == 5


# ----------------------------------------------------------------------------------------------------- nothing saved up


def test_who_comes_back_from_idle_does_not_monopolise(core):
    queue = core(concurrency=1, queue=None)
    queue.submit_many(60, "b", **EXACT)
    for _ in range(50):
        queue.settle(queue.running[0], prompt_tokens=100)
    queue.submit_many(10, "a", **EXACT)
    assert longest_run(tenants(queue, queue.drain(prompt_tokens=100))[:18], "a") <= 2


def test_who_is_resumed_does_not_monopolise(core):
    queue = core(concurrency=1, queue=None)
    queue.submit_many(60, "b", **EXACT)
    queue.submit_many(10, "a", **EXACT)
    queue.tell(Pause("a"))
    for _ in range(50):
        queue.settle(queue.running[0], prompt_tokens=100)
    queue.tell(Resume("a"))
    assert longest_run(tenants(queue, queue.drain(prompt_tokens=100))[:18], "a") <= 2


def test_whose_budget_window_turns_does_not_monopolise(core):
    limited = TenantPolicy(budgets=(Budget("requests", 1, "minute"),), on_exhausted="wait")
    queue = core(concurrency=1, queue=None, tenants={"a": limited})
    queue.submit_many(10, "a", **EXACT)
    queue.submit_many(60, "b", **EXACT)
    for _ in range(50):
        queue.settle(queue.running[0], prompt_tokens=100)
    queue.change(tenants={"a": TenantPolicy()})
    queue.tell(WindowTurned("minute", 60.0))
    assert longest_run(tenants(queue, queue.drain(prompt_tokens=100))[:18], "a") <= 2


def test_a_burst_beside_ones_own_long_call_does_not_monopolise(core):
    queue = core(concurrency=2, queue=None, headroom_for=0)
    queue.submit("a", **EXACT)
    queue.submit_many(60, "b", **EXACT)
    for _ in range(50):
        queue.settle(queue.running[-1], prompt_tokens=100)
    queue.submit_many(10, "a", **EXACT)
    assert longest_run(tenants(queue, queue.drain(prompt_tokens=100))[:18], "a") <= 2


@pytest.mark.parametrize("way", ["backoff", "unclaimed"])
def test_a_burst_behind_a_call_that_comes_back_after_long_does_not_monopolise(core, way):
    queue = core(concurrency=2, queue=None, headroom_for=0, backpressure=Backpressure(base=1.0))
    first = queue.submit("a", **EXACT)
    queue.submit_many(80, "b", **EXACT)
    for _ in range(50):
        queue.settle(queue.running[-1], prompt_tokens=100)
    if way == "backoff":
        queue.backoff(first)
        queue.tick(1.0)
    else:
        queue.tell(Unclaimed(first))
        queue.submit_many(1, "a", **EXACT)
        queue.tell(Ready(first))
    queue.submit_many(10, "a", **EXACT)
    assert longest_run(tenants(queue, queue.drain(prompt_tokens=100))[:18], "a") <= 2


def test_tickets_behind_a_retry_of_a_tenant_with_its_own_limit_bring_no_credit(core):
    queue = core(concurrency=2, queue=None, headroom_for=0, tenants={"a": TenantPolicy(concurrency=1)})
    first, *_ = queue.submit_many(12, "a", **EXACT)
    queue.submit_many(80, "b", **EXACT)
    for _ in range(50):
        queue.settle(next(number for number in queue.running if number != first), prompt_tokens=100)
    queue.backoff(first, 1.0)
    queue.change(tenants={})
    queue.tick(1.0)
    assert longest_run(tenants(queue, queue.drain(prompt_tokens=100))[:18], "a") <= 2


def test_refunds_cannot_be_saved_up(core):
    queue = core(concurrency=2, queue=None, headroom_for=0)
    big = queue.submit("a", prompt_tokens=100_000, max_tokens=0)
    queue.submit_many(80, "b", **EXACT)
    for _ in range(50):
        queue.settle(queue.running[-1], prompt_tokens=100)
    queue.submit_many(10, "a", **EXACT)
    queue.settle(big, prompt_tokens=0)
    assert longest_run(tenants(queue, queue.drain(prompt_tokens=100))[:18], "a") <= 2


def test_who_arrives_after_a_cheap_turn_of_a_refunded_tenant_is_not_ahead_of_those_who_waited(core):
    """Virtual time never falls: the newcomer starts where the system was, not where a refunded lane is."""
    queue = core(concurrency=2, queue=None, headroom_for=0)
    big = queue.submit("a", prompt_tokens=900, max_tokens=0)
    queue.submit_many(30, "a", **EXACT)
    queue.submit_many(60, "b", **EXACT)
    for _ in range(8):
        queue.settle(queue.running[-1], prompt_tokens=100)
    queue.settle(big, prompt_tokens=0)
    queue.submit_many(20, "c", **EXACT)
    assert Counter(tenants(queue, queue.drain(prompt_tokens=100))[:24])["c"] <= 8


def test_a_refund_does_not_reach_behind_the_moment_at_which_the_lane_was_lifted(core):
    queue = core(concurrency=2, queue=None, headroom_for=0)
    big = queue.submit("a", prompt_tokens=5_000, max_tokens=0)
    queue.submit_many(10, "a", **EXACT)
    queue.submit_many(80, "b", **EXACT)
    queue.tell(Pause("a"))
    for _ in range(50):
        queue.settle(queue.running[-1], prompt_tokens=100)
    queue.tell(Resume("a"))
    queue.settle(big, prompt_tokens=0)
    assert longest_run(tenants(queue, queue.drain(prompt_tokens=100))[:18], "a") <= 2


def test_a_refund_does_not_reach_behind_the_arrival_of_the_call_that_is_now_first(core):
    queue = core(concurrency=2, queue=None, headroom_for=0)
    queue.submit_many(90, "b", **EXACT)
    big = queue.submit("a", prompt_tokens=10_000, max_tokens=0)
    early = queue.submit("a", **EXACT)
    for _ in range(50):
        queue.settle(next(number for number in queue.running if number != big), prompt_tokens=100)
    assert big in queue.running
    queue.submit_many(10, "a", **EXACT)
    queue.tell(Cancel(early))
    queue.settle(big, prompt_tokens=0)
    assert longest_run(tenants(queue, queue.drain(prompt_tokens=100))[:18], "a") <= 2


def test_whoever_is_idle_costs_nothing_per_call(rules):
    class Untouchable(list):
        def __iter__(self):
            raise AssertionError("the lane of an idle tenant was looked at")

    scheduler = Scheduler(rules(concurrency=1, queue=None), 0.0)
    for number in range(50):
        scheduler.handle(Submit(Ticket(number, f"idle {number}", 1, 100, 0)), 0.0)
        scheduler.handle(Settle(number, Receipt("ok", 100)), 0.0)
    (level,) = scheduler._queue.levels
    level.lanes = Untouchable(level.lanes)
    for number in range(50, 550):
        scheduler.handle(Submit(Ticket(number, "ab"[number % 2], 1, 1000, 0)), 0.0)
    for number in range(50, 550):
        scheduler.handle(Settle(number, Receipt("ok", 1)), 0.0)
        assert len(level.heap) < 100
    assert scheduler.snapshot(0.0).completed == 550


def test_a_refund_gives_back_the_turn_that_an_estimate_took(core):
    queue = core(concurrency=2, queue=None, headroom_for=0)
    big = queue.submit("a", prompt_tokens=100_000, max_tokens=0)
    queue.submit_many(10, "a", **EXACT)
    queue.submit_many(10, "b", **EXACT)
    queue.settle(big, prompt_tokens=100)
    order = tenants(queue, queue.drain(prompt_tokens=100))
    assert longest_run(order, "a") <= 2
    assert longest_run(order, "b") <= 2
