"""KeyboardInterrupt at every single step: whatever it strikes, no slot is lost and nobody hangs.

A trace function raises it at the first opcode of ours, then at the second, and so on until one run passes whole. Where
the interpreter really looks for signals is a part of these places.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from fairq_ipy.runtime import calls, gate
from fairq_ipy.runtime.permits import sweep
from fairq_ipy.runtime.scope import current_lender, current_scope, tenant

from .conftest import SOON, Probe, books, eventually, taken

RUNTIME = str(Path(calls.__file__).parent)


class Striker:
    """Raises at the n-th opcode of our own code on this thread."""

    def __init__(self, at):
        self.left = at
        self.struck = False

    def __call__(self, frame, event, _argument):
        if not frame.f_code.co_filename.startswith(RUNTIME):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self.step

    def step(self, frame, event, _argument):
        if event == "opcode" and not self.struck:
            self.left -= 1
            if self.left < 0:
                self.struck = True
                raise KeyboardInterrupt
        return self.step


def strike_everywhere(function, check, stride=1, prepare=int):
    """Run `function` until it passes without having been struck; `prepare` before every run, and `check` after it."""
    at = 0
    while True:
        striker = Striker(at)
        before = sys.gettrace()
        prepare()
        sys.settrace(striker)
        try:
            function()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        gc.collect(0)
        check(at)
        if not striker.struck:
            assert at > 20, "it never came into our code"
            return
        at += stride


@pytest.fixture
def nothing_left(keeper):
    def check(at, *, swept=False):
        if swept:
            sweep()
        eventually(lambda: books(keeper) == (0, 0))
        lender = current_lender()
        assert lender is None or lender._state == "over", f"at opcode {at}"
        sweep()
        assert current_lender() is None
        assert current_scope() is None

    return check


def test_a_block_is_interrupted_at_every_step(permit, nothing_left):
    def work():
        with permit():
            pass

    strike_everywhere(work, nothing_left)


def test_a_block_under_a_tenant_and_inside_another_is_interrupted_at_every_step(permit, nothing_left):
    def work():
        with tenant("a"), permit(), permit():
            pass

    strike_everywhere(work, nothing_left, stride=3)


def test_a_block_that_somebody_keeps_is_interrupted_at_every_step(permit, nothing_left):
    kept = []  # the garbage collector does not help

    def work():
        block = permit()
        kept.append(block)
        with block:
            pass

    # One kind of place is left then, the first instruction of __exit__, which a notebook sweeps after the interrupt.
    strike_everywhere(work, lambda at: nothing_left(at, swept=True))


def test_a_wait_in_the_queue_is_interrupted_at_every_step(keeper, permit, nothing_left):
    # The block has to wait, and the slot becomes free while it does.
    def take():
        first = Probe(keeper).submit("somebody else")
        first.wait()
        threading.Timer(0.002, first.end).start()

    def work():
        with permit():
            pass

    strike_everywhere(work, nothing_left, stride=5, prepare=take)


def run_on(coroutine):
    """Run `coroutine` on a loop that goes on after an interrupt, as a notebook's does, until the task has ended."""

    async def rest():
        _, pending = await asyncio.wait(tasks, timeout=SOON)
        assert not pending, "a task hangs"

    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(coroutine)
        loop.run_until_complete(task)
    finally:
        # the interrupt goes through the loop, and is the task's own as well where it struck the task
        if not task.done():
            tasks = [task]
            loop.run_until_complete(rest())
        task.exception()
        loop.close()


@pytest.fixture
def impatient(monkeypatch):
    """Ring again at once where a hand-over was interrupted."""
    monkeypatch.setattr(gate, "PATIENCE", 0.01)


# An interrupt between the making of a coroutine and its first step is Python's to complain about.
struck_between = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@struck_between
def test_an_async_block_is_interrupted_at_every_step(permit, nothing_left, impatient):
    async def work():
        async with permit():
            await asyncio.sleep(0)

    def main():
        run_on(work())

    strike_everywhere(main, nothing_left, stride=2)


@struck_between
def test_a_submitted_function_is_interrupted_at_every_step(keeper, permit, nothing_left, impatient):
    def main():
        run_on(calls.submit(permit(on_loop=False), keeper, int, asynchronous=False))

    strike_everywhere(main, nothing_left, stride=3)


@pytest.mark.parametrize("queued", [False, True])
def test_real_signals_at_random_moments_leave_nothing_behind(keeper, permit, queued):
    dice = random.Random(11)
    struck = 0

    def strike(_signal, _frame):
        nonlocal struck
        struck += 1
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, strike)
    gc.disable()  # its callbacks belong to others, who do not expect this
    try:
        with taken(keeper) if queued else contextlib.nullcontext():
            for _ in range(300):
                try:
                    try:
                        signal.setitimer(signal.ITIMER_REAL, dice.uniform(1e-6, 0.002 if queued else 6e-4))
                        with permit():
                            time.sleep(1e-5)
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    sweep()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    assert struck > 100
    gc.collect()
    eventually(lambda: books(keeper) == (0, 0))
    assert current_lender() is None


def test_an_interrupted_wait_is_prompt_and_others_go_on(keeper, permit, crew):
    done = threading.Event()

    def other():
        with permit():
            done.set()

    with taken(keeper):
        crew.start(other)
        eventually(lambda: books(keeper) == (1, 1))
        threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt), permit():
            pytest.fail("the slot was taken")
        assert books(keeper) == (1, 1)
    assert done.wait(SOON)
