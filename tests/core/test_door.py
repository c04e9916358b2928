"""Who comes in: what is refused before it waits, and what finds no room."""

from __future__ import annotations

import pytest

from fairq_ipy.core.messages import Cancel, Pause, Resume
from fairq_ipy.core.model import Context, Limits, Policy, Stall, TenantPolicy

# ------------------------------------------------------------------------------------------------------------ strangers


def test_an_unknown_tenant_is_refused_where_the_policy_says_so(core):
    queue = core(unknown_tenants="refuse", tenants={"known": TenantPolicy()}, default_tenant="notebook")
    assert queue.refused == {queue.submit("stranger"): "unknown_tenant"}
    assert queue.submit("known") in queue.running
    assert queue.submit("notebook") in queue.running


def test_a_strangers_call_is_counted_but_makes_no_row(core):
    queue = core(unknown_tenants="refuse")
    queue.submit("stranger")
    assert (queue.picture.submitted, queue.picture.rejected) == (1, 1)
    assert "stranger" not in queue.picture.tenants


def test_an_unknown_tenant_has_the_defaults_where_it_may_ask(core):
    queue = core(concurrency=9, headroom_for=0, weight=2.0)
    queue.submit("stranger")
    assert queue.of("stranger").weight == 2.0


def test_a_tenant_that_became_unknown_keeps_what_waits(core):
    queue = core(concurrency=1, tenants={"a": TenantPolicy()})
    _, second = queue.submit_many(2)
    queue.change(tenants={}, unknown_tenants="refuse")
    queue.settle(1)
    assert queue.running == [second]
    assert queue.refused == {queue.submit(): "unknown_tenant"}


# ------------------------------------------------------------------------------------------------------------ too large


@pytest.mark.parametrize(
    ("context", "ticket", "facts"),
    [
        (Context(messages=3), {"messages": 4}, {"unit": "messages", "size": 4, "limit": 3}),
        (Context(tokens=100), {"prompt_tokens": 101}, {"unit": "tokens", "size": 101, "limit": 100}),
        (Context(messages=0), {"messages": 1}, {"unit": "messages", "size": 1, "limit": 0}),
        (Context(tokens=0), {"prompt_tokens": 1}, {"unit": "tokens", "size": 1, "limit": 0}),
    ],
)
def test_a_request_that_carries_too_much_is_refused_with_the_limit(core, context, ticket, facts):
    queue = core(context=context)
    queue.submit(**ticket)
    assert queue.last[0]._asdict() == {"id": 1, "reason": "context", "facts": facts}


@pytest.mark.parametrize(
    ("context", "ticket"),
    [
        (Context(messages=3), {"messages": 3}),
        (Context(tokens=100), {"prompt_tokens": 100, "max_tokens": 10**6}),
        (Context(), {"messages": 10**6, "prompt_tokens": 10**9}),
        (Context(messages=0), {"messages": 0}),
    ],
)
def test_a_request_within_its_context_goes(core, context, ticket):
    queue = core(context=context)
    assert queue.submit(**ticket) in queue.running


# --------------------------------------------------------------------------------------------------------------- paused


def test_a_call_of_a_paused_tenant_waits(core):
    queue = core()
    queue.tell(Pause("a", "lunch"))
    number = queue.submit()
    assert (queue.running, queue.refused) == ([], {})
    assert queue.scheduler.place(number, 0.0) == (0, "paused", None)
    queue.tell(Resume("a"))
    assert queue.running == [number]


def test_a_pause_of_all_stops_all_and_resume_lets_them_go(core):
    queue = core(headroom_for=0)
    queue.tell(Pause())
    numbers = [queue.submit("a"), queue.submit("b")]
    assert queue.running == []
    assert queue.picture.paused
    assert queue.scheduler.place(numbers[0], 0.0).why == "paused"
    queue.tell(Resume())
    assert queue.running == numbers


def test_a_resume_of_all_leaves_a_tenants_own_pause(core):
    queue = core()
    queue.tell(Pause("a"))
    queue.tell(Pause())
    queue.tell(Resume())
    queue.submit()
    assert queue.running == []


def test_a_pause_lets_running_calls_end(core):
    queue = core(concurrency=1)
    first, _ = queue.submit_many(2)
    queue.tell(Pause("a"))
    queue.settle(first)
    assert (queue.running, queue.of("a").completed) == ([], 1)


def test_where_the_policy_says_refuse_a_paused_tenants_call_is_refused(core):
    queue = core(on_paused="refuse")
    queue.tell(Pause("a", "lunch"))
    queue.submit()
    assert queue.last[0]._asdict() == {"id": 1, "reason": "paused", "facts": {"why": "lunch", "resumes_at": None}}


def test_where_the_policy_says_refuse_a_pause_of_all_refuses_too(core):
    queue = core(on_paused="refuse")
    queue.tell(Pause(None, "fire drill"))
    queue.submit()
    assert queue.last[0].facts == {"why": "fire drill", "resumes_at": None}


