"""The watchman: every test asks `check()`, so it must see what is broken."""

from __future__ import annotations

import pytest

from fairq_ipy.core.messages import Hold, Pause, Submit
from fairq_ipy.core.model import Budget, Level, Ticket
from fairq_ipy.core.scheduler import Scheduler


@pytest.fixture
def broken(rules):
    """Return a scheduler to break: one call of "a" runs, three wait, and three of "b"."""
    made = Scheduler(rules(concurrency=1, queue=None, budgets=(Budget("requests", 100),)), 0.0)
    for number in range(1, 8):
        tenant, level = ("a", 1) if number < 5 else ("b", 2)
        made.handle(Submit(Ticket(number, tenant, level)), 0.0)
    made.check()
    return made


def lose_a_ticket(inside):
    del inside.entries[3]


def lose_a_slot(inside):
    inside.in_flight += 1


def miscount_the_waiting(inside):
    inside.queued -= 1


def forget_who_is_busy(inside):
    inside.busy = {}


def open_more_than_there_is(inside):
    inside.open = 5


def miscount_a_tenant(inside):
    inside.tenants["a"].submitted += 1


def miscount_the_failed(inside):
    inside.tenants["a"].failed = 9


def reserve_too_much(inside):
    inside.tenants["a"].meters[0].reserved = 2


def overlook_a_presence(inside):
    inside.tenants["a"].here = False


def change_the_order(inside):
    inside.tenants["a"].lanes[1].queue.rotate(1)


def miscount_a_lane(inside):
    inside.tenants["a"].lanes[1].live -= 1


def forget_to_list(inside):
    lane = inside.tenants["a"].lanes[1]
    lane.listed = False


def lose_the_place_in_the_heap(inside):
    inside.tenants["a"].lanes[1].c += 1.0


def miscount_a_level(inside):
    inside.levels[0].listed += 1


def keep_an_ended_ticket(inside):
    inside.entries[2].state = "settled"


@pytest.mark.parametrize(
    "corrupt",
    [
        lose_a_ticket,
        lose_a_slot,
        miscount_the_waiting,
        forget_who_is_busy,
        open_more_than_there_is,
        miscount_a_tenant,
        miscount_the_failed,
        reserve_too_much,
        overlook_a_presence,
        change_the_order,
        miscount_a_lane,
        forget_to_list,
        lose_the_place_in_the_heap,
        miscount_a_level,
        keep_an_ended_ticket,
    ],
    ids=lambda corrupt: corrupt.__name__,
)
def test_the_check_sees(broken, corrupt):
    corrupt(broken._queue)
    with pytest.raises(AssertionError):
        broken.check()


def test_the_check_sees_somebody_who_waits_beside_a_free_slot(broken):
    broken._queue.open = broken._queue.slots = 2
    with pytest.raises(AssertionError, match="b waits at level 2 beside 1 free slots"):
        broken.check()


def test_the_check_knows_why_a_slot_may_stay_free(core):
    held, paused, rated, kept, crowded = (
        core(concurrency=2, headroom_for=0),
        core(concurrency=2),
        core(concurrency=2, requests_per_minute=1),
        core(concurrency=2, levels=(Level(1, "i", reserve=1), Level(2, "b")), headroom_for=0),
        core(concurrency=2),
    )
    held.tell(Hold(9.0))
    paused.tell(Pause())
    crowded.settle(crowded.submit("b"))
    for each in (held, paused, rated, kept, crowded):
        each.submit_many(3, level=2)
        each.scheduler.check()
        assert len(each.running) < 2
