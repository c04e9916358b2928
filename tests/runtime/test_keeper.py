"""The owner of the queue, as callers and works see it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import random
import sys
import threading
import weakref

import pytest

from fairq_ipy.core.messages import Capacity, Hold, Pause, PolicyChanged, Resume, Submit
from fairq_ipy.core.model import Backpressure, Limits, Policy, Receipt, Ticket
from fairq_ipy.errors import (
    ConfigurationError,
    EndpointError,
    FairqError,
    QueueFullError,
    QueueTimeoutError,
    ShutDownError,
)
from fairq_ipy.testing import FakeClock

from .conftest import SOON, Probe, books, eventually, rules


def test_a_call_goes_at_once_when_a_slot_is_free(keeper, probe):
    call = probe().submit()
    permit = call.wait()
    assert (permit.ticket, permit.attempt) == (call.ticket, 1)
    assert books(keeper) == (1, 0)
    call.end()


def test_the_next_call_goes_when_the_first_has_ended(keeper, probe):
    first, second = probe().submit(), probe().submit()
    first.wait()
    assert books(keeper) == (1, 1)
    assert not second.permits
    first.end()
    assert second.wait().ticket == second.ticket
    second.end()


def test_every_call_gets_its_own_permit(make_keeper):
    keeper = make_keeper(rules(concurrency=3))
    calls = [Probe(keeper, settle=True).submit() for _ in range(50)]
    assert [call.wait().ticket for call in calls] == [call.ticket for call in calls]


def test_effects_are_done_in_the_order_in_which_the_core_named_them(make_keeper):
    keeper = make_keeper(rules(concurrency=1))
    order = []

    class Quick(Probe):
        """Ends in the same moment in which it starts."""

        def admitted(self, permit):
            order.append(permit.ticket)
            self.keeper.settle(self.ticket, Receipt())
            self.gate.resolve(permit)

    blocker = Probe(keeper).submit()
    quick = [Quick(keeper).submit() for _ in range(5000)]  # nested admissions would not end at this depth
    blocker.end()
    quick[-1].wait()
    assert order == [call.ticket for call in quick]


def test_a_cancelled_call_is_taken_out_of_the_queue(keeper, probe):
    first, second, third = probe().submit(), probe().submit(), probe().submit()
    first.wait()
    keeper.cancel(second.ticket)
    assert books(keeper) == (1, 1)
    first.end()
    third.wait()
    third.end()
    assert not second.permits
    assert keeper.snapshot().cancelled == 1


def test_cancelling_one_that_runs_or_is_over_changes_nothing(keeper, probe):
    call = probe().submit()
    call.wait()
    keeper.cancel(call.ticket)
    assert books(keeper) == (1, 0)
    call.end()
    keeper.cancel(call.ticket)
    keeper.cancel(12345)
    assert books(keeper) == (0, 0)


def test_a_second_receipt_for_the_same_call_changes_nothing(keeper, probe):
    call = probe().submit()
    call.wait()
    call.end()
    call.end(Receipt("failed"))
    snapshot = keeper.snapshot()
    assert (snapshot.completed, snapshot.failed) == (1, 0)


def test_what_is_told_of_calls_that_are_over_is_ignored(keeper):
    keeper.post(keeper.settle, 99, Receipt())
    keeper.post(keeper.progress, 99, 5)
    keeper.post(keeper.unclaimed, 99)
    keeper.post(keeper.ready, 99)
    keeper.call(lambda _core, _now: keeper.backoff(99, status=429, retry_after=None))
    assert books(keeper) == (0, 0)


def test_progress_reaches_the_core(keeper, probe):
    call = probe().submit(prompt_tokens=10, max_tokens=1)
    call.wait()
    keeper.post(keeper.progress, call.ticket, 500)
    events = eventually(lambda: [line.event for line in keeper.journal if type(line.event).__name__ == "Progress"])
    assert events[0].output_tokens == 500
    call.end()


# -------------------------------------------------------------------------------------------------------------- refused


def test_a_full_queue_refuses_at_once_and_says_what_to_do(make_keeper):
    keeper = make_keeper(rules(queue=2), source="policies/team.yaml")
    calls = [Probe(keeper).submit() for _ in range(4)]
    with pytest.raises(QueueFullError) as refused:
        calls[3].wait()
    error = refused.value
    assert (error.reason, error.depth, error.bound, error.tenant, error.ticket) == (
        "queue_full", 2, 2, "a", calls[3].ticket,
    )  # fmt: skip
    assert str(error).startswith("queue full: 2 of 2 waiting; try again in ")
    assert str(error).endswith("or raise limits.queue in policies/team.yaml")
    for call in calls[:3]:
        call.wait()
        call.end()


def test_a_call_that_waits_too_long_is_refused_and_never_starts(make_keeper):
    keeper = make_keeper(rules(max_wait=0.05))
    first, late = Probe(keeper).submit(), Probe(keeper).submit()
    with pytest.raises(QueueTimeoutError) as refused:
        late.wait()
    assert refused.value.waited >= 0.05
    assert "max_wait" in str(refused.value)
    first.wait()
    first.end()
    assert not late.permits


def test_time_is_the_clocks(make_keeper):
    clock = FakeClock()
    keeper = make_keeper(rules(max_wait=60.0), clock=clock)
    first, late = Probe(keeper).submit(), Probe(keeper).submit()
    first.wait()
    assert books(keeper) == (1, 1)
    clock.advance(60.0)
    with pytest.raises(QueueTimeoutError) as refused:  # found without an event: the keeper looks by itself
        late.wait()
    assert refused.value.waited == 60.0
    first.end()


def test_a_refused_call_of_the_endpoint_goes_again_after_the_hold(make_keeper):
    keeper = make_keeper(Policy(limits=Limits(1), backpressure=Backpressure(retries=2)))
    call = Probe(keeper).submit()
    call.wait()
    keeper.call(lambda _core, _now: keeper.backoff(call.ticket, status=429, retry_after=0.01))
    eventually(lambda: len(call.permits) == 2)
    assert call.permits[1].attempt == 2
    call.end()


def test_a_call_that_the_endpoint_refuses_too_often_is_refused(make_keeper):
    keeper = make_keeper(Policy(limits=Limits(1), backpressure=Backpressure(retries=1)))
    call = Probe(keeper).submit()
    for attempt in (1, 2):
        eventually(lambda attempt=attempt: len(call.permits) == attempt)
        keeper.call(lambda _core, _now: keeper.backoff(call.ticket, status=503, retry_after=0.01))
    (error,) = eventually(lambda: call.errors)
    assert isinstance(error, EndpointError)
    assert (error.status, error.attempts) == (503, 2)
    assert "answered 503 2 times" in str(error)


def test_the_hold_is_jittered_by_a_generator_of_its_own(make_keeper):
    state = random.getstate()
    keeper = make_keeper(Policy(limits=Limits(1), backpressure=Backpressure(retries=5, base=0.01)))
    call = Probe(keeper).submit()
    for attempt in (1, 2, 3):
        eventually(lambda attempt=attempt: len(call.permits) == attempt)
        keeper.call(lambda _core, _now: keeper.backoff(call.ticket, status=429, retry_after=None))
    eventually(lambda: len(call.permits) == 4)
    call.end()
    jitters = {line.event.jitter for line in keeper.journal if type(line.event).__name__ == "Backoff"}
    assert len(jitters) == 3
    assert random.getstate() == state


# ----------------------------------------------------------------------------------------------------- works that fail


class Broken(Probe):
    def admitted(self, permit):
        raise ValueError("no socket")


def test_a_work_that_fails_at_its_start_gives_its_slot_back_and_its_caller_is_told(keeper, caplog):
    call = Broken(keeper).submit()
    with pytest.raises(FairqError, match="could not be started: no socket") as told:
        call.wait()
    assert isinstance(told.value.__cause__, ValueError)
    assert told.value.ticket == call.ticket
    assert "could not be started" in caplog.text
    good = Probe(keeper).submit()
    good.wait()
    good.end()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_not_even_an_exit_thrown_by_a_work_ends_the_keeper(keeper, error):
    class Exits(Probe):
        def admitted(self, permit):
            raise error

    with pytest.raises(FairqError, match=error.__name__):
        Exits(keeper).submit().wait()
    assert books(keeper) == (0, 0)


def test_a_work_that_settled_before_it_failed_is_settled_once(keeper):
    class Both(Probe):
        def admitted(self, permit):
            self.keeper.settle(self.ticket, Receipt())
            raise ValueError("too late")

    with pytest.raises(FairqError, match="too late"):
        Both(keeper).submit().wait()
    assert keeper.snapshot().completed == 1


def test_a_work_that_fails_when_it_is_refused_is_logged(make_keeper, caplog):
    keeper = make_keeper(rules(queue=0))

    class Deaf(Probe):
        def refused(self, error):
            raise ValueError("deaf")

    first = Probe(keeper).submit()
    first.wait()
    Deaf(keeper).submit()
    eventually(lambda: "deaf" in caplog.text)
    first.end()


def test_a_ticket_that_the_core_rejects_reaches_its_caller(keeper, probe, caplog):
    first = probe().submit()
    first.wait()
    twin = Probe(keeper)
    waiting = probe().submit()
    twin.ticket = waiting.ticket  # the number of one that waits
    keeper.submit(twin, Ticket(twin.ticket, "a", 1))
    with pytest.raises(FairqError, match="could not be started"):
        twin.wait()
    first.end()
    assert "the core refuses Submit" in caplog.text
    keeper.event(Submit(Ticket(4711, "a", 1)))  # of nobody: its slot is passed on
    eventually(lambda: books(keeper)[1] == 0)


# --------------------------------------------------------------------------------------------------- asking the keeper


def test_a_call_on_the_keepers_thread_returns_its_value(keeper):
    assert keeper.call(lambda _core, _now: threading.get_ident()) == keeper.thread_id


def test_a_call_on_the_keepers_thread_raises_what_is_raised_there(keeper):
    def fails(_core, _now):
        raise KeyError("there")

    with pytest.raises(KeyError, match="there"):
        keeper.call(fails)


def test_the_keepers_own_thread_may_ask_without_waiting_for_itself(keeper):
    assert keeper.call(lambda _core, _now: keeper.snapshot().queued) == 0


def test_letters_are_read_before_a_later_question_is_answered(keeper):
    keeper.event(Pause())
    assert keeper.snapshot().paused
    keeper.event(Resume())
    assert not keeper.snapshot().paused


def test_numbers_are_never_given_twice(keeper, crew):
    seen = []
    for _ in range(4):
        crew.start(lambda: seen.extend([keeper.next_id() for _ in range(5000)]))
    crew.join()
    assert len(set(seen)) == 20_000


def test_times_that_people_see_are_seconds_since_the_epoch(make_keeper, monkeypatch):
    clock = FakeClock(500.0)
    keeper = make_keeper(clock=clock)
    keeper.wall._wall = lambda: 1_000_000.0
    told = []
    keeper.on_effect = told.append
    call = Probe(keeper)
    keeper.event(Hold(530.0))
    assert keeper.snapshot().held_until == 1_000_030.0
    assert told[0].until == 1_000_030.0
    call.submit()
    place = keeper.place(call.ticket)
    assert (place.why, place.until) == ("hold", 1_000_030.0)
    clock.advance(30.0)
    call.wait()
    assert keeper.place(call.ticket) is None
    call.end()


def test_a_listener_that_fails_is_logged_and_nobody_else_suffers(keeper, probe, caplog):
    def fails(_effect):
        raise ValueError("listener")

    keeper.on_effect = fails
    keeper.event(Pause("a"))
    keeper.event(Resume("a"))
    call = probe().submit()
    call.wait()
    call.end()
    assert caplog.text.count("ValueError: listener") == 2


# ----------------------------------------------------------------------------------------------------------- live rules


def test_a_higher_cap_admits_at_once_and_a_lower_one_throws_nobody_out(keeper, probe):
    calls = [probe().submit() for _ in range(4)]
    calls[0].wait()
    keeper.event(PolicyChanged(rules(concurrency=3)))
    for call in calls[:3]:
        call.wait()
    keeper.event(PolicyChanged(rules(concurrency=1)))
    calls[0].end()
    calls[1].end()
    assert books(keeper) == (1, 1)
    assert not calls[3].permits
    calls[2].end()
    calls[3].wait()
    calls[3].end()


def test_a_slot_source_may_take_all_slots_and_give_them_back(keeper, probe):
    keeper.event(Capacity(0))
    call = probe().submit()
    assert books(keeper) == (0, 1)
    keeper.event(Capacity(1))
    call.wait()
    call.end()


# ------------------------------------------------------------------------------------------------------------ its tasks


def test_a_spawned_task_runs_on_the_keepers_loop_and_is_kept_alive(keeper):
    done = threading.Event()

    async def task():
        gc.collect()
        assert threading.get_ident() == keeper.thread_id
        done.set()

    keeper.call(lambda _core, _now: keeper.spawn(task()) and None)
    assert done.wait(SOON)
    eventually(lambda: not keeper._tasks)


def test_a_spawned_task_that_fails_is_logged(keeper, caplog):
    async def task():
        raise ValueError("in the task")

    keeper.call(lambda _core, _now: keeper.spawn(task()) and None)
    eventually(lambda: "in the task" in caplog.text)


# ------------------------------------------------------------------------------------------------------------- its nets


def test_a_letter_without_a_ring_is_found_while_anything_is_outstanding(keeper, probe):
    first, second = probe().submit(), probe().submit()
    first.wait()
    keeper._mailbox._letters.append((keeper.settle, (first.ticket, Receipt())))  # as an interrupt leaves it
    second.wait()
    second.end()


def test_an_idle_keeper_has_no_timer(keeper, probe):
    call = probe(settle=True).submit()
    call.wait()
    eventually(lambda: keeper.call(lambda _core, _now: keeper._timer is None))


def test_an_exception_thrown_into_its_thread_does_not_end_it(keeper, probe, caplog):
    first, second = probe().submit(), probe().submit()
    first.wait()
    gc.disable()  # its callbacks belong to others, and would swallow what is thrown
    try:
        thread, thrown = ctypes.c_ulong(keeper.thread_id), ctypes.py_object(KeyboardInterrupt)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, thrown)
        keeper.post(int)
        eventually(lambda: "KeyboardInterrupt" in caplog.text)
    finally:
        gc.enable()
    first.end()
    second.wait()
    second.end()
    assert keeper._thread.is_alive()


# -------------------------------------------------------------------------------------------------------------- its end


def test_closing_refuses_who_waits_and_ends_the_thread(make_keeper):
    keeper = make_keeper()
    running, waiting = Probe(keeper).submit(), Probe(keeper).submit()
    running.wait()
    keeper.close()
    with pytest.raises(ShutDownError, match="not sent"):
        waiting.wait()
    assert not keeper._thread.is_alive()
    assert keeper.closed
    keeper.close()


def test_closing_tells_what_has_not_ended(make_keeper):
    keeper = make_keeper()
    running = Probe(keeper).submit()
    running.wait()
    keeper.close()
    assert isinstance(running.errors[0], ShutDownError)


def test_closing_cancels_tasks_and_lets_them_clean_up(make_keeper):
    keeper = make_keeper()
    begun, cleaned = threading.Event(), []

    async def task():
        import asyncio

        try:
            begun.set()
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            cleaned.append(1)

    keeper.call(lambda _core, _now: keeper.spawn(task()) and None)
    assert begun.wait(SOON)
    keeper.close()
    assert cleaned == [1]


def test_a_closed_keeper_refuses_calls_and_questions_and_ignores_the_rest(make_keeper):
    keeper = make_keeper()
    keeper.close()
    with pytest.raises(ShutDownError, match=r"fairq\.load"):
        Probe(keeper).submit()
    with pytest.raises(ShutDownError):
        keeper.snapshot()
    keeper.cancel(1)
    keeper.event(Pause())
    keeper.post(keeper.settle, 1, Receipt())


def test_who_comes_while_it_closes_is_refused_too(make_keeper):
    keeper = make_keeper()
    keeper.close()
    keeper._gone = None  # as a caller sees it that looked a moment before
    late = Probe(keeper)
    late.submit()
    with pytest.raises(ShutDownError):
        late.wait()
    with pytest.raises(ShutDownError):
        keeper.snapshot()
    keeper.post(print, "never")
    keeper._gone = lambda: ShutDownError("closed")


def test_nobody_hangs_when_it_is_closed_under_load(make_keeper, crew):
    keeper = make_keeper(rules(concurrency=2))
    begun = threading.Event()

    def caller():
        with contextlib.suppress(ShutDownError):
            for _ in range(100_000):
                Probe(keeper, settle=True).submit().wait()
                begun.set()

    for _ in range(4):
        crew.start(caller)
    assert begun.wait(SOON)
    keeper.close()
    crew.join()


def test_a_keeper_may_be_closed_from_its_own_thread(make_keeper):
    keeper = make_keeper()
    keeper.post(keeper.close)
    keeper._thread.join(SOON)
    assert not keeper._thread.is_alive()


def test_a_closed_keeper_is_garbage(make_keeper):
    from fairq_ipy.runtime.keeper import Keeper

    keeper = Keeper(rules())
    Probe(keeper, settle=True).submit().wait()
    keeper.close()
    gone = weakref.ref(keeper)
    del keeper
    gc.collect()
    assert gone() is None


def test_a_copy_in_a_forked_process_says_what_it_is(make_keeper):
    keeper = make_keeper()
    assert not keeper.orphaned
    twin = make_keeper()
    gone, mailbox = twin._gone, twin._mailbox
    twin.orphan()  # what the fork hook calls; the thread itself lives on in this test
    assert twin.orphaned
    with pytest.raises(ConfigurationError, match=r"forked.*fairq\.load"):
        Probe(twin).submit()
    with pytest.raises(ConfigurationError, match="forked"):
        twin.snapshot()
    twin.cancel(1)
    mailbox._closed, twin._gone = False, gone


def test_switching_threads_at_every_chance_loses_nothing(make_keeper, crew):
    keeper = make_keeper(rules(concurrency=3))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(4):
            crew.start(lambda: [Probe(keeper, settle=True).submit().wait() for _ in range(200)])
        crew.join()
    finally:
        sys.setswitchinterval(interval)
    snapshot = keeper.snapshot()
    assert (snapshot.submitted, snapshot.completed) == (800, 800)