def test_a_refused_call_of_a_stalled_tenant_is_told_when_to_come_back(core):
    queue = core(on_paused="refuse", stall=Stall(5, 1, "pause", resume_after=60.0))
    queue.settle(queue.submit(), chars=0)
    queue.submit()
    assert queue.last[0].facts == {"why": "1 empty answers in a row", "resumes_at": 60.0}
    queue.tell(Pause("a", "lunch"))
    queue.submit()
    assert queue.last[0].facts == {"why": "lunch", "resumes_at": None}


def test_where_the_policy_says_refuse_a_probe_may_still_come_in(core):
    queue = core(on_paused="refuse", stall=Stall(5, 1, "pause", resume_after=60.0))
    queue.settle(queue.submit(), chars=0)
    queue.tick(60.0)
    assert queue.submit() in queue.running


def test_pausing_twice_is_pausing_once(core):
    queue = core()
    queue.tell(Pause("a"))
    queue.tell(Pause("a"))
    queue.tell(Resume("a"))
    assert queue.submit() in queue.running


# ----------------------------------------------------------------------------------------------------------------- full


def test_a_full_queue_refuses_the_newcomer_with_its_depth(core):
    queue = core(concurrency=1, queue=2)
    queue.submit_many(4)
    refusal = {"id": 4, "reason": "queue_full", "facts": {"depth": 2, "bound": 2, "retry_after": None}}
    assert queue.last[0]._asdict() == refusal


def test_the_hint_when_to_come_back_follows_from_how_long_calls_take(core):
    queue = core(concurrency=2, headroom_for=0, queue=3)
    queue.submit_many(5)
    queue.now = 10.0
    queue.settle(1)
    queue.submit_many(2)
    assert queue.last[0].facts["retry_after"] == 10.0 * 4 / 2


def test_a_queue_of_zero_means_at_once_or_not_at_all(core):
    queue = core(concurrency=1, queue=0)
    assert queue.submit() in queue.running
    assert queue.refused == {queue.submit(): "queue_full"}


def test_no_bound_means_no_bound(core):
    queue = core(concurrency=1, queue=None)
    queue.submit_many(500)
    assert queue.refused == {}
    assert queue.picture.queue_bound is None


def test_a_flood_is_refused_without_taking_the_room_of_others(core):
    queue = core(concurrency=1, queue=10, queue_per_tenant=2)
    queue.submit_many(9, "flood")
    assert queue.of("flood").rejected == 6
    assert queue.submit("b") not in queue.refused


def test_a_tenants_own_bound_takes_the_place_of_the_common_one(core):
    queue = core(concurrency=1, queue=10, queue_per_tenant=2, tenants={"a": TenantPolicy(queue=4)})
    queue.submit_many(9)
    assert (queue.of("a").queued, queue.last[0].facts["bound"]) == (4, 4)


def test_a_tenants_own_bound_of_zero_is_not_the_common_one(core):
    queue = core(concurrency=1, queue=10, queue_per_tenant=2, tenants={"a": TenantPolicy(queue=0)})
    queue.submit_many(2)
    assert queue.of("a").queued == 0


def test_who_gives_up_makes_room(core):
    queue = core(concurrency=1, queue=1)
    queue.submit()
    queue.tell(Cancel(queue.submit()))
    assert queue.submit() not in queue.refused


def test_a_call_that_comes_back_may_fill_the_queue_beyond_its_bound(core):
    queue = core(concurrency=1, queue=1)
    first, _ = queue.submit_many(2)
    queue.backoff(first, 1.0)
    assert queue.refused == {}
    queue.submit()
    assert queue.last[0].facts == {"depth": 2, "bound": 1, "retry_after": None}


def test_a_bound_that_was_lowered_throws_nobody_out_and_tells_the_true_depth(core):
    queue = core(concurrency=1, queue=5)
    queue.submit_many(6)
    queue.change(queue=1)
    assert queue.refused == {}
    queue.submit()
    assert (queue.last[0].facts["depth"], queue.last[0].facts["bound"]) == (5, 1)


def test_who_waited_too_long_makes_room_for_who_comes_at_that_moment(core):
    queue = core(concurrency=1, queue=1, max_wait=10.0)
    queue.submit_many(2)
    queue.now = 10.0
    assert queue.submit() not in queue.refused


# ------------------------------------------------------------------------------------------------------ zero and absent


def test_a_concurrency_of_zero_admits_nothing(core):
    queue = core(Policy(limits=Limits(concurrency=0)))
    queue.submit()
    assert (queue.running, queue.scheduler.wake_at) == ([], None)


def test_a_tenants_concurrency_of_zero_admits_nothing_of_it(core):
    queue = core(tenants={"a": TenantPolicy(concurrency=0)})
    queue.submit("a")
    assert queue.submit("b") in queue.running
    assert queue.scheduler.place(1, 0.0).why == "concurrency"


def test_a_tenants_concurrency_bounds_it_over_all_its_levels(core):
    queue = core(concurrency=9, headroom_for=0, tenants={"a": TenantPolicy(concurrency=2)})
    for level in (1, 2, 3):
        queue.submit("a", level=level)
    assert len(queue.running) == 2
    queue.settle(1)
    assert queue.running == [2, 3]
