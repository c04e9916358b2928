"""Taking along who asks into threads that inherit nothing."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest

from fairq_ipy.errors import ConfigurationError
from fairq_ipy.runtime.carry import carry
from fairq_ipy.runtime.scope import current_scope, tenant


def who() -> str | None:
    scope = current_scope()
    return None if scope is None else scope.tenant


def test_a_thread_of_an_executor_asks_as_whoever_handed_it_the_work():
    with ThreadPoolExecutor(1) as pool:
        with tenant("logs"):
            carried, bare = pool.submit(carry(who)), pool.submit(who)
        assert (carried.result(), bare.result()) == ("logs", None)
        assert pool.submit(who).result() is None, "nothing stays in the thread"


def test_so_does_one_of_a_loop():
    async def main() -> str | None:
        with tenant("logs"):
            return await asyncio.get_running_loop().run_in_executor(None, carry(who))

    assert asyncio.run(main()) == "logs"


def test_what_counts_is_where_it_was_carried_from():
    with tenant("logs"):
        carried = carry(who)
    with tenant("other"):
        assert carried() == "logs"
        assert who() == "other"


def test_many_threads_may_run_it_at_once():
    barrier = threading.Barrier(4, timeout=10)

    def meet() -> str | None:
        barrier.wait()
        return who()

    with ThreadPoolExecutor(4) as pool, tenant("logs"):
        carried = carry(meet)
        assert [future.result() for future in [pool.submit(carried) for _ in range(4)]] == ["logs"] * 4


def test_two_callers_do_not_mix():
    barrier = threading.Barrier(2, timeout=10)

    def meet(number: int) -> tuple[int, str | None]:
        barrier.wait()
        return number, who()

    with ThreadPoolExecutor(2) as pool:
        with tenant("one"):
            first = pool.submit(carry(meet), 1)
        with tenant("two"):
            second = pool.submit(carry(meet), 2)
        assert (first.result(), second.result()) == ((1, "one"), (2, "two"))


def test_a_call_leaves_no_trace_for_the_next_one():
    seen: ContextVar[int] = ContextVar("seen", default=0)

    def count() -> int:
        seen.set(seen.get() + 1)
        return seen.get()

    carried = carry(count)
    assert [carried(), carried()] == [1, 1]


def test_arguments_results_errors_and_the_name_pass():
    def divide(one: float, *, by: float) -> float:
        return one / by

    assert carry(divide)(6, by=3) == 2
    assert carry(divide).__name__ == "divide"
    with pytest.raises(ZeroDivisionError):
        carry(divide)(1, by=0)


async def steps_of_a_task() -> None:
    """A coroutine function."""


def steps():
    yield 1


async def later_steps():
    yield 1


@pytest.mark.parametrize("function", [steps_of_a_task, steps, later_steps])
def test_what_runs_step_by_step_cannot_be_carried(function):
    with pytest.raises(ConfigurationError, match=f"{function.__name__} runs step by step"):
        carry(function)
