"""Whole interpreters: how they fork and how they end. Each runs a script of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PROMPT = 3.0
"""Seconds within which an interpreter must be gone, after its main thread said that it ends."""

HEAD = """
import asyncio, multiprocessing, os, signal, sys, threading, time
from fairq_ipy.core.model import Limits, Policy, Receipt, Ticket
from fairq_ipy.errors import ConfigurationError, FairqError
from fairq_ipy.runtime import calls
from fairq_ipy.runtime.keeper import Keeper
from fairq_ipy.runtime.permits import PermitBlock
from fairq_ipy.runtime.scope import Identity

keeper = Keeper(Policy(limits=Limits(1, queue=None)))

def permit():
    return PermitBlock(keeper, lambda: Identity("a", 1))

def state():
    snapshot = keeper.snapshot()
    return snapshot.in_flight, snapshot.queued

def ends():
    # What follows must be prompt: a watchdog turns a hang into a failure.
    threading.Thread(target=lambda: (time.sleep(%r), os._exit(99)), daemon=True).start()
    print("ends", flush=True)
"""


def script(body: str) -> tuple[int, str, str]:
    code = HEAD % PROMPT + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


QUEUED_IN_DAEMONS = """
    def waiter():
        with permit():
            time.sleep(3600)
    for _ in range(5):
        threading.Thread(target=waiter, daemon=True).start()
    while state() != (1, 4):
        time.sleep(0.01)
"""

QUEUED_IN_A_DAEMONS_LOOP = """
    async def waiter():
        async with permit():
            await asyncio.sleep(3600)
    async def main():
        await asyncio.gather(*(waiter() for _ in range(5)))
    threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
    while state() != (1, 4):
        time.sleep(0.01)
"""

RUNNING_ON_THE_KEEPER = """
    class Work:
        def admitted(self, permit):
            async def io():
                try:
                    await asyncio.sleep(3600)
                finally:
                    keeper.settle(1, Receipt("cancelled"))
            keeper.spawn(io())
        def refused(self, error):
            pass
    keeper.submit(Work(), Ticket(keeper.next_id(), "a", 1))
    while state() != (1, 0):
        time.sleep(0.01)
"""

SUBMITTED_FUNCTION = """
    async def main():
        task = asyncio.create_task(calls.submit(permit(), keeper, lambda: time.sleep(3600), asynchronous=False))
        while state() != (1, 0):
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
    asyncio.run(main())
"""

CANCELLED_MAIN = """
    async def waiter():
        async with permit():
            await asyncio.sleep(3600)
    async def main():
        tasks = [asyncio.create_task(waiter()) for _ in range(5)]
        while state() != (1, 4):
            await asyncio.sleep(0.01)
    asyncio.run(main())
    assert state() == (0, 0)
"""


@pytest.mark.parametrize(
    "busy",
    ["", QUEUED_IN_DAEMONS, QUEUED_IN_A_DAEMONS_LOOP, RUNNING_ON_THE_KEEPER, SUBMITTED_FUNCTION, CANCELLED_MAIN],
    ids=["idle", "threads", "loop", "keeper", "function", "main"],
)
@pytest.mark.parametrize(
    "way", ["ends()", "ends(); sys.exit(3)", "keeper.close(); ends()"], ids=["end", "exit", "close"]
)
def test_an_interpreter_ends_promptly_and_silently_whatever_is_under_way(busy, way):
    if "close" in way and "daemon" in busy:
        way = "threading.excepthook = lambda args: None; " + way  # the waiters are told, which is their own noise
    status, out, err = script(textwrap.dedent(busy) + way)
    assert out == "ends\n"
    assert err == "", err
    assert status == (3 if "exit(3)" in way else 0)


def test_threads_that_are_no_daemons_get_their_answers_before_the_interpreter_ends():
    status, out, err = script("""
        def work(number):
            with permit():
                time.sleep(0.02)
            print(number, flush=True)
        for number in range(5):
            threading.Thread(target=work, args=(number,)).start()
    """)
    assert (status, err) == (0, "")
    assert sorted(out.split()) == list("01234")


# ---------------------------------------------------------------------------------------------------------------- fork

FORKED = """
    def child():
        signal.alarm(10)  # a hang ends it, as a failure
        try:
            with permit():
                print("admitted", flush=True)
        except ConfigurationError as error:
            print("forked" in str(error), flush=True)
        keeper.cancel(1)
        block.give_back("ok")
        os._exit(0)
"""


def test_a_forked_child_does_not_hang_and_says_what_it_is_and_the_parents_counters_stay():
    status, out, err = script(
        textwrap.dedent(FORKED)
        + textwrap.dedent("""
        block = permit()
        block.take()
        waiting = threading.Thread(target=lambda: permit().take(), daemon=True)
        waiting.start()
        while state() != (1, 1):
            time.sleep(0.01)
        pid = os.fork()
        if not pid:
            child()
        assert os.waitpid(pid, 0)[1] == 0
        assert state() == (1, 1)
        block.give_back("ok")
        while state()[1]:
            time.sleep(0.01)
        """)
    )
    assert (status, out, err) == (0, "True\n", "")


def test_a_child_that_leaves_the_block_it_was_forked_in_gives_back_nothing_of_the_parent():
    status, out, err = script("""
        with permit():
            pid = os.fork()
            if not pid:
                signal.alarm(10)
        if not pid:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        print(state(), keeper.snapshot().completed)
    """)
    assert (status, out, err) == (0, "(0, 0) 1\n", "")


def test_a_pool_of_forked_workers_is_told_and_the_parent_goes_on():
    status, out, err = script("""
        def work(_number):
            try:
                permit().take()
            except FairqError as error:
                return type(error).__name__
        if __name__ == "__main__":
            with permit():
                with multiprocessing.get_context("fork").Pool(2) as pool:
                    print(pool.map(work, range(2)))
            print(state())
    """)
    assert (status, err) == (0, "")
    assert out == "['ConfigurationError', 'ConfigurationError']\n(0, 0)\n"


def test_a_subprocess_disturbs_nothing():
    status, out, err = script("""
        import subprocess
        with permit():
            subprocess.run(["true"], check=True, preexec_fn=lambda: None)
            subprocess.run(["true"], check=True)
        print(state())
    """)
    assert (status, out, err) == (0, "(0, 0)\n", "")
