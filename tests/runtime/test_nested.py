"""Calls inside a permit: they run under it, one at a time, and wait for no slot that only their caller can free."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from fairq_ipy.core.model import Backpressure, Context, Limits, Policy, Receipt, TenantPolicy
from fairq_ipy.errors import ContextTooLargeError, EndpointError, QueueTimeoutError, ShutDownError
from fairq_ipy.runtime import holding
from fairq_ipy.runtime.keeper import Keeper
from fairq_ipy.runtime.permits import PermitBlock
from fairq_ipy.runtime.scope import Identity

from .conftest import SOON, Probe, books, eventually, rules, taken


def settled(keeper: Keeper) -> list[Receipt]:
    journal = keeper.call(lambda _core, _now: list(keeper.journal))
    return [line.event.receipt for line in journal if type(line.event).__name__ == "Settle"]


def test_a_call_inside_a_permit_runs_under_it(keeper, permit, probe):
    with permit() as outer:
        call = probe().submit()
        assert call.wait().attempt == 1
        assert books(keeper) == (1, 0)
        call.end()
        assert keeper.story(call.ticket)[0] == f"call {call.ticket} ran under the permit of call {outer.ticket}:"
    assert keeper.snapshot().submitted == 1


@pytest.mark.parametrize("depth", [2, 5])
def test_permits_nest_over_one_slot_to_any_depth(keeper, permit, depth):
    def go(level):
        with permit():
            assert books(keeper) == (1, 0)
            if level:
                go(level - 1)

    async def ago(level):
        async with permit():
            if level:
                await ago(level - 1)

    go(depth)
    asyncio.run(ago(depth))
    assert keeper.snapshot().submitted == 2


def test_calls_of_one_block_take_turns(keeper, permit, probe):
    with permit():
        first, second, third = probe().submit(), probe().submit(), probe().submit()
        first.wait()
        assert (keeper.place(second.ticket).ahead, keeper.place(third.ticket).ahead) == (1, 2)
        assert keeper.place(first.ticket) is None
        assert not second.permits
        first.end()
        second.wait()
        second.end()
        third.wait()
        third.end()


def test_tasks_of_one_block_take_turns(keeper, permit):
    running, most = [], []

    async def call():
        async with permit():
            running.append(1)
            most.append(len(running))
            await asyncio.sleep(0)
            running.pop()

    async def main():
        async with permit():
            await asyncio.gather(*(call() for _ in range(10)))

    asyncio.run(main())
    assert most == [1] * 10


def test_two_blocks_that_hold_a_slot_each_do_not_wait_for_each_others(make_keeper, crew):
    keeper = make_keeper(rules(concurrency=2))
    both = threading.Barrier(2)

    def agent():
        with PermitBlock(keeper, lambda: Identity("a", 1)):
            both.wait(SOON)
            calls = [Probe(keeper).submit() for _ in range(3)]
            for call in calls:
                call.wait()
                call.end()

    crew.start(agent)
    crew.start(agent)
    crew.join()


def test_the_tokens_of_the_calls_inside_are_the_permits(keeper, permit, probe):
    with permit(cost=5000):
        for tokens in (10, 20):
            call = probe().submit()
            call.wait()
            call.end(Receipt("ok", tokens, 2 * tokens, exact=True, chars=tokens))
        unsent = probe().submit()
        unsent.wait()
        unsent.end(Receipt("unsent"))
    with permit(cost=5000) as other:
        call = probe().submit()
        call.wait()
        call.end(Receipt("ok", 10, 20, exact=True))
        other.spent(prompt_tokens=1)
    first, second = settled(keeper)
    assert first == Receipt("ok", 30, 60, exact=True, chars=30)
    assert (second.prompt_tokens, second.output_tokens) == (1, 0)


def test_progress_inside_counts_for_the_permit(keeper, permit, probe):
    with permit(cost=1):
        call = probe().submit()
        call.wait()
        call.end(Receipt("ok", 1, 100))
        call = probe().submit()
        call.wait()
        keeper.post(keeper.progress, call.ticket, 7)
        call.end()
    journal = keeper.call(lambda _core, _now: list(keeper.journal))
    assert [line.event.output_tokens for line in journal if type(line.event).__name__ == "Progress"] == [107]


def test_a_call_that_outlives_its_block_keeps_the_slot_until_its_end(keeper, permit, probe):
    with permit():
        call = probe().submit()
        call.wait()
    assert books(keeper) == (1, 0)
    call.end(Receipt("ok", 3, 4, exact=True))
    assert books(keeper) == (0, 0)
    assert settled(keeper) == [Receipt("ok", 3, 4, exact=True)]


def test_calls_that_wait_when_the_block_ends_queue_like_any_other(keeper, permit, probe):
    with permit():
        first, second = probe().submit(), probe().submit()
        first.wait()
    assert books(keeper) == (1, 1)
    first.end()
    second.wait()
    assert keeper.runs(second.ticket)
    second.end()


def test_a_call_made_in_the_context_of_a_block_that_has_ended_queues_like_any_other(keeper, permit, probe):
    with permit():
        context = contextvars.copy_context()
    call = probe()
    context.run(call.submit)
    call.wait()
    assert keeper.runs(call.ticket)
    call.end()


def test_a_call_inside_that_is_cancelled_while_it_waits_is_gone(keeper, permit, probe):
    with permit():
        first, second, third = probe().submit(), probe().submit(), probe().submit()
        first.wait()
        keeper.cancel(second.ticket)
        first.end()
        third.wait()
        third.end()
        assert not second.permits


def test_a_call_inside_obeys_its_deadline(make_keeper, permit):
    keeper = make_keeper(rules(max_wait=0.05))
    with PermitBlock(keeper, lambda: Identity("a", 1)):
        first, late = Probe(keeper).submit(), Probe(keeper).submit()
        first.wait()
        with pytest.raises(QueueTimeoutError) as refused:
            late.wait()
        assert refused.value.waited >= 0.05
        first.end()
        patient = Probe(keeper).submit(max_wait=3600.0)
        patient.wait()
        patient.end()
    assert not late.permits


def test_a_call_inside_obeys_its_tenants_limits(make_keeper):
    policy = Policy(limits=Limits(1), tenants={"small": TenantPolicy(context=Context(tokens=100))})
    keeper = make_keeper(policy)
    with PermitBlock(keeper, lambda: Identity("big", 1)):
        with pytest.raises(ContextTooLargeError, match="101 tokens"):
            Probe(keeper).submit("small", prompt_tokens=101).wait()
        call = Probe(keeper).submit("small", prompt_tokens=100)
        call.wait()
        call.end()


def test_a_call_inside_that_fails_at_its_start_leaves_the_permit_free(keeper, permit, probe, caplog):
    class Broken(Probe):
        def admitted(self, permit):
            raise ValueError("no socket")

    with permit():
        for _ in range(3):
            Broken(keeper).submit()
        call = probe().submit()
        call.wait()
        call.end()
    assert caplog.text.count("ValueError: no socket") == 3


def test_calls_inside_that_end_as_they_start_do_not_pile_up(keeper, permit, probe):
    with permit():
        blocker = probe().submit()
        calls = [probe(settle=True).submit() for _ in range(3000)]
        blocker.wait()
        blocker.end()
        calls[-1].wait()


def test_a_call_inside_that_the_endpoint_pushes_back_waits_its_turn_again(make_keeper):
    keeper = make_keeper(Policy(limits=Limits(1), backpressure=Backpressure(retries=2)))
    with PermitBlock(keeper, lambda: Identity("a", 1)):
        call = Probe(keeper).submit()
        call.wait()
        keeper.call(lambda _core, _now: keeper.backoff(call.ticket, status=429, retry_after=0.2))
        assert books(keeper) == (0, 1)  # the slot is back while the endpoint is left alone
        assert keeper.place(call.ticket).why == "hold"
        eventually(lambda: len(call.permits) == 2)
        assert call.permits[1].attempt == 2
        call.end()
    snapshot = keeper.snapshot()
    assert (snapshot.refusals_by_endpoint, snapshot.retries, snapshot.completed) == (1, 1, 1)


def test_a_call_inside_that_the_endpoint_refuses_too_often_is_told_and_the_block_goes_on(make_keeper):
    keeper = make_keeper(Policy(limits=Limits(1), backpressure=Backpressure(retries=0)))
    with PermitBlock(keeper, lambda: Identity("a", 1)):
        call = Probe(keeper).submit()
        call.wait()
        keeper.call(lambda _core, _now: keeper.backoff(call.ticket, status=429, retry_after=0.01))
        (error,) = eventually(lambda: call.errors)
        assert isinstance(error, EndpointError)
        other = Probe(keeper).submit()  # the permit is spent: this one queues by itself
        other.wait()
        assert keeper.runs(other.ticket)
        other.end()


def test_a_call_inside_is_not_refused_for_what_earlier_ones_in_its_block_met(make_keeper):
    keeper = make_keeper(Policy(limits=Limits(1), backpressure=Backpressure(retries=1)))
    with PermitBlock(keeper, lambda: Identity("a", 1)):
        for _ in range(3):
            call = Probe(keeper).submit()
            call.wait()
            keeper.call(lambda _core, _now, call=call: keeper.backoff(call.ticket, status=429, retry_after=0.01))
            eventually(lambda call=call: len(call.permits) == 2)
            call.end()
            assert not call.errors


def test_leaving_the_block_while_a_call_inside_is_pushed_back_lets_it_queue_by_itself(make_keeper):
    keeper = make_keeper(Policy(limits=Limits(1), backpressure=Backpressure(retries=2)))
    for leave_first in (False, True):
        block = PermitBlock(keeper, lambda: Identity("a", 1))
        with block:
            call = Probe(keeper).submit()
            call.wait()
            if not leave_first:
                keeper.call(lambda _core, _now, call=call: keeper.backoff(call.ticket, status=429, retry_after=0.05))
        if leave_first:
            keeper.call(lambda _core, _now, call=call: keeper.backoff(call.ticket, status=429, retry_after=0.05))
        eventually(lambda call=call: len(call.permits) == 2)
        assert keeper.runs(call.ticket)
        call.end()


def test_a_permit_inside_whose_loop_is_blocked_passes_the_slot_to_the_next_call_of_the_block(
    keeper, permit, probe, monkeypatch
):
    monkeypatch.setattr(holding, "CLAIM_WITHIN", 0.01)
    order = []

    async def inner():
        async with permit():
            order.append("task")

    async def main():
        async with permit():
            first = probe().submit()
            first.wait()
            task = asyncio.create_task(inner())
            await asyncio.sleep(0)
            second = probe().submit()
            first.end()
            second.wait()  # this loop does not come round, so the task's turn passes
            order.append("call")
            second.end()
            await task

    asyncio.run(main())
    assert order == ["call", "task"]


def test_a_permit_inside_that_is_cancelled_after_it_missed_its_offer_is_gone(keeper, permit, probe, monkeypatch):
    monkeypatch.setattr(holding, "CLAIM_WITHIN", 0.01)

    async def inner():
        async with permit():
            pytest.fail("it was cancelled")

    async def main():
        async with permit() as outer:
            first = probe().submit()
            first.wait()
            task = asyncio.create_task(inner())
            await asyncio.sleep(0)
            first.end()
            lender = keeper.call(lambda _core, _now: keeper._works[outer.ticket][0])
            eventually(lambda: lender._away)
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(main())


def test_closing_refuses_a_call_that_waits_inside(make_keeper):
    keeper = make_keeper()
    with PermitBlock(keeper, lambda: Identity("a", 1)):
        first, second = Probe(keeper).submit(), Probe(keeper).submit()
        first.wait()
        keeper.close()
    with pytest.raises(ShutDownError):
        second.wait()


def test_what_runs_in_other_contexts_is_no_call_of_the_block(make_keeper):
    keeper = make_keeper(rules(concurrency=2))
    with PermitBlock(keeper, lambda: Identity("a", 1)):
        other = Probe(keeper)
        contextvars.Context().run(other.submit)
        other.wait()
        assert books(keeper) == (2, 0)
        other.end()


def test_a_permit_waits_in_the_queue_like_any_call(keeper, permit, crew):
    got = threading.Event()

    def waiter():
        with permit():
            got.set()

    with taken(keeper):
        crew.start(waiter)
        eventually(lambda: books(keeper) == (1, 1))
        assert not got.is_set()
    assert got.wait(SOON)
