"""A new policy holds at once, throws nobody out, and forgets nothing that was used."""

from __future__ import annotations

import pytest

from fairq_ipy.core.messages import Hold, WindowTurned
from fairq_ipy.core.model import Budget, Level, TenantPolicy


def test_the_policy_that_holds_is_the_latest(core):
    queue = core(concurrency=2)
    queue.change(concurrency=5)
    assert queue.scheduler.policy.limits.concurrency == 5


def test_a_lower_cap_admits_nothing_until_enough_have_ended(core):
    queue = core(concurrency=4)
    queue.submit_many(6)
    queue.change(concurrency=2)
    assert (len(queue.running), queue.picture.cap) == (4, 2)
    for number in (1, 2):
        queue.settle(number)
    assert len(queue.running) == 2
    queue.settle(3)
    assert queue.running == [4, 5]


def test_a_cap_of_zero_lets_running_calls_end_and_admits_nothing(core):
    queue = core(concurrency=2)
    queue.submit_many(3)
    queue.change(concurrency=0)
    queue.drain()
    assert (queue.waiting, queue.admitted) == (1, [1, 2])


def test_a_higher_cap_admits_at_once(core):
    queue = core(concurrency=1)
    queue.submit_many(4)
    queue.change(concurrency=3)
    assert len(queue.running) == 3


def test_a_tenants_higher_concurrency_admits_at_once(core):
    queue = core(concurrency=4, tenants={"a": TenantPolicy(concurrency=1)})
    queue.submit_many(4)
    queue.change(tenants={"a": TenantPolicy(concurrency=3)})
    assert len(queue.running) == 3


def test_a_tenants_lower_concurrency_admits_nothing_until_enough_have_ended(core):
    queue = core(concurrency=4)
    queue.submit_many(6)
    queue.change(tenants={"a": TenantPolicy(concurrency=1)})
    for number in (1, 2, 3):
        queue.settle(number)
    assert queue.running == [4]
    queue.settle(4)
    assert queue.running == [5]


@pytest.mark.parametrize(
    "rules", [{"queue": 0}, {"queue_per_tenant": 0}, {"max_wait": 0.0}, {"unknown_tenants": "refuse"}]
)
def test_nobody_who_waits_is_thrown_out(core, rules):
    queue = core(concurrency=1)
    queue.submit_many(4)
    queue.change(**rules)
    queue.tick(1000.0)
    assert (queue.waiting, queue.refused) == (3, {})


def test_a_used_budget_stays_used(core):
    queue = core(budgets=(Budget("requests", 3),))
    queue.settle(queue.submit())
    queue.settle(queue.submit())
    queue.change(budgets=(Budget("requests", 2),))
    assert queue.of("a").budgets[0].used == 2
    assert queue.refused == {queue.submit(): "budget"}


def test_what_running_calls_have_set_aside_stays_set_aside(core):
    queue = core(concurrency=9, headroom_for=0, budgets=(Budget("tokens", 100),))
    queue.submit(max_tokens=60)
    queue.change(budgets=(Budget("tokens", 110),))
    assert queue.of("a").budgets[0].reserved == 60
    queue.submit(max_tokens=60)
    assert queue.running == [1]


def test_a_new_budget_counts_the_calls_that_run(core):
    queue = core(concurrency=2, headroom_for=0)
    queue.submit(max_tokens=60)
    queue.change(budgets=(Budget("tokens", 100),))
    assert queue.of("a").budgets[0].reserved == 60
    queue.settle(1, output_tokens=10)
    assert (queue.of("a").budgets[0].used, queue.of("a").budgets[0].reserved) == (10, 0)


def test_a_larger_budget_lets_who_waits_go(core):
    queue = core(on_exhausted="wait", budgets=(Budget("requests", 1, "day"),))
    queue.settle(queue.submit())
    second = queue.submit()
    queue.change(budgets=(Budget("requests", 2, "day"),))
    assert queue.running == [second]


def test_a_budget_that_is_gone_lets_who_waits_go(core):
    queue = core(on_exhausted="wait", budgets=(Budget("requests", 1, "day"),))
    queue.settle(queue.submit())
    second = queue.submit()
    queue.change(budgets=())
    assert queue.running == [second]


def test_a_new_budget_knows_when_its_window_turns(core):
    queue = core()
    queue.submit()
    queue.tell(WindowTurned("day", 99.0))
    queue.change(budgets=(Budget("requests", 1, "day"),))
    assert queue.of("a").budgets[0].resets_at == 99.0


def test_a_tenant_that_disappears_falls_back_to_the_defaults(core):
    queue = core(concurrency=2, headroom_for=0, tenants={"a": TenantPolicy(concurrency=0, weight=5.0, level=4)})
    number = queue.submit()
    queue.change(tenants={})
    assert queue.running == [number]
    assert (queue.of("a").weight, queue.of("a").level) == (1.0, 1)


def test_a_tenant_that_appears_gets_its_rules(core):
    queue = core(concurrency=4)
    queue.submit_many(4)
    queue.change(tenants={"a": TenantPolicy(concurrency=1, weight=5.0)})
    assert queue.of("a").weight == 5.0


def test_a_hold_outlives_the_policy_it_began_under(core):
    queue = core()
    queue.tell(Hold(10.0))
    queue.submit()
    queue.change(concurrency=9)
    assert (queue.running, queue.scheduler.wake_at) == ([], 10.0)


def test_a_reserve_that_is_gone_frees_its_slot_at_once(core):
    queue = core(concurrency=2, headroom_for=0, levels=(Level(1, "i", reserve=1), Level(2, "b")))
    queue.submit_many(2, level=2)
    assert len(queue.running) == 1
    queue.change(levels=())
    assert len(queue.running) == 2


def test_a_new_patience_holds_for_who_comes_from_now_on(core):
    queue = core(concurrency=1, max_wait=10.0)
    queue.submit_many(2)
    queue.change(max_wait=3.0)
    third = queue.submit()
    queue.tick(3.0)
    assert queue.refused == {third: "queue_timeout"}
    queue.tick(10.0)
    assert queue.refused == {third: "queue_timeout", 2: "queue_timeout"}
