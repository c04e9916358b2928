"""submit, run and governed."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import threading

import pytest

from fairq_ipy.errors import ConfigurationError, ShutDownError
from fairq_ipy.runtime import calls
from fairq_ipy.runtime.scope import current_scope, tenant

from .conftest import SOON, books, eventually, taken


@pytest.fixture
def submit(keeper, permit):
    def submit(function, *args):
        asynchronous = calls.is_async(function)
        work = functools.partial(function, *args)
        return calls.submit(permit(on_loop=asynchronous), keeper, work, asynchronous=asynchronous)

    return submit


@pytest.fixture
def run(keeper, permit):
    def run(function, *args):
        return calls.run(permit(), keeper, functools.partial(function, *args), asynchronous=calls.is_async(function))

    return run


async def double(value):
    await asyncio.sleep(0)
    return 2 * value


def test_what_is_async_is_told_from_what_is_not():
    class Callable:
        async def __call__(self):
            return 1

    assert calls.is_async(double)
    assert calls.is_async(functools.partial(double, 1))
    assert calls.is_async(Callable())
    assert not calls.is_async(print)
    assert not calls.is_async(lambda: double(1))


# -------------------------------------------------------------------------------------------------------------- submit


def test_a_coroutine_function_runs_on_the_callers_loop(keeper, submit):
    async def where():
        assert books(keeper) == (1, 0)
        return asyncio.get_running_loop()

    async def main():
        assert await submit(where) is asyncio.get_running_loop()
        assert await submit(double, 21) == 42

    asyncio.run(main())


def test_a_plain_function_runs_in_a_thread_with_the_callers_context(keeper, submit):
    def where():
        assert books(keeper) == (1, 0)
        return threading.get_ident(), current_scope().tenant

    async def main():
        with tenant("logs"):
            ident, name = await submit(where)
        assert ident != threading.get_ident()
        assert name == "logs"

    asyncio.run(main())


def test_the_calls_of_a_submitted_function_run_under_its_permit(keeper, submit, permit):
    def inner():
        with permit():
            return books(keeper)

    async def ainner():
        async with permit():
            return books(keeper)

    async def main():
        assert await submit(inner) == (1, 0)
        assert await submit(ainner) == (1, 0)

    asyncio.run(main())


@pytest.mark.parametrize("error", [ValueError("mine"), StopIteration("end"), SystemExit(3)])
def test_what_a_submitted_function_raises_reaches_its_caller(keeper, submit, error):
    def fails():
        raise error

    async def main():
        expected = RuntimeError if isinstance(error, StopIteration) else type(error)
        with pytest.raises(expected) as raised:
            await submit(fails)
        assert error in (raised.value, raised.value.__cause__)

    asyncio.run(main())


def test_ten_functions_over_one_slot_run_one_after_the_other(keeper, submit):
    running, most = [], []

    def work(number):
        running.append(number)
        most.append(len(running))
        running.remove(number)
        return number

    async def main():
        return await asyncio.gather(*(submit(work, number) for number in range(10)))

    assert asyncio.run(main()) == list(range(10))
    assert most == [1] * 10


def test_a_function_whose_caller_was_cancelled_keeps_its_slot_until_its_end(keeper, submit):
    begun, end = threading.Event(), threading.Event()

    def work():
        begun.set()
        assert end.wait(SOON)

    async def main():
        task = asyncio.create_task(submit(work))
        await asyncio.to_thread(begun.wait, SOON)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert books(keeper) == (1, 0)
        end.set()

    asyncio.run(main())
    eventually(lambda: books(keeper) == (0, 0))


def test_a_function_whose_callers_loop_is_closed_ends_quietly(keeper, submit):
    begun, end = threading.Event(), threading.Event()

    def work():
        begun.set()
        assert end.wait(SOON)

    loop = asyncio.new_event_loop()
    task = loop.create_task(submit(work))
    loop.run_until_complete(asyncio.sleep(0))
    while not begun.is_set():
        loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()
    end.set()
    eventually(lambda: books(keeper) == (0, 0))


def test_a_thread_that_cannot_start_gives_the_slot_back(keeper, submit, monkeypatch):
    def cannot(self):
        raise RuntimeError("can't start new thread")

    async def main():
        monkeypatch.setattr(threading.Thread, "start", cannot)
        try:
            with pytest.raises(RuntimeError, match="can't start"):
                await submit(print)
        finally:
            monkeypatch.undo()

    asyncio.run(main())
    eventually(lambda: books(keeper) == (0, 0))


def test_a_plain_function_that_returns_a_coroutine_is_a_mistake_that_is_told(keeper, submit, run):
    async def main():
        with pytest.raises(ConfigurationError, match="coroutine"):
            await submit(lambda: double(1))

    asyncio.run(main())
    with pytest.raises(ConfigurationError, match="coroutine"):
        run(lambda: double(1))


@pytest.mark.parametrize("error", [None, ValueError("mine")])
def test_a_function_that_ends_after_the_keeper_still_reaches_its_caller(keeper, submit, error):
    begun, end = threading.Event(), threading.Event()

    def work():
        begun.set()
        assert end.wait(SOON)
        if error is not None:
            raise error
        return "done"

    async def main():
        task = asyncio.create_task(submit(work))
        await asyncio.to_thread(begun.wait, SOON)
        await asyncio.to_thread(keeper.close)
        end.set()
        return await task

    if error is None:
        assert asyncio.run(main()) == "done"
    else:
        with pytest.raises(ValueError, match="mine"):
            asyncio.run(main())


# ----------------------------------------------------------------------------------------------------------------- run


def test_run_returns_what_the_function_returns(run):
    assert run(max, 1, 2) == 2
    assert run(double, 21) == 42


def test_run_works_where_a_loop_is_running(keeper, run):
    async def where():
        assert books(keeper) == (1, 0)
        return threading.get_ident(), current_scope().tenant

    async def cell():
        assert run(max, 1, 2) == 2
        with tenant("logs"):
            ident, name = run(where)
        assert ident != threading.get_ident()
        assert name == "logs"

    asyncio.run(cell())


def test_run_raises_what_the_function_raises(run):
    async def fails():
        raise KeyError("mine")

    async def cell():
        with pytest.raises(KeyError, match="mine"):
            run(fails)

    with pytest.raises(KeyError, match="mine"):
        run(fails)
    asyncio.run(cell())


def test_run_under_a_permit_uses_it(keeper, permit, run):
    async def inner():
        return books(keeper)

    async def cell():
        async with permit():
            assert run(inner) == (1, 0)

    with permit():
        assert run(inner) == (1, 0)
        assert run(books, keeper) == (1, 0)
    asyncio.run(cell())


def test_interrupting_run_cancels_what_runs(keeper, run):
    cancelled = threading.Event()

    async def forever():
        threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT]).start()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    loop = asyncio.new_event_loop()  # not asyncio.run(), which takes the interrupt for itself

    async def cell():
        with pytest.raises(KeyboardInterrupt):
            run(forever)

    loop.run_until_complete(cell())
    loop.close()
    assert cancelled.wait(SOON)
    eventually(lambda: books(keeper) == (0, 0))


def test_interrupting_run_while_it_waits_for_its_turn_leaves_nothing_behind(keeper, run):
    loop = asyncio.new_event_loop()

    async def cell():
        threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            run(double, 1)

    with taken(keeper):
        loop.run_until_complete(cell())
        eventually(lambda: books(keeper) == (1, 0))
    loop.close()


def test_run_after_the_end_is_refused(keeper, run):
    keeper.close()
    with pytest.raises(ShutDownError):
        run(double, 1)
    with pytest.raises(ShutDownError):
        run(max, 1, 2)


# ------------------------------------------------------------------------------------------------------------ governed


def test_every_call_of_a_governed_function_has_a_permit(keeper, permit):
    @functools.partial(calls.governed, permit)
    def plain(value):
        """What it does."""
        return value, books(keeper)

    @functools.partial(calls.governed, permit)
    async def asynchronous(value):
        return value, books(keeper)

    assert plain(1) == (1, (1, 0))
    assert plain(value=2) == (2, (1, 0))
    assert plain.__doc__ == "What it does."
    assert asyncio.run(asynchronous(3)) == (3, (1, 0))
    assert keeper.snapshot().submitted == 3


def test_a_governed_function_inside_another_shares_its_slot(keeper, permit):
    @functools.partial(calls.governed, permit)
    def inner():
        return books(keeper)

    @functools.partial(calls.governed, permit)
    def outer():
        return inner()

    assert outer() == (1, 0)
    assert keeper.snapshot().submitted == 1


def test_governed_methods_get_their_self(permit):
    class Agent:
        name = "x"

        def ask(self):
            return self.name

    Agent.ask = calls.governed(permit, Agent.ask)
    assert Agent().ask() == "x"


def test_a_generator_cannot_be_governed(permit):
    def steps():
        yield 1

    async def asteps():
        yield 1

    for function in (steps, asteps):
        with pytest.raises(ConfigurationError, match="is a generator"):
            calls.governed(permit, function)
