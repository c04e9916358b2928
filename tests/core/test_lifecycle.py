"""The life of a ticket: one entrance, one end, and what happens in between."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from fairq_ipy.core.lifecycle import TRANSITIONS, WAITING, Entry, Move, State
from fairq_ipy.core.messages import Backoff, Cancel, Close, Progress, Ready, Settle, Submit, Tick, Unclaimed
from fairq_ipy.core.model import Backpressure, Receipt, Ticket

ENDS = {"settled", "refused", "cancelled"}


# ------------------------------------------------------------------------------------------------------------ the table


def test_no_move_leads_out_of_an_end():
    assert not [state for state, _ in TRANSITIONS if state in ENDS]


def test_every_state_but_the_first_can_be_reached_and_every_one_but_the_ends_can_be_left():
    reached = set(TRANSITIONS.values())
    left = {state for state, _ in TRANSITIONS}
    assert reached == set(get_args(State)) - {"new"}
    assert left == set(get_args(State)) - ENDS


def test_every_state_leads_to_an_end():
    ending = set(ENDS)
    for _ in get_args(State):
        ending |= {state for (state, _), to in TRANSITIONS.items() if to in ending}
    assert ending == set(get_args(State))


def test_every_waiting_state_can_be_refused_and_cancelled():
    moves: tuple[Move, ...] = ("refuse", "cancel")
    assert all((state, move) in TRANSITIONS for state in WAITING for move in moves)


@pytest.mark.parametrize(("state", "move"), list(itertools.product(get_args(State), get_args(Move))))
def test_a_move_that_is_not_in_the_table_raises_and_changes_nothing(state, move):
    entry = Entry(Ticket(7, "a", 1), None, 1, 0.0, 0.0)
    entry.state = state
    if (state, move) in TRANSITIONS:
        entry.move(move)
        assert entry.state == TRANSITIONS[state, move]
    else:
        with pytest.raises(ValueError, match=f"ticket 7 is {state}: '{move}' is not possible"):
            entry.move(move)
        assert entry.state == state


# ------------------------------------------------------------------------------------------------------------ the moves


def test_a_ticket_that_finds_a_slot_goes_at_once(core):
    queue = core()
    queue.now = 5.0
    number = queue.submit()
    assert queue.last[0]._asdict() == {"id": number, "attempt": 1, "waited": 0.0}


def test_a_ticket_that_finds_none_waits_and_its_wait_is_told(core):
    queue = core(concurrency=1)
    first, second = queue.submit_many(2)
    queue.now = 2.5
    queue.settle(first)
    assert queue.last[0]._asdict() == {"id": second, "attempt": 1, "waited": 2.5}
    assert queue.of("a").last_wait == 2.5


def test_a_cancelled_ticket_is_gone(core):
    queue = core(concurrency=1)
    first, second, third = queue.submit_many(3)
    queue.tell(Cancel(second))
    queue.settle(first)
    assert queue.running == [third]
    assert queue.of("a").cancelled == 1


def test_cancelling_a_running_ticket_is_left_to_its_settlement(core):
    queue = core()
    number = queue.submit()
    queue.tell(Cancel(number))
    assert queue.of("a").in_flight == 1
    queue.settle(number, "cancelled")
    assert queue.of("a").cancelled == 1


@pytest.mark.parametrize("event", [Cancel(1), Progress(1, 5), Ready(1)])
@pytest.mark.parametrize("life", ["unknown", "settled"])
def test_a_race_with_the_end_of_a_ticket_changes_nothing(core, event, life):
    queue = core()
    if life == "settled":
        queue.settle(queue.submit())
    before = queue.picture
    assert queue.tell(event) == []
    assert queue.picture == before


@pytest.mark.parametrize("event", [Progress(2, 5), Ready(2)])
def test_news_of_a_call_that_still_waits_changes_nothing(core, event):
    queue = core(concurrency=1)
    queue.submit_many(2)
    before = queue.picture
    assert queue.tell(event) == []
    assert queue.picture == before


@pytest.mark.parametrize(("outcome", "failed"), [("ok", 0), ("failed", 1), ("truncated", 1)])
def test_a_call_that_ran_is_completed_and_counts_as_failed_unless_it_was_good(core, outcome, failed):
    queue = core()
    queue.settle(queue.submit(), outcome, prompt_tokens=3, output_tokens=4)
    row = queue.of("a")
    assert (row.completed, row.failed, row.cancelled, row.rejected, row.tokens) == (1, failed, 0, 0, 7)


# ------------------------------------------------------------------------------------------------------ impossible news


@pytest.mark.parametrize(
    "event",
    [Settle(2, Receipt()), Backoff(2, None, 0.0), Unclaimed(2), Settle(99, Receipt()), Submit(Ticket(2, "b", 1))],
)
def test_what_cannot_be_raises_and_changes_nothing(core, event):
    queue = core(concurrency=1)
    queue.submit_many(2)
    before = queue.picture
    with pytest.raises(ValueError, match=f"ticket {event.ticket.id if isinstance(event, Submit) else event.id} "):
        queue.scheduler.handle(event, queue.now)
    queue.scheduler.check()
    assert queue.picture == before


@pytest.mark.parametrize(
    "event", [Settle(99, Receipt()), Backoff(99, None, 0.0), Unclaimed(99), Submit(Ticket(1, "b", 1))]
)
def test_impossible_news_loses_nobody_whose_time_has_come(core, event):
    queue = core(concurrency=1)
    queue.submit()
    late = queue.submit(max_wait=5.0)
    queue.now = 6.0
    with pytest.raises(ValueError, match="ticket"):
        queue.scheduler.handle(event, queue.now)
    queue.tell(Tick())
    assert queue.refused == {late: "queue_timeout"}


def test_a_number_may_not_be_used_twice_at_a_time(core):
    queue = core(concurrency=1)
    queue.submit(id=5)
    with pytest.raises(ValueError, match="ticket 5 was submitted before"):
        queue.submit(id=5)


# ----------------------------------------------------------------------------------------------------- unclaimed offers


def test_an_offer_that_nobody_took_passes_to_the_next(core):
    queue = core(concurrency=1)
    first, second = queue.submit_many(2)
    queue.tell(Unclaimed(first))
    assert queue.running == [second]
    assert queue.of("a").queued == 1


def test_a_sleeping_ticket_keeps_its_place(core):
    queue = core(concurrency=1)
    first, second, third = queue.submit_many(3)
    queue.tell(Unclaimed(first))
    queue.tell(Ready(first))
    queue.settle(second)
    assert queue.running == [first]
    queue.settle(first)
    assert queue.running == [third]


def test_a_sleeping_ticket_is_passed_over(core):
    queue = core(concurrency=1)
    first, second, third = queue.submit_many(3)
    queue.tell(Unclaimed(first))
    queue.settle(second)
    assert queue.running == [third]
    queue.settle(third)
    assert queue.running == []
    assert queue.tell(Ready(first))[0].id == first


def test_an_offer_that_nobody_took_is_no_attempt(core):
    queue = core(concurrency=1, backpressure=Backpressure(retries=0))
    number = queue.submit()
    for _ in range(5):
        queue.tell(Unclaimed(number))
        queue.tell(Ready(number))
    assert queue.last[0].attempt == 1


def test_a_sleeping_ticket_can_be_cancelled(core):
    queue = core(concurrency=1)
    first, second = queue.submit_many(2)
    queue.tell(Unclaimed(first))
    queue.tell(Cancel(first))
    queue.settle(second)
    assert queue.of("a").cancelled == 1
    assert queue.waiting == 0


def test_the_only_ticket_of_a_lane_can_sleep_and_be_cancelled(core):
    queue = core(concurrency=1)
    number = queue.submit()
    queue.tell(Unclaimed(number))
    queue.tell(Cancel(number))
    assert (queue.waiting, queue.of("a").state) == (0, "idle")


def test_a_sleeping_ticket_can_wait_too_long(core):
    queue = core(concurrency=1)
    number = queue.submit(max_wait=5.0)
    queue.tell(Unclaimed(number))
    queue.tick(queue.scheduler.wake_at)
    assert queue.refused == {number: "queue_timeout"}
    assert queue.now == 5.0


def test_an_offer_that_nobody_took_from_a_closed_queue_is_refused(core):
    queue = core()
    number = queue.submit()
    queue.tell(Close())
    queue.tell(Unclaimed(number))
    assert queue.refused == {number: "shut_down"}
    assert (queue.waiting, queue.of("a").rejected) == (0, 1)


# ------------------------------------------------------------------------------------------------------------- patience


def test_a_ticket_that_waited_too_long_is_refused_and_told_how_long(core):
    queue = core(concurrency=1, max_wait=10.0)
    queue.submit_many(2)
    assert queue.scheduler.wake_at == 10.0
    queue.tick(9.999)
    assert queue.refused == {}
    queue.tick(10.5)
    assert queue.last[0]._asdict() == {"id": 2, "reason": "queue_timeout", "facts": {"waited": 10.5}}


def test_a_tickets_own_patience_comes_before_the_policys(core):
    queue = core(concurrency=1, max_wait=10.0)
    queue.submit(max_wait=99.0)
    queue.submit(max_wait=3.0)
    assert queue.scheduler.wake_at == 3.0


def test_no_patience_at_all_means_now_or_never(core):
    queue = core(concurrency=1, max_wait=10.0)
    first, second = queue.submit(max_wait=0.0), queue.submit(max_wait=0.0)
    assert queue.running == [first]
    queue.tick(queue.scheduler.wake_at)
    assert queue.now == 0.0
    assert queue.refused == {second: "queue_timeout"}


def test_patience_is_only_used_up_by_waiting(core):
    queue = core(concurrency=1, max_wait=10.0)
    queue.submit()
    queue.now = 100.0
    queue.backoff(1, 5.0)
    assert queue.scheduler.wake_at == 105.0
    queue.tick(105.0)
    assert queue.running == [1]
    queue.now = 200.0
    queue.backoff(1, 50.0)
    queue.tick(queue.scheduler.wake_at)
    assert queue.refused == {1: "queue_timeout"}
    assert queue.now == 205.0
    assert queue.last[0].facts == {"waited": 10.0}


def test_the_wait_that_is_told_is_that_of_all_attempts(core):
    queue = core(concurrency=1)
    first, second = queue.submit_many(2)
    queue.now = 3.0
    queue.settle(first)
    queue.now = 10.0
    queue.backoff(second, 5.0)
    queue.tick(15.0)
    assert queue.last[0].waited == 3.0 + 5.0


def test_patience_begins_anew_where_it_stopped_when_a_call_comes_back(core):
    queue = core(concurrency=1, max_wait=10.0)
    number = queue.submit()
    queue.now = 5.0
    queue.backoff(number, 100.0)
    queue.tick(10.0)
    assert queue.refused == {}
    queue.tick(15.0)
    assert queue.refused == {number: "queue_timeout"}


def test_a_ticket_that_was_admitted_in_time_is_not_refused_later(core):
    queue = core(concurrency=1, max_wait=10.0)
    queue.submit()
    queue.tick(20.0)
    assert queue.refused == {}


def test_patience_that_many_used_up_elsewhere_wakes_nobody(core):
    queue = core(concurrency=1, queue=None, max_wait=1000.0)
    queue.submit()
    for _ in range(200):
        queue.tell(Cancel(queue.submit()))
    assert queue.waiting == 0
    queue.submit(max_wait=5000.0)
    queue.tick(1000.0)
    assert queue.scheduler.wake_at == 5000.0


def test_who_waited_too_long_is_gone_before_the_next_is_admitted(core):
    queue = core(concurrency=1, max_wait=10.0)
    first, second = queue.submit_many(2)
    queue.now = 5.0
    third = queue.submit()
    queue.now = 10.0
    queue.settle(first)
    assert queue.refused == {second: "queue_timeout"}
    assert queue.running == [third]


# ------------------------------------------------------------------------------------------------------------------ end


def test_closing_refuses_whoever_waits_and_lets_the_others_end(core):
    queue = core(concurrency=1)
    first, second, third = queue.submit_many(3)
    queue.tell(Unclaimed(first))
    queue.tell(Close())
    assert queue.refused == {first: "shut_down", third: "shut_down"}
    queue.settle(second)
    assert queue.of("a").completed == 1


def test_a_closed_queue_takes_nobody(core):
    queue = core()
    queue.tell(Close())
    assert queue.refused == {queue.submit(): "shut_down"}


def test_a_closed_queue_needs_no_waking(core):
    queue = core(concurrency=1, max_wait=5.0)
    queue.submit_many(3)
    queue.tell(Close())
    queue.tick(10.0)
    assert queue.scheduler.wake_at is None
