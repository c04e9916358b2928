"""What people see: the snapshot of the queue, and the place of one ticket."""

from __future__ import annotations

import pytest

from fairq_ipy.core.messages import Cancel, Capacity, Hold, Pause, Place, TenantSnapshot, Unclaimed, WindowTurned
from fairq_ipy.core.model import Budget, Level, Stall, TenantPolicy

# ------------------------------------------------------------------------------------------------------------- snapshot


def test_an_empty_queue_shows_its_limits_and_the_tenants_that_the_policy_names(core):
    queue = core(concurrency=3, queue=7, tenants={"logs": TenantPolicy(weight=2.0, level=4)})
    picture = queue.picture
    assert (picture.cap, picture.queue_bound, picture.in_flight, picture.queued, picture.submitted) == (3, 7, 0, 0, 0)
    assert picture.tenants == {"logs": TenantSnapshot(weight=2.0, level=4)}
    assert (picture.paused, picture.held_until, picture.why_held) == (False, None, "")


def test_a_tenant_that_asked_shows_its_own_rules(core):
    queue = core(tenants={"logs": TenantPolicy(weight=2.0, level=4)})
    queue.submit("logs")
    assert (queue.of("logs").weight, queue.of("logs").level, queue.of("logs").state) == (2.0, 4, "running")


def test_the_counts_of_all_tenants_add_up(core):
    queue = core(concurrency=1, queue=3, max_wait=5.0)
    running = queue.submit("a")
    waiting = [queue.submit("a"), queue.submit("b"), queue.submit("c")]
    queue.submit("d")
    queue.tell(Cancel(waiting[0]))
    queue.settle(running, "failed", prompt_tokens=4, output_tokens=6)
    queue.tick(6.0)
    picture = queue.picture
    assert (picture.submitted, picture.completed, picture.rejected, picture.cancelled) == (5, 1, 2, 1)
    assert (picture.in_flight, picture.queued, picture.failed, picture.tokens) == (1, 0, 1, 10)
    for name in ("submitted", "completed", "rejected", "cancelled", "in_flight", "queued", "failed", "tokens"):
        assert sum(getattr(row, name) for row in picture.tenants.values()) == getattr(picture, name)


def test_the_slots_that_the_source_grants_are_the_cap(core):
    queue = core(concurrency=4)
    queue.tell(Capacity(2))
    assert queue.picture.cap == 2
    queue.tell(Capacity(9))
    assert queue.picture.cap == 4
    queue.tell(Capacity(0))
    assert queue.picture.cap == 0
    queue.tell(Capacity(None))
    assert queue.picture.cap == 4


def test_tokens_are_what_the_receipts_said(core):
    queue = core(concurrency=1)
    for outcome in ("ok", "cancelled", "unsent"):
        queue.settle(queue.submit(), outcome, prompt_tokens=10, output_tokens=1)
    assert queue.of("a").tokens == 22


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], "idle"),
        (["submit"], "running"),
        (["submit", "submit"], "running"),
        (["pause", "submit"], "paused"),
        (["blocker", "submit"], "waiting"),
        (["submit", "empty"], "stalled"),
        (["submit", "empty", "cool"], "probing"),
        (["submit", "empty", "pause"], "paused"),
        (["submit", "good", "submit", "good"], "over_budget"),
    ],
)
def test_one_word_says_how_a_tenant_is(core, events, state):
    limited = TenantPolicy(budgets=(Budget("requests", 2),), stall=Stall(5, 1, "pause", resume_after=60.0))
    queue = core(concurrency=1, tenants={"a": limited})
    moves = {
        "submit": lambda: queue.submit("a"),
        "blocker": lambda: queue.submit("b"),
        "pause": lambda: queue.tell(Pause("a")),
        "empty": lambda: queue.settle(queue.running[0], chars=0),
        "good": lambda: queue.settle(queue.running[0]),
        "cool": lambda: queue.tick(60.0),
    }
    for event in events:
        moves[event]()
    assert queue.of("a").state == state


def test_a_budget_is_shown_with_what_is_used_and_set_aside(core):
    queue = core(concurrency=2, headroom_for=0, budgets=(Budget("tokens", 500, "day"),))
    queue.settle(queue.submit(), output_tokens=20)
    queue.submit(max_tokens=100)
    (budget,) = queue.of("a").budgets
    assert (budget.unit, budget.per, budget.limit, budget.used, budget.reserved, budget.resets_at) == (
        *("tokens", "day", 500, 20, 100),
        None,
    )


def test_the_longest_wait_is_shown_over_all_lanes(core):
    queue = core(concurrency=1)
    queue.submit("b")
    queue.now = 1.0
    queue.submit(level=2)
    queue.now = 3.0
    queue.submit(level=1)
    queue.now = 10.0
    assert queue.of("a").oldest_wait == 9.0
    assert queue.of("b").oldest_wait is None


def test_the_time_in_flight_is_no_waiting(core):
    queue = core(concurrency=1)
    queue.submit()
    queue.now = 100.0
    queue.backoff(1, 20.0)
    queue.now = 103.0
    assert queue.of("a").oldest_wait == 3.0


def test_a_sleeping_ticket_counts_as_waiting(core):
    queue = core(concurrency=1)
    queue.tell(Unclaimed(queue.submit()))
    assert (queue.of("a").queued, queue.of("a").state) == (1, "waiting")


def test_a_snapshot_does_not_change_afterwards(core):
    queue = core()
    before = queue.picture
    queue.submit()
    assert before.in_flight == 0
    with pytest.raises(TypeError):
        before.tenants["a"] = TenantSnapshot()


