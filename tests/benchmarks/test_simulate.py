"""The simulation: what the rows about fairness stand on."""

from __future__ import annotations

import random

import pytest

from benchmarks.fairness import drift
from benchmarks.orders import Fifo, PriorityHeap, RoundRobin
from benchmarks.simulate import (
    Agent,
    Backlog,
    Call,
    CoreOrder,
    Simulation,
    SlotOrder,
    jain,
    lognormal,
    percentile,
    served,
)
from fairq_ipy.core.model import Limits, Policy


def fixed(source: random.Random) -> tuple[int, int]:
    del source
    return 100, 50


def rules(slots: int, headroom_for: float = 0.0) -> Policy:
    return Policy(limits=Limits(concurrency=slots, queue=None), headroom_for=headroom_for)


def most_at_once(simulation: Simulation) -> int:
    steps = [(call.began, 1) for call in simulation.calls.values() if call.began is not None]
    steps += [(call.ended, -1) for call in simulation.ended if call.ended is not None]
    running = most = 0
    for _, step in sorted(steps):
        running += step
        most = max(most, running)
    return most


def test_a_call_takes_its_first_token_and_its_tokens() -> None:
    simulation = Simulation(SlotOrder(Fifo(), 1), first_token=0.4, speed=50.0)
    call = simulation.ask("a", (100, 50))
    simulation.run(until=10.0)
    assert call.latency == pytest.approx(1.4)


def test_a_call_that_has_not_ended_has_no_end() -> None:
    simulation = Simulation(SlotOrder(Fifo(), 1))
    call = simulation.ask("a", (100, 5000))
    simulation.run(until=10.0)
    assert call.ended is None
    assert served(call, 10.0) == pytest.approx(100 + 2 * 50.0 * 9.6)


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_no_more_calls_run_than_there_are_slots(slots: int) -> None:
    for order in (CoreOrder(rules(slots)), SlotOrder(RoundRobin(), slots)):
        simulation = Simulation(order)
        Backlog(simulation, "a", depth=10, sizes=lognormal(100), seed=1)
        Backlog(simulation, "b", depth=10, sizes=lognormal(100), seed=1)
        simulation.run(until=600.0)
        assert most_at_once(simulation) == slots


def test_a_tenant_asks_for_the_same_whatever_the_order() -> None:
    asked = []
    for order in (CoreOrder(rules(2)), SlotOrder(Fifo(), 2), SlotOrder(PriorityHeap(), 2)):
        simulation = Simulation(order)
        Backlog(simulation, "a", depth=5, sizes=lognormal(100), seed=3)
        Backlog(simulation, "b", depth=5, sizes=lognormal(300), seed=3)
        simulation.run(until=300.0)
        asked.append([(call.prompt, call.output) for call in simulation.calls.values() if call.tenant == "b"][:20])
    assert asked[0] == asked[1] == asked[2]


def test_an_agent_alone_never_waits() -> None:
    simulation = Simulation(CoreOrder(rules(2, headroom_for=60.0)))
    Agent(simulation, "a", think=5.0, sizes=fixed, seed=1)
    simulation.run(until=600.0)
    assert {round(call.latency, 6) for call in simulation.ended} == {1.4}


def test_the_core_is_woken_when_headroom_ends() -> None:
    simulation = Simulation(CoreOrder(rules(2, headroom_for=60.0)))
    simulation.ask("other", (100, 50))
    Backlog(simulation, "a", depth=5, sizes=lambda _: (100, 100_000), seed=1)
    simulation.run(until=100.0)
    begun = sorted(call.began for call in simulation.calls.values() if call.tenant == "a" and call.began is not None)
    assert begun == [0.0, pytest.approx(61.4)]


def test_the_plain_priority_heap_serves_the_sooner_level_first() -> None:
    simulation = Simulation(SlotOrder(PriorityHeap(), 1))
    calls = [simulation.ask("a", (1, 10), level=level) for level in (1, 3, 2, 1)]
    simulation.run(until=60.0)
    assert simulation.ended == [calls[0], calls[3], calls[2], calls[1]]


def test_round_robin_takes_tenants_in_turn() -> None:
    simulation = Simulation(SlotOrder(RoundRobin(), 1))
    for tenant in "aaabb":
        simulation.ask(tenant, (1, 10))
    simulation.run(until=60.0)
    assert "".join(call.tenant for call in simulation.ended) == "aabab"


def test_jain_is_one_for_even_shares_and_one_nth_for_a_single_winner() -> None:
    assert jain([5.0, 5.0, 5.0]) == 1.0
    assert jain([9.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert jain([0.0, 0.0]) == 0.0


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 95) == 95.0
    assert percentile([7.0], 95) == 7.0
    assert percentile([], 95) == float("inf")


def test_drift_is_the_lead_of_one_tenant_at_its_furthest() -> None:
    def ran(tenant: str, began: float) -> Call:
        return Call(1, tenant, 1, 100, 50, 0, 0.0, began=began, first_token=began, ended=began + 1.0)

    # Each call is worth 100 + 2 * 50 = 200: one of "a", then two of "b", then one of "a".
    calls = [ran("a", 0.0), ran("b", 1.0), ran("b", 2.0), ran("a", 3.0)]
    assert drift(calls, "a", 10.0) == (-200.0, 200.0)
    assert drift(calls, "a", 1.5) == (0.0, 200.0)
