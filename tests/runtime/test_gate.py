"""How callers wait."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

from fairq_ipy.runtime.gate import LAST_RING, PATIENCE, LoopGate, Outbox, ThreadGate


class Owner:
    """Stands for the keeper: hands gates to their loops at once."""

    def __init__(self) -> None:
        self.idle_hook = None
        self.thread_id = -1
        self.blocked_loops: dict = {}
        self.outboxes: dict = {}

    def hand_over(self, gate):
        outbox = self.outboxes.setdefault(gate.loop, Outbox(gate.loop))
        outbox.gates.append(gate)
        outbox.ring(0.0)


@pytest.fixture
def owner():
    return Owner()


@pytest.mark.parametrize("value", [1, 0, "", None, False])
def test_a_thread_gets_what_the_gate_was_given(owner, value):
    gate = ThreadGate(owner)
    assert gate.resolve(value)
    assert gate.wait() is value


def test_a_thread_gets_the_error_that_the_gate_was_given(owner):
    gate = ThreadGate(owner)
    gate.reject(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        gate.wait()


def test_the_first_result_wins(owner):
    gate = ThreadGate(owner)
    assert gate.resolve(1)
    assert not gate.resolve(2)
    assert not gate.reject(ValueError())
    assert gate.wait() == 1


@pytest.mark.parametrize("on_main", [True, False])
def test_a_wait_wakes_when_the_result_comes_and_not_at_the_next_poll(owner, on_main, monkeypatch):
    if on_main:
        monkeypatch.setattr("fairq_ipy.runtime.gate.POLL", 3600.0)
    gates = [ThreadGate(owner) for _ in range(2)]
    got = []

    def waiter():
        got.append(gates[0].wait())
        gates[1].resolve("back")

    def resolver():
        gates[1].resolve(gates[0].wait())

    if on_main:
        thread = threading.Thread(target=lambda: gates[0].resolve("there"), daemon=True)
        thread.start()
        assert gates[0].wait() == "there"
    else:
        thread = threading.Thread(target=waiter, daemon=True)
        thread.start()
        gates[0].resolve("there")
        assert gates[1].wait() == "back"
        assert got == ["there"]
    thread.join()


@pytest.mark.parametrize("timeout", [0, 0.01, 0.12, -1])
@pytest.mark.parametrize("on_main", [True, False])
def test_a_wait_that_is_over_can_be_taken_up_again(owner, timeout, on_main):
    gate = ThreadGate(owner)

    def wait_twice():
        with pytest.raises(TimeoutError):
            gate.wait(timeout)
        gate.resolve("late")
        assert gate.wait(timeout) == "late"

    if on_main:
        wait_twice()
    else:
        errors = []

        def main():
            try:
                wait_twice()
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)

        thread = threading.Thread(target=main)
        thread.start()
        thread.join()
        assert not errors


def test_the_keepers_own_thread_is_told_that_it_would_wait_for_itself(owner):
    owner.thread_id = threading.get_ident()
    with pytest.raises(RuntimeError, match="own thread"):
        ThreadGate(owner).wait()


def test_the_idle_hook_is_called_while_the_main_thread_waits(owner):
    gate = ThreadGate(owner)
    calls = []

    def hook():
        calls.append(threading.get_ident())
        if len(calls) == 3:
            gate.resolve("done")

    owner.idle_hook = hook
    assert gate.wait() == "done"
    assert calls == [threading.get_ident()] * 3


def test_an_idle_hook_that_fails_is_switched_off_and_costs_nobody_the_answer(owner, caplog):
    gate = ThreadGate(owner)

    def hook():
        threading.Timer(0.1, gate.resolve, ["answer"]).start()
        raise ValueError("widget")

    owner.idle_hook = hook
    assert gate.wait() == "answer"
    assert owner.idle_hook is None
    assert "idle hook failed" in caplog.text


def test_the_idle_hook_may_be_interrupted(owner):
    def hook():
        raise KeyboardInterrupt

    owner.idle_hook = hook
    with pytest.raises(KeyboardInterrupt):
        ThreadGate(owner).wait()


def test_a_signal_interrupts_the_main_threads_wait(owner):
    gate = ThreadGate(owner)
    timer = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        gate.wait()
    timer.join()


def test_other_threads_do_not_call_the_idle_hook(owner):
    called, over = [], []
    owner.idle_hook = lambda: called.append(1)
    gate = ThreadGate(owner)

    def wait():
        with pytest.raises(TimeoutError):
            gate.wait(0.12)
        over.append(1)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert over
    assert not called


def test_a_wait_on_the_thread_of_a_running_loop_says_which_loop_it_blocks(owner):
    gate = ThreadGate(owner)

    async def block():
        seen = []
        owner.idle_hook = lambda: seen.append(dict(owner.blocked_loops))
        with pytest.raises(TimeoutError):
            gate.wait(0.12)
        assert seen[0] == {gate: asyncio.get_running_loop()}

    asyncio.run(block())
    assert owner.blocked_loops == {}


# --------------------------------------------------------------------------------------------------------------- loops


def test_a_task_gets_what_the_gate_was_given(owner):
    async def main():
        gate = LoopGate(owner)
        threading.Thread(target=gate.resolve, args=("there",)).start()
        return await gate

    assert asyncio.run(main()) == "there"


def test_a_task_gets_the_error(owner):
    async def main():
        gate = LoopGate(owner)
        gate.reject(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await gate

    asyncio.run(main())


def test_a_gate_that_is_done_is_awaited_without_a_turn_of_the_loop(owner):
    async def main():
        gate = LoopGate(owner)
        gate.resolve(1)
        passed = []
        asyncio.get_running_loop().call_soon(passed.append, 1)
        assert await gate == 1
        assert not passed

    asyncio.run(main())


def test_an_error_that_nobody_is_left_to_read_makes_no_noise(owner, caplog):
    async def main():
        gate = LoopGate(owner)
        task = asyncio.ensure_future(wait(gate))
        await asyncio.sleep(0)
        task.cancel()
        gate.reject(ValueError("unread"))
        with pytest.raises(asyncio.CancelledError):
            await task

    async def wait(gate):
        await gate

    asyncio.run(main())
    assert not caplog.records


def test_cancellation_wins_over_a_result_that_came_in_the_same_turn(owner):
    async def main():
        gate = LoopGate(owner)
        left = []

        async def wait():
            try:
                await gate
            except BaseException:
                left.append(gate.done)
                raise

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        gate.done, gate._value = True, "there"
        gate.wake()  # the task is woken, but has not run yet
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert left == [True]

    asyncio.run(main())


def test_all_gates_of_one_turn_are_taken_at_once(owner):
    async def main():
        loop = asyncio.get_running_loop()
        gates = [LoopGate(owner) for _ in range(3)]
        outbox = Outbox(loop)
        for gate in gates:
            gate.done = True
            outbox.gates.append(gate)
        outbox.ring(0.0)
        await asyncio.sleep(0)
        assert all(gate.future.done() for gate in gates)
        assert outbox.idle

    asyncio.run(main())


def test_a_ring_to_a_closed_loop_says_so_and_the_owners_are_told(owner):
    loop = asyncio.new_event_loop()
    dead = []

    async def make():
        return LoopGate(owner, on_dead=lambda: dead.append(1)), LoopGate(owner)

    gates = loop.run_until_complete(make())
    loop.close()
    outbox = Outbox(loop)
    outbox.gates.extend(gates)
    assert not outbox.ring(0.0)
    outbox.bury()
    assert dead == [1]
    assert outbox.idle


def test_a_loop_that_does_not_take_its_gates_is_rung_again_ever_more_rarely():
    loop = asyncio.new_event_loop()
    try:
        outbox = Outbox(loop)
        outbox.gates.append(object())
        outbox.ring(0.0)
        now, rings = 0.0, []
        while not outbox.idle:
            now += 0.5
            if outbox.overdue(now):
                rings.append(now)
                outbox.ring(now)
        assert rings[:3] == [PATIENCE, PATIENCE * 3, PATIENCE * 7]
        assert len(rings) == 7
        assert PATIENCE * 2 ** (7 - 1) == LAST_RING
    finally:
        loop.close()


def test_an_interrupted_hand_over_is_taken_up_by_the_next_ring(owner):
    async def main():
        loop = asyncio.get_running_loop()
        gates = [LoopGate(owner) for _ in range(3)]
        outbox = Outbox(loop)
        outbox.gates.extend(gates)
        wake, struck = gates[1].wake, []

        class Interrupted:
            future = gates[1].future

            def wake(self):
                if not struck:
                    struck.append(1)
                    raise KeyboardInterrupt
                wake()

        outbox.gates[1] = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            outbox._take()
        assert [gate.future.done() for gate in gates] == [True, False, False]
        assert outbox.overdue(time.monotonic() + 1)
        outbox.ring(0.0)
        await asyncio.sleep(0)
        assert all(gate.future.done() for gate in gates)

    asyncio.run(main())