def test_equal_moments_give_equal_pictures(core):
    queue = core()
    queue.submit()
    assert queue.picture == queue.picture


def test_why_slots_stay_free_is_shown(core):
    queue = core()
    queue.tell(Hold(5.0))
    queue.submit()
    assert (queue.picture.why_held, queue.picture.held_until) == ("hold", 5.0)
    queue.tick(5.0)
    assert (queue.picture.why_held, queue.picture.held_until) == ("", None)


# ---------------------------------------------------------------------------------------------------------------- place


def test_the_place_counts_who_is_before_it_in_its_lane(core):
    queue = core(concurrency=1)
    numbers = queue.submit_many(4)
    assert [queue.scheduler.place(number, 0.0) for number in numbers] == [
        None,
        Place(0, "slot"),
        Place(1, "slot"),
        Place(2, "slot"),
    ]


def test_the_place_counts_sooner_levels_in_full(core):
    queue = core(concurrency=1)
    queue.submit_many(4, "b", level=1)
    last = queue.submit("a", level=2)
    assert queue.scheduler.place(last, 0.0).ahead == 3


def test_the_place_counts_other_tenants_by_turns(core):
    queue = core(concurrency=1, queue=None)
    queue.submit_many(50, "flood")
    queue.submit("c")
    _, second = queue.submit_many(2, "a")
    assert queue.scheduler.place(second, 0.0).ahead == 1 + 2 + 1


def test_the_place_does_not_count_who_may_not_go(core):
    queue = core(concurrency=1)
    queue.submit_many(3, "b")
    number = queue.submit("a")
    queue.tell(Pause("b"))
    assert queue.scheduler.place(number, 0.0).ahead == 0


def test_with_equal_costs_the_place_is_never_too_good(core):
    queue = core(concurrency=1, queue=None)
    for tenant in "abacabbac":
        queue.submit(tenant, prompt_tokens=10, max_tokens=0)
    promised = {number: queue.scheduler.place(number, 0.0).ahead for number in range(2, 10)}
    order = queue.drain(prompt_tokens=10)
    assert all(order.index(number) - 1 <= ahead for number, ahead in promised.items())


def test_cancelled_tickets_are_not_counted(core):
    queue = core(concurrency=1)
    _, second, third, fourth = queue.submit_many(4)
    queue.tell(Cancel(third))
    queue.tell(Cancel(second))
    assert queue.scheduler.place(fourth, 0.0).ahead == 0


def test_a_tickets_end_has_no_place(core):
    queue = core()
    number = queue.submit()
    queue.settle(number)
    assert queue.scheduler.place(number, 0.0) is None
    assert queue.scheduler.place(99, 0.0) is None


def test_a_sleeping_ticket_waits_for_its_offer(core):
    queue = core()
    number = queue.submit()
    queue.tell(Unclaimed(number))
    assert queue.scheduler.place(number, 0.0) == (0, "offer", None)


def test_who_waits_for_a_budget_is_told_when_the_last_exhausted_window_turns(core):
    budgets = (Budget("requests", 9, "minute"), Budget("requests", 1, "day"), Budget("messages", 1, "hour"))
    queue = core(on_exhausted="wait", budgets=budgets)
    for per, ends in (("minute", 60.0), ("hour", 3600.0), ("day", 86400.0)):
        queue.tell(WindowTurned(per, ends))
    queue.settle(queue.submit(messages=1))
    number = queue.submit(messages=1)
    assert queue.scheduler.place(number, 0.0) == (0, "budget", 86400.0)


def test_who_waits_for_a_budget_whose_window_is_unknown_is_not_told_when(core):
    queue = core(on_exhausted="wait", budgets=(Budget("requests", 1, "day"),))
    queue.settle(queue.submit())
    assert queue.scheduler.place(queue.submit(), 0.0) == (0, "budget", None)


def test_who_waits_for_what_running_calls_give_back_is_not_told_when(core):
    queue = core(concurrency=2, headroom_for=0, budgets=(Budget("tokens", 100, "day"),))
    queue.tell(WindowTurned("day", 86400.0))
    queue.submit(max_tokens=80)
    assert queue.scheduler.place(queue.submit(max_tokens=60), 0.0) == (0, "budget", None)


@pytest.mark.parametrize("crowding", [0, 1])
def test_headroom_is_the_reason_of_nobody_but_who_crowds(core, crowding):
    queue = core(concurrency=2, levels=(Level(1, "i", reserve=1), Level(2, "b")))
    queue.submit_many(1 + crowding, "a", level=2)
    number = queue.submit("b", level=2)
    assert queue.scheduler.place(number, 0.0).why == "slot"
    assert crowding or queue.picture.why_held == ""


def test_the_first_obstacle_on_the_way_is_the_reason(core):
    queue = core(concurrency=1, tenants={"a": TenantPolicy(concurrency=1, stall=Stall(5, 1))})
    queue.submit()
    number = queue.submit()
    reasons = [queue.scheduler.place(number, 0.0).why]
    queue.backoff(1, 10.0)
    reasons.append(queue.scheduler.place(number, 0.0).why)
    queue.tick(10.0)
    queue.settle(1, chars=0)
    reasons.append(queue.scheduler.place(number, 10.0).why)
    queue.tell(Pause("a"))
    reasons.append(queue.scheduler.place(number, 10.0).why)
    assert reasons == ["concurrency", "hold", "stalled", "paused"]
