"""A permit's moves, one at a time, on the keeper's own thread: what is too rare to be met from outside."""

from __future__ import annotations

import asyncio

import pytest

from fairq_ipy.core.model import Receipt, Ticket
from fairq_ipy.runtime.gate import LoopGate
from fairq_ipy.runtime.holding import UNSENT, Holding
from fairq_ipy.runtime.work import Permit

from .conftest import Probe


class Keeper:
    """Notes what a holding asks for."""

    idle_hook = None
    thread_id = -1

    def __init__(self):
        self.loop = self
        self.blocked_loops = {}
        self.said = []
        self.timers = []

    def __getattr__(self, name):
        return lambda *args, **options: self.said.append((name, *args[:1]))

    def call_later(self, _delay, function, *args):
        self.timers.append((function, args))

    def hand_over(self, gate):
        gate.wake()


@pytest.fixture
def scene():
    """A holding that was offered its permit, with the gate that its caller waits at."""

    async def make():
        keeper = Keeper()
        gate = LoopGate(keeper)
        holding = Holding(keeper, Ticket(7, "a", 1), gate, gate.loop)
        holding.admitted(Permit(7, 1, 0.0))
        return keeper, holding, gate, LoopGate(keeper)

    return asyncio.run(make())


def take_back(keeper):
    function, args = keeper.timers.pop()
    function(*args)


def test_an_offer_is_claimed_once(scene):
    _keeper, _holding, gate, _again = scene
    offer = gate.result()
    assert offer.claim()
    assert not offer.claim()


def test_an_offer_that_was_claimed_is_not_taken_back(scene):
    keeper, _holding, gate, _again = scene
    gate.result().claim()
    take_back(keeper)
    assert keeper.said == []


def test_an_offer_that_was_not_claimed_is_taken_back(scene):
    keeper, holding, gate, again = scene
    take_back(keeper)
    assert not gate.result().claim()
    assert keeper.said == [("unclaimed", 7)]
    holding.again(again)
    assert keeper.said[1:] == [("ready", 7)]


def test_an_offer_that_is_made_before_its_caller_is_back_is_made_at_the_new_gate(scene):
    keeper, holding, _gate, again = scene
    take_back(keeper)
    holding.admitted(Permit(7, 1, 0.5))  # its permit ended meanwhile, so that it queued by itself
    holding.again(again)
    assert again.result().permit.waited == 0.5
    assert again.result().claim()


def test_an_offer_is_given_back_unsent_when_its_caller_left_without_it(scene):
    keeper, holding, _gate, _again = scene
    holding.end(Receipt("cancelled", 5))
    assert keeper.said == [("settle", 7)]
    take_back(keeper)
    holding.end(UNSENT)
    assert keeper.said == [("settle", 7)]


def test_a_caller_that_is_back_too_late_finds_nothing_to_do(scene):
    keeper, holding, _gate, again = scene
    holding.end(UNSENT)
    said = list(keeper.said)
    holding.again(again)
    assert keeper.said == said


def test_leaving_twice_while_a_call_inside_runs_is_leaving_once(keeper, permit):
    block = permit()
    with block:
        call = Probe(keeper).submit()
        call.wait()
        lender = keeper.call(lambda _core, _now: keeper._works[block.ticket][0])
    keeper.call(lambda _core, _now: lender.end(UNSENT))
    call.end(Receipt("ok", 1, 2))
    settled = keeper.call(lambda _core, _now: [line.event for line in keeper.journal][-1])
    assert settled.receipt == Receipt("ok", 1, 2)


def test_what_is_told_of_calls_that_are_not_inside_changes_nothing(keeper, permit):
    with permit() as block:
        lender = keeper.call(lambda _core, _now: keeper._works[block.ticket][0])

        def tell(_core, _now):
            lender.progressed(99, 1)
            lender.returned(99, Receipt())
            lender.pushed_back(99, 429, None)
            lender.unclaimed(99)
            lender.ready(99)
            lender.left(99)
            assert lender.place(99) is None

        keeper.call(tell)
        assert keeper.snapshot().in_flight == 1
