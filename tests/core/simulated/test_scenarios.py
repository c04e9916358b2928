"""The promises to people, played through: what a flood, a batch or a runaway costs its neighbours."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest

from fairq_ipy.core.model import Level, Stall, TenantPolicy


def p95(values: Iterable[float]) -> float:
    """Return the 95th percentile."""
    ordered = sorted(values)
    return ordered[int(0.95 * (len(ordered) - 1))]


def jain(shares: Iterable[float]) -> float:
    """Return Jain's index of fairness: 1 when all got the same, 1/n when one got all."""
    values = list(shares)
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def lengths(seed: int, low: int, high: int) -> Callable[[Any], tuple[float, int]]:
    """Return a server whose answers have a random length that nobody knows beforehand, at 50 tokens a second."""
    chance = random.Random(seed)
    known: dict[int, int] = {}

    def serve(ticket: Any) -> tuple[float, int]:
        output = known.setdefault(ticket.id, chance.randint(low, high))
        return 0.2 + output / 50.0, output

    return serve


def keep_asking(world: Any, tenant: str, count: int, **ticket: Any) -> None:
    """Let a tenant have `count` calls under way at any time."""
    before = world.on_done

    def again(done: Any) -> None:
        before(done)
        if done.tenant == tenant:
            world.submit(tenant, **ticket)

    world.on_done = again
    for _ in range(count):
        world.submit(tenant, **ticket)


def keep_thinking(world: Any, tenant: str, pause: float, seed: int, until: float, **ticket: Any) -> None:
    """Let a tenant ask one thing at a time, with pauses of a random length."""
    chance = random.Random(seed)
    before = world.on_done

    def ask() -> None:
        if world.now < until:
            world.submit(tenant, **ticket)

    def again(done: Any) -> None:
        before(done)
        if done.tenant == tenant:
            world.at(world.now + chance.expovariate(1 / pause), ask)

    world.on_done = again
    world.at(0.0, ask)


# ------------------------------------------------------------------------------------------------------- fair shares


@pytest.mark.parametrize("cap", [1, 2, 4])
def test_beside_a_flooder_and_with_unknown_costs_everybody_gets_the_same_tokens(world, rules, cap):
    made = world(rules(concurrency=cap, queue=None, headroom_for=0), lengths(1, 150, 250))
    keep_asking(made, "flooder", 300, prompt_tokens=50)
    for tenant in "abcd":
        keep_asking(made, tenant, cap + 1, prompt_tokens=50)
    made.run(4000.0 / cap)
    assert jain(made.tokens.values()) >= 0.999


@pytest.mark.parametrize("chunks", [0, 10])
def test_with_useless_estimates_the_shares_still_are_nearly_the_same(world, rules, chunks):
    made = world(rules(concurrency=2, queue=None, headroom_for=0), lengths(2, 1, 2000), chunks=chunks)
    keep_asking(made, "flooder", 300, prompt_tokens=10, max_tokens=4000)
    for tenant in "abcd":
        keep_asking(made, tenant, 3, prompt_tokens=10, max_tokens=4000)
    made.run(6000.0)
    assert jain(made.tokens.values()) >= 0.98


def test_whose_answers_are_long_gets_as_many_tokens_as_whose_are_short(world, rules):
    long_ones, short_ones = lengths(3, 900, 1100), lengths(4, 40, 60)

    def serve(ticket: Any) -> tuple[float, int]:
        return (long_ones if ticket.tenant == "long" else short_ones)(ticket)

    made = world(rules(concurrency=2, queue=None, headroom_for=0), serve)
    for tenant in ("long", "short"):
        keep_asking(made, tenant, 3)
    made.run(6000.0)
    assert jain(made.tokens.values()) >= 0.999


def test_weights_are_shares_of_the_tokens(world, rules):
    weights = {"a": TenantPolicy(weight=4.0), "b": TenantPolicy(weight=2.0), "c": TenantPolicy(weight=1.0)}
    made = world(rules(concurrency=2, queue=None, headroom_for=0, tenants=weights), lengths(5, 50, 400))
    for tenant in weights:
        keep_asking(made, tenant, 20)
    made.run(6000.0)
    assert jain(made.tokens[tenant] / rule.weight for tenant, rule in weights.items()) >= 0.999


# ------------------------------------------------------------------------------------------------- bounded waiting


