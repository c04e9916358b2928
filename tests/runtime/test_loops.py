"""Callers on event loops: several of them, blocked ones, closed ones."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest

from fairq_ipy.errors import WouldDeadlockError
from fairq_ipy.runtime import holding

from .conftest import SOON, Probe, books, eventually, rules, taken


def told(keeper, event):
    return [line for line in keeper.journal if type(line.event).__name__ == event]


def unclaimed(keeper):
    return told(keeper, "Unclaimed")


class AsyncProbe(Probe):
    """A work whose caller awaits it."""

    def __init__(self, keeper, **options):
        super().__init__(keeper, keeper.loop_gate(**options.pop("gate_options", {})), **options)

    async def go(self, **fields):
        try:
            self.submit(**fields)
            return await self.gate
        except BaseException:
            self.keeper.cancel(self.ticket)
            raise


def test_a_task_is_admitted_and_woken_on_its_own_loop(keeper):
    async def main():
        call = AsyncProbe(keeper, settle=True)
        assert (await call.go()).ticket == call.ticket

    asyncio.run(main())


def test_one_kernel_many_loops(make_keeper, crew, permit, keeper):
    # A cell that awaits, threads that each run a loop, one after the other, and plain threads, over one slot.
    done = []

    async def task():
        async with permit():
            done.append(threading.get_ident())
            await asyncio.sleep(0)

    def plain():
        with permit():
            done.append(threading.get_ident())

    for _ in range(2):
        crew.start(lambda: [asyncio.run(task()) for _ in range(5)])
    for _ in range(5):
        crew.start(plain)

    async def cell():
        await asyncio.gather(*(task() for _ in range(5)))

    asyncio.run(cell())
    crew.join()
    assert len(done) == 20


def test_results_of_many_tasks_reach_their_loop_in_few_calls(make_keeper, monkeypatch):
    keeper = make_keeper(rules(concurrency=100))

    async def main():
        loop = asyncio.get_running_loop()
        rings = []
        ring = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *args: (rings.append(1), ring(*args))
        calls = [AsyncProbe(keeper, settle=True) for _ in range(500)]
        keeper.call(lambda _core, _now: [call.submit() for call in calls] and None)
        await asyncio.gather(*(call.gate for call in calls))
        assert len(rings) <= 5

    asyncio.run(main())


def test_a_closed_loop_swallows_no_slot(keeper, permit):
    entered = []

    async def waiter():
        async with permit():
            entered.append(1)

    loop = asyncio.new_event_loop()
    with taken(keeper):
        task = loop.create_task(waiter())
        loop.run_until_complete(asyncio.sleep(0))
        eventually(lambda: books(keeper) == (1, 1))
        loop.close()
    eventually(lambda: books(keeper) == (0, 0))
    with permit():
        assert books(keeper) == (1, 0)
    assert not entered
    assert task.get_coro().cr_frame is not None
    task._log_destroy_pending = False
    del task
    gc.collect()


def test_the_owner_of_a_gate_is_told_that_its_loop_is_closed(keeper):
    told = threading.Event()
    loop = asyncio.new_event_loop()

    async def make():
        return AsyncProbe(keeper, gate_options={"on_dead": told.set})

    call = loop.run_until_complete(make())
    loop.close()
    call.submit()
    assert told.wait(SOON)
    call.end()


def test_a_task_that_is_destroyed_while_it_waits_leaves_the_queue(keeper, permit):
    async def waiter():
        async with permit():
            pytest.fail("it must not be admitted")

    with taken(keeper):
        loop = asyncio.new_event_loop()
        coroutine = waiter()
        task = loop.create_task(coroutine)
        loop.run_until_complete(asyncio.sleep(0))
        eventually(lambda: books(keeper) == (1, 1))
        task._log_destroy_pending = False
        coroutine.close()  # GeneratorExit at its await, as the garbage collector does it
        eventually(lambda: books(keeper) == (1, 0))
        loop.close()
        del task


@pytest.mark.parametrize("steps", range(6))
def test_a_task_cancelled_at_any_step_leaves_nothing_behind(keeper, permit, steps):
    async def work():
        async with permit():
            await asyncio.sleep(0)

    async def main():
        with taken(keeper):
            task = asyncio.create_task(work())
            for _ in range(steps % 3):
                await asyncio.sleep(0)
            if steps < 3:
                task.cancel()
        if steps >= 3:
            await asyncio.sleep(0.001 * (steps - 3))
            task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    eventually(lambda: books(keeper) == (0, 0))


def test_a_timeout_around_a_queued_call_takes_it_out_of_the_queue(keeper, permit):
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), permit():
                pytest.fail("it must not be admitted")

    with taken(keeper):
        asyncio.run(main())
        assert books(keeper) == (1, 0)


# ------------------------------------------------------------------------------------------------------- blocked loops


def test_a_blocked_loop_does_not_sit_on_a_slot(keeper, permit, monkeypatch):
    monkeypatch.setattr(holding, "CLAIM_WITHIN", 0.01)
    order = []

    async def on_the_loop():
        async with permit("loop"):
            order.append("loop")

    async def main():
        with taken(keeper):
            task = asyncio.create_task(on_the_loop())
            await asyncio.sleep(0)
            eventually(lambda: books(keeper) == (1, 1))
        # The task is offered the slot now, but this loop does not come round.
        with permit("thread"):
            order.append("thread")
        await task

    asyncio.run(main())
    assert order == ["thread", "loop"]
    assert unclaimed(keeper)


def test_a_call_that_missed_its_offer_keeps_its_place_in_line(keeper, permit, monkeypatch):
    monkeypatch.setattr(holding, "CLAIM_WITHIN", 0.01)
    order = []

    async def on_the_loop(name):
        async with permit("same"):
            order.append(name)

    async def main():
        with taken(keeper):
            first = asyncio.create_task(on_the_loop("first"))
            await asyncio.sleep(0)
            eventually(lambda: books(keeper) == (1, 1))
        eventually(lambda: unclaimed(keeper))
        with taken(keeper):
            second = asyncio.create_task(on_the_loop("second"))
            await asyncio.to_thread(eventually, lambda: books(keeper) == (1, 2))
            await asyncio.to_thread(eventually, lambda: told(keeper, "Ready"))  # the loop came round
        await asyncio.gather(first, second)

    asyncio.run(main())
    assert order == ["first", "second"]


def test_a_loop_whose_every_turn_is_too_long_gets_its_permit_in_the_end(keeper, permit, monkeypatch):
    monkeypatch.setattr(holding, "CLAIM_WITHIN", 0.002)
    got = asyncio.Event()

    async def slow():
        async with permit():
            got.set()

    async def main():
        loop = asyncio.get_running_loop()

        def busy():
            time.sleep(0.02)  # the point of the test: a loop that is busy
            if not got.is_set():
                loop.call_soon(busy)

        busy()
        await slow()

    asyncio.run(main())


def test_a_task_cancelled_after_it_missed_its_offer_leaves_nothing_behind(keeper, permit, monkeypatch):
    monkeypatch.setattr(holding, "CLAIM_WITHIN", 0.01)

    async def on_the_loop():
        async with permit():
            pytest.fail("it was cancelled")

    async def main():
        with taken(keeper):
            task = asyncio.create_task(on_the_loop())
            await asyncio.sleep(0)
            eventually(lambda: books(keeper) == (1, 1))
        eventually(lambda: unclaimed(keeper))
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    eventually(lambda: books(keeper) == (0, 0))


def test_a_blocking_call_whose_slot_only_its_own_loop_can_free_is_refused(keeper, permit):
    async def main():
        async with permit() as outer:
            with pytest.raises(WouldDeadlockError, match="can become free") as refused, Detached(permit()):
                pytest.fail("there was no slot")
            assert refused.value.outer == outer.ticket
            assert refused.value.reason == "would_deadlock"

    asyncio.run(main())


def test_a_blocking_call_waits_when_one_of_the_slots_is_held_elsewhere(make_keeper, crew):
    from fairq_ipy.runtime.permits import PermitBlock
    from fairq_ipy.runtime.scope import Identity

    keeper = make_keeper(rules(concurrency=2))

    def permit():
        return PermitBlock(keeper, lambda: Identity("a", 1))

    held, leave = threading.Event(), threading.Event()

    def elsewhere():
        with permit():
            held.set()
            assert leave.wait(SOON)

    crew.start(elsewhere)
    assert held.wait(SOON)

    async def main():
        async with permit():
            threading.Timer(0.6, leave.set).start()  # longer than the keeper needs to see a deadlock
            with Detached(permit()):
                pass

    asyncio.run(main())


class Detached:
    """A block that is entered outside of the context of the permit around it, as a callback of a widget is."""

    def __init__(self, block):
        self.block = block

    def __enter__(self):
        import contextvars

        return contextvars.Context().run(self.block.take)

    def __exit__(self, *error):
        self.block.give_back("ok")
