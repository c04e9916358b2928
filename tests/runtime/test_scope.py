"""Who asks."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fairq_ipy.errors import ConfigurationError
from fairq_ipy.runtime.scope import current_scope, tenant


def who():
    scope = current_scope()
    return None if scope is None else (scope.tenant, scope.priority)


def test_nobody_is_around_at_first():
    assert who() is None


def test_everything_inside_asks_as_the_tenant():
    with tenant("logs", priority="batch"):
        assert who() == ("logs", "batch")
    assert who() is None


def test_scopes_nest_and_the_innermost_counts_as_a_whole():
    with tenant("outer", priority=3):
        with tenant("inner"):
            assert who() == ("inner", None)
        assert who() == ("outer", 3)


def test_a_scope_ends_on_every_way_out():
    for error in (ValueError, KeyboardInterrupt, GeneratorExit):
        with pytest.raises(error), tenant("a"):
            raise error
        assert who() is None


def test_one_object_may_be_entered_again_inside_itself():
    scope = tenant("a")
    with scope:
        with tenant("b"), scope:
            assert who() == ("a", None)
        assert who() == ("a", None)
    assert who() is None


@pytest.mark.parametrize("bad", ["", "  ", None, 3, b"logs"])
def test_a_name_that_is_none_is_refused_at_once(bad):
    with pytest.raises(ConfigurationError, match="text that is not empty"):
        tenant(bad)


def test_a_scope_says_how_it_was_made():
    assert repr(tenant("a")) == "tenant('a')"
    assert repr(tenant("a", priority=0)) == "tenant('a', priority=0)"


def test_async_with_works_too():
    async def main():
        async with tenant("a"):
            assert who() == ("a", None)
        assert who() is None

    asyncio.run(main())


# --------------------------------------------------------------------------------------------------- tasks and threads


def test_tasks_and_threads_do_not_mix_even_over_one_object():
    scope = tenant("shared")
    seen = []

    async def task(name):
        with scope, tenant(name):
            for _ in range(5):
                await asyncio.sleep(0)
                seen.append(who() == (name, None))

    async def main():
        await asyncio.gather(*(task(f"t{number}") for number in range(5)))
        assert who() is None

    def thread(name):
        with scope, tenant(name):
            barrier.wait()
            seen.append(who() == (name, None))
        seen.append(who() is None)

    asyncio.run(main())
    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=thread, args=(f"n{number}",)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert seen == [True] * (25 + 8)


def test_a_task_inherits_where_it_was_made():
    async def child():
        await asyncio.sleep(0)
        return who()

    async def main():
        with tenant("parent"):
            task = asyncio.create_task(child())
        assert who() is None
        assert await task == ("parent", None)
        with tenant("parent"):
            assert await asyncio.to_thread(who) == ("parent", None)

    asyncio.run(main())


def test_threads_of_an_executor_inherit_nothing_but_what_is_copied_for_them():
    with ThreadPoolExecutor(1) as pool, tenant("a"):
        assert pool.submit(who).result() is None
        assert pool.submit(contextvars.copy_context().run, who).result() == ("a", None)
        assert pool.submit(tenant("b")(who)).result() == ("b", None)


# ----------------------------------------------------------------------------------------------------------- decorator


def test_a_function_runs_inside():
    @tenant("a", priority=1)
    def function(value, *, key):
        """What it does."""
        return who(), value, key

    assert function(1, key=2) == (("a", 1), 1, 2)
    assert function.__doc__ == "What it does."
    assert who() is None


def test_a_coroutine_function_runs_inside_and_stays_one():
    @tenant("a")
    async def function():
        await asyncio.sleep(0)
        return who()

    async def main():
        return await asyncio.gather(function(), function())

    assert asyncio.iscoroutinefunction(function)
    assert asyncio.run(main()) == [("a", None)] * 2


def test_a_generator_is_inside_only_while_it_runs():
    @tenant("a")
    def steps():
        got = yield who()
        got = yield (who(), got)
        return (who(), got)

    def consume():
        result = yield from running
        returned.append(result)

    returned = []
    running = steps()
    consumer = consume()
    assert next(consumer) == ("a", None)
    assert who() is None
    assert consumer.send("sent") == (("a", None), "sent")
    assert who() is None
    assert next(consumer, "end") == "end"
    assert returned == [(("a", None), None)]


def test_what_is_thrown_into_a_generator_reaches_it_inside():
    @tenant("a")
    def steps():
        try:
            yield 1
        except KeyError as error:
            yield (who(), error.args)

    running = steps()
    next(running)
    assert running.throw(KeyError("thrown")) == (("a", None), ("thrown",))


def test_a_closed_generator_cleans_up_inside():
    cleaned = []

    @tenant("a")
    def steps():
        try:
            yield 1
        finally:
            cleaned.append(who())

    running = steps()
    next(running)
    running.close()
    assert cleaned == [("a", None)]


def test_an_async_generator_is_inside_only_while_it_runs():
    cleaned = []

    @tenant("a")
    async def steps():
        try:
            got = yield who()
            await asyncio.sleep(0)
            try:
                yield (who(), got)
            except KeyError:
                yield "caught"
        finally:
            await asyncio.sleep(0)
            cleaned.append(who())

    async def main():
        running = steps()
        assert await anext(running) == ("a", None)
        assert who() is None
        assert await running.asend("sent") == (("a", None), "sent")
        assert await running.athrow(KeyError()) == "caught"
        assert who() is None
        await running.aclose()
        assert cleaned == [("a", None)]
        assert [item async for item in steps()] == [("a", None), (("a", None), None)]

    asyncio.run(main())


def test_steps_of_one_async_generator_may_be_taken_by_several_tasks():
    @tenant("a")
    async def steps():
        for _ in range(3):
            yield who()

    async def main():
        running = steps()
        return [await asyncio.create_task(anext(running)) for _ in range(3)]

    assert asyncio.run(main()) == [("a", None)] * 3


def test_a_partial_and_a_method_can_be_decorated():
    class Agent:
        @tenant("a")
        def ask(self):
            return self, who()

    agent = Agent()
    assert agent.ask() == (agent, ("a", None))
    assert functools.partial(tenant("b")(who))() == ("b", None)


def test_a_block_left_in_another_context_than_it_was_entered_in_undoes_nothing_there():
    scope = tenant("a")
    contextvars.Context().run(scope.__enter__)
    with tenant("b"):
        scope.__exit__(None, None, None)
        assert who() == ("b", None)
    with scope, tenant("b"):
        scope.__exit__(None, None, None)  # out of order: only its own scope goes
        assert who() == ("b", None)
    assert who() is None