@pytest.mark.parametrize("cap", [1, 2, 3])
def test_one_low_call_under_an_endless_flood_waits_the_bound_and_one_service_at_most(world, rules, cap):
    made = world(rules(concurrency=cap, queue=None, starve_after=30.0, headroom_for=0), lengths(6, 100, 600))
    keep_asking(made, "flood", 50, level=1)
    made.at(3.0, lambda: made.submit("low", 9))
    made.run(400.0)
    longest_service = 0.2 + 600 / 50
    assert len(made.waits["low"]) == 1
    assert made.waits["low"][0] <= 30.0 + longest_service


def test_every_level_of_a_stack_of_floods_is_served_again_and_again(world, rules):
    made = world(rules(concurrency=2, queue=None, starve_after=30.0, headroom_for=0), lengths(7, 100, 400))
    for level in (0, 1, 5, 9):
        keep_asking(made, f"level {level}", 20, level=level)
    made.run(1000.0)
    for level in (0, 1, 5, 9):
        times = [0.0, *made.went[f"level {level}"], 1000.0]
        # Three levels may be late at the same moment.
        assert max(late - early for early, late in pairwise(times)) <= 30.0 + 3 * (0.2 + 400 / 50)


def test_a_healthy_tenant_beside_a_runaway_waits_as_if_alone(world, rules):
    def healthy(runaway: bool, headroom_for: float) -> float:
        made = world(rules(concurrency=2, queue=None, headroom_for=headroom_for), lengths(8, 50, 250))
        keep_thinking(made, "healthy", 2.0, 9, until=3000.0)
        if runaway:
            made.at(0.5, lambda: keep_asking(made, "runaway", 100))
        made.run(3000.0)
        return p95(made.took["healthy"])

    alone = healthy(runaway=False, headroom_for=60.0)
    assert healthy(runaway=True, headroom_for=60.0) <= 1.05 * alone
    assert healthy(runaway=True, headroom_for=0.0) > 1.2 * alone, "the scene is too easy to prove anything"


def test_interactive_calls_beside_a_batch_wait_as_if_alone_when_one_slot_is_reserved(world, rules):
    def interactive(batch: bool, reserve: int) -> float:
        levels = (Level(1, "interactive", reserve=reserve), Level(2, "batch"))
        made = world(rules(concurrency=2, queue=None, levels=levels), lengths(10, 50, 250))
        keep_thinking(made, "person", 2.0, 11, until=3000.0, level=1)
        if batch:
            for tenant in ("logs", "notes"):
                keep_asking(made, tenant, 50, level=2)
        made.run(3000.0)
        return p95(made.took["person"])

    alone = interactive(batch=False, reserve=1)
    assert interactive(batch=True, reserve=1) <= 1.1 * alone
    assert interactive(batch=True, reserve=0) > 1.2 * alone, "the scene is too easy to prove anything"


def test_the_runaway_is_the_one_that_is_stopped_within_its_threshold(world, rules):
    made = world(rules(concurrency=2, queue=None, stall=Stall(5, 3)), lengths(12, 50, 250))
    settled = made.answer

    def answer(ticket: Any, output: int) -> Any:
        receipt = settled(ticket, output)
        return receipt._replace(chars=0) if ticket.tenant == "runaway" else receipt

    made.answer = answer
    keep_asking(made, "runaway", 10)
    keep_thinking(made, "healthy", 2.0, 13, until=200.0)
    made.run(300.0)
    shown = made.scheduler.snapshot(made.now).tenants
    assert (shown["runaway"].state, shown["healthy"].state) == ("stalled", "idle")
    assert len(made.took["runaway"]) <= 3 + 1
    assert len(made.took["healthy"]) > 20


# ---------------------------------------------------------------------------------------------------- no time wasted


def test_mixed_calls_of_five_clients_end_when_the_slots_can_end_them(world, rules):
    serve = lengths(14, 50, 400)
    made = world(rules(concurrency=2, queue=None, headroom_for=0), serve)
    seconds = 0.0
    for number in range(100):
        level = 1 if number % 4 == 0 else 2
        ticket = made.submit(f"client {number % 5}", level, prompt_tokens=100)
        seconds += serve(made.tickets[ticket])[0]
    made.run()
    assert len(made.order) == 100
    assert made.now <= 1.01 * (seconds / 2) + 4.1


def test_nothing_waits_beside_a_free_slot_at_any_time(world, rules):
    made = world(rules(concurrency=3, queue=None, headroom_for=0), lengths(15, 10, 400))

    def look() -> None:
        shown = made.scheduler.snapshot(made.now)
        assert shown.queued == 0 or shown.in_flight == 3

    made.on_step = look
    chance = random.Random(16)
    for _ in range(150):
        made.at(chance.uniform(0.0, 200.0), lambda: made.submit(chance.choice("abc"), chance.randint(0, 9)))
    made.run()
    assert len(made.order) == 150
