"""Who goes first, over a real keeper: the order of a lane, and the guard of the later level."""

from __future__ import annotations

import asyncio
import random
import threading

from fairq_ipy.core.model import Level, Limits, Policy, Receipt, Ticket
from fairq_ipy.testing import FakeClock

from .conftest import Probe, books, eventually, taken


class Ordered(Probe):
    def __init__(self, keeper, order):
        super().__init__(keeper)
        self.order = order

    def admitted(self, permit):
        self.order.append(self.ticket)
        self.keeper.settle(self.ticket, Receipt())
        self.gate.resolve(permit)


def test_two_hundred_calls_of_one_level_under_a_frozen_clock_go_in_order(make_keeper):
    keeper = make_keeper(clock=FakeClock())
    order: list[int] = []
    with taken(keeper):
        calls = [Ordered(keeper, order).submit() for _ in range(200)]
    for call in calls:
        call.wait()
    assert order == [call.ticket for call in calls]


def test_calls_of_many_threads_and_tasks_keep_the_order_in_which_they_came(make_keeper, crew):
    keeper = make_keeper(clock=FakeClock())
    order: list[int] = []
    came: list[int] = []
    lock = threading.Lock()

    def submit():
        call = Ordered(keeper, order)
        with lock:  # the order of coming is only known where it is decided one by one
            call.submit()
            came.append(call.ticket)
        return call

    async def task():
        submit()
        await asyncio.sleep(0)

    async def cell():
        await asyncio.gather(*(task() for _ in range(50)))

    with taken(keeper):
        for _ in range(3):
            crew.start(lambda: [submit() for _ in range(50)])
        crew.start(asyncio.run, cell())
        crew.join()
        eventually(lambda: books(keeper) == (1, 200))
    eventually(lambda: len(order) == 200)
    assert order == came


def test_a_cancelled_call_does_not_change_the_order_of_the_others(make_keeper):
    keeper = make_keeper(clock=FakeClock())
    order: list[int] = []
    dice = random.Random(3)
    with taken(keeper):
        calls = [Ordered(keeper, order).submit() for _ in range(100)]
        gone = set(dice.sample([call.ticket for call in calls], 30))
        for number in gone:
            keeper.cancel(number)
    eventually(lambda: len(order) == 70)
    assert order == [call.ticket for call in calls if call.ticket not in gone]


def test_sooner_levels_go_first_and_zero_is_the_soonest(make_keeper):
    keeper = make_keeper(clock=FakeClock())
    order: list[int] = []
    with taken(keeper):
        level_of = {Ordered(keeper, order).submit(level=level).ticket: level for level in (9, 1, 0, 5, 0)}
    eventually(lambda: len(order) == 5)
    assert [level_of[number] for number in order] == [0, 0, 1, 5, 9]


def test_one_late_call_under_an_endless_flood_of_sooner_ones_goes_within_the_bound(make_keeper):
    clock = FakeClock()
    keeper = make_keeper(
        Policy(
            limits=Limits(1, queue=None),
            levels=(Level(1, "high"), Level(2, "low")),
            starve_after=30.0,
            headroom_for=0.0,
        ),
        clock=clock,
    )
    service = 2.0
    flooding = True

    class Flood(Probe):
        """Asks again as soon as it goes, so that somebody of the sooner level always waits."""

        def admitted(self, permit):
            if not flooding:
                keeper.settle(permit.ticket, Receipt())
                return
            again = keeper.next_id()
            keeper.enqueue(self, Ticket(again, "high", 1))
            keeper.loop.call_soon(self.over, permit.ticket)

        def over(self, number):
            clock.advance(service)
            keeper.settle(number, Receipt())

    for _ in range(3):
        Flood(keeper).submit("high", 1)
    late = Probe(keeper).submit("low", 2)
    assert late.wait().waited <= 30.0 + service
    flooding = False
    late.end()
    eventually(lambda: books(keeper) == (0, 0))
