"""Who gets how much, and who waits for whom: simulated, on the real core.

Nothing here depends on the machine. Each value is the median over seeds, shown with its range over them; within one
seed every order of service gets the same calls.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from statistics import median

from benchmarks.measure import SIMULATED, Scale, ratio, spread
from benchmarks.orders import Fifo, PriorityHeap, RoundRobin
from benchmarks.rows import Line, Row, Target
from benchmarks.simulate import (
    OUTPUT_WEIGHT,
    PROMPT_WEIGHT,
    Agent,
    Backlog,
    Call,
    CoreOrder,
    Order,
    Simulation,
    Sizes,
    SlotOrder,
    jain,
    lognormal,
    percentile,
    served,
)
from fairq_ipy.core.fairness import Estimates
from fairq_ipy.core.model import Level, Limits, Policy, Stall, TenantPolicy

SPEED = 50.0
"""Tokens of one answer per simulated second, everywhere in this file."""

MakeOrder = Callable[[], Order]


def policy(slots: int, *, headroom_for: float = 60.0, reserve: int = 0) -> Policy:
    """Return default rules with so many slots, and `reserve` of them for interactive calls."""
    levels = (Level(1, "interactive", reserve), Level(2, "batch"))
    return Policy(limits=Limits(concurrency=slots, queue=None), levels=levels, headroom_for=headroom_for)


class Useless(Estimates):
    """Estimates that know nothing: any number, whatever came before."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def expect(self, tenant: str, model: str, max_tokens: int | None) -> float:
        del tenant, model, max_tokens
        return self._random.uniform(1, 4000)


# ------------------------------------------------------------------------------------------------------ shares


def shares(scale: Scale) -> Iterator[Line]:
    """Yield how evenly four tenants are served when one of them floods the queue with long answers."""
    seeds, hours = range(scale.repetitions), scale.of(3, 1)

    def over_seeds(make: Callable[[int], Order], *, stream_every: float | None = 1.0) -> list[float]:
        return [_jain(make(seed), seed, hours * 3600.0, stream_every) for seed in seeds]

    def useless(seed: int) -> Order:
        order = CoreOrder(policy(4))
        order.scheduler._queue.estimates = Useless(seed)
        return order

    flood = "4 tenants, one floods with answers 4 times as long"
    yield Line.of(
        f"Jain's index of served cost, {flood}, cost unknown",
        spread(over_seeds(lambda _: CoreOrder(policy(4)))),
        unit="",
        clock=SIMULATED,
        target=Target(0.999, "at least"),
    )
    yield Line.of(
        "the same, every estimate useless",
        spread(over_seeds(useless)),
        unit="",
        clock=SIMULATED,
        target=Target(0.98, "at least"),
    )
    yield Line.of(
        "the same, every estimate useless and nothing streamed",
        spread(over_seeds(useless, stream_every=None)),
        unit="",
        clock=SIMULATED,
    )
    for name, queue in (("FIFO", Fifo), ("a plain priority heap", PriorityHeap), ("round robin", RoundRobin)):
        values = over_seeds(lambda _, queue=queue: SlotOrder(queue(), 4))  # type: ignore[misc]
        yield Line.of(f"the same, {name}", spread(values), unit="", clock=SIMULATED)


def _jain(order: Order, seed: int, seconds: float, stream_every: float | None) -> float:
    simulation = Simulation(order, speed=SPEED, stream_every=stream_every)
    for number in range(3):
        Backlog(simulation, f"tenant-{number}", depth=5, sizes=lognormal(150), seed=seed)
    Backlog(simulation, "flooder", depth=200, sizes=lognormal(600, most=4000), seed=seed)
    warm = seconds / 20
    simulation.run(until=seconds)
    got = dict.fromkeys((call.tenant for call in simulation.calls.values()), 0.0)
    for call in simulation.calls.values():
        got[call.tenant] += served(call, seconds, SPEED) - served(call, warm, SPEED)
    return jain(list(got.values()))


# --------------------------------------------------------------------------------------------------------- the gap


def gap(scale: Scale) -> Iterator[Line]:
    """Yield how far two backlogged tenants drift apart, in units of the largest request."""
    seeds, hours = range(scale.of(20, 10)), scale.of(2, 1)

    def over_seeds(make: MakeOrder) -> tuple[list[float], list[float]]:
        both = [_gap(make(), seed, hours * 3600.0) for seed in seeds]
        return [since for since, _ in both], [anywhere for _, anywhere in both]

    def lines(what: str, gaps: list[float], usual: float | None, worst: float | None, note: str = "") -> Iterator[Line]:
        for name, values, bound in ((what, gaps, usual), (f"{what}, worst of {len(seeds)} seeds", [max(gaps)], worst)):
            target = None if bound is None else Target(bound)
            yield Line.of(name, spread(values), unit="requests", clock=SIMULATED, target=target, note=note)

    since, anywhere = over_seeds(lambda: CoreOrder(policy(2, headroom_for=0.0)))
    yield from lines("since both began, two slots, no headroom", since, 1.0, 1.5)
    yield from lines("over any interval, two slots, no headroom", anywhere, None, 2.0)
    since, _ = over_seeds(lambda: CoreOrder(policy(4)))
    yield from lines("since both began, four slots, default rules", since, 1.0, 1.5)
    since, _ = over_seeds(lambda: CoreOrder(policy(2)))
    note = "headroom gives each of two tenants one of two slots, whatever their answers cost"
    yield from lines("since both began, two slots, default rules", since, None, None, note)
    since, _ = over_seeds(lambda: SlotOrder(RoundRobin(), 2))
    yield from lines("since both began, two slots, round robin", since, None, None, "grows for as long as both ask")


def _gap(order: Order, seed: int, seconds: float) -> tuple[float, float]:
    simulation = Simulation(order, speed=SPEED, stream_every=1.0)
    Backlog(simulation, "short", depth=20, sizes=lognormal(100), seed=seed)
    Backlog(simulation, "long", depth=20, sizes=lognormal(500), seed=seed)
    simulation.run(until=seconds)
    begun = [call for call in simulation.calls.values() if call.began is not None]
    largest = max(call.cost for call in begun)
    lowest, highest = drift(begun, "short", seconds)
    return max(highest, -lowest) / largest, (highest - lowest) / largest


def drift(calls: Iterable[Call], first: str, until: float) -> tuple[float, float]:
    """Return the least and the greatest lead in served cost of tenant `first` over the rest, since the beginning.

    Served cost rises by a step when a call begins and evenly while it streams, so its extremes are at those points.
    The greatest difference over any interval is what lies between the two.
    """
    changes: list[tuple[float, float, float]] = []
    for call in calls:
        sign = 1.0 if call.tenant == first else -1.0
        slope = sign * OUTPUT_WEIGHT * SPEED
        changes.append((call.began or 0.0, sign * PROMPT_WEIGHT * call.prompt, 0.0))
        changes.append((call.first_token, 0.0, slope))
        changes.append((call.first_token + call.output / SPEED, 0.0, -slope))
    at = lead = slope = lowest = highest = 0.0
    for time, step, bend in sorted(changes):
        if time > until:
            break
        lead += slope * (time - at)
        lowest, highest = min(lowest, lead), max(highest, lead)
        lead += step
        lowest, highest = min(lowest, lead), max(highest, lead)
        slope += bend
        at = time
    return lowest, highest


# --------------------------------------------------------------------------------------------- beside a runaway


def runaway(scale: Scale) -> Iterator[Line]:
    """Yield what an agent's answers take beside a runaway that always has 50 calls waiting, at two slots."""
    seeds, hours = range(scale.repetitions), scale.of(6, 2)

    def p95(make: MakeOrder, *, beside: bool = True, level: int = 1) -> list[float]:
        return [_healthy_p95(make(), seed, hours * 3600.0, beside=beside, level=level) for seed in seeds]

    alone = p95(lambda: CoreOrder(policy(2)), beside=False)
    headroom = p95(lambda: CoreOrder(policy(2)))
    fair = p95(lambda: CoreOrder(policy(2, headroom_for=0.0)))
    floor = p95(lambda: SlotOrder(PriorityHeap(), 2), level=0)
    fifo = p95(lambda: SlotOrder(Fifo(), 2))
    robin = p95(lambda: SlotOrder(RoundRobin(), 2))

    def line(what: str, ours: list[float], theirs: list[float], target: Target | None = None) -> Line:
        detail = f"{median(ours):,.1f} s / {median(theirs):,.1f} s"
        return Line.of(what, ratio(ours, theirs), clock=SIMULATED, target=target, detail=detail)

    yield line("p95 beside the runaway against alone, with headroom (the default)", headroom, alone, Target(1.05))
    yield line("the same without headroom, against what no order without preemption beats", fair, floor, Target(1.02))
    yield line("without headroom, against alone", fair, alone)
    yield line("round robin, against alone", robin, alone)
    yield line("FIFO or a plain priority heap, against alone", fifo, alone)


def _healthy_p95(order: Order, seed: int, seconds: float, *, beside: bool, level: int) -> float:
    simulation = Simulation(order, speed=SPEED)
    if beside:
        Backlog(simulation, "runaway", depth=50, sizes=lognormal(300), seed=seed)
    Agent(simulation, "healthy", think=5.0, sizes=lognormal(200), seed=seed, level=level)
    simulation.run(until=seconds)
    return _p95(simulation, "healthy")


def _p95(simulation: Simulation, tenant: str) -> float:
    return percentile([call.latency for call in simulation.ended if call.tenant.startswith(tenant)], 95)


def stall(scale: Scale) -> Iterator[Line]:
    """Yield how many empty answers a runaway gets before it is paused, and whether anybody else is."""
    rule = Stall(min_chars=5, threshold=3)
    rules = replace(policy(2), defaults=TenantPolicy(stall=rule))
    answers, others = [], []
    for seed in range(scale.repetitions):
        order = CoreOrder(rules)
        simulation = Simulation(order, speed=SPEED)
        Agent(simulation, "healthy", think=5.0, sizes=lognormal(200), seed=seed)
        Backlog(simulation, "runaway", depth=50, sizes=lognormal(20), seed=seed, chars=0)
        simulation.run(until=3600.0)
        paused_at = next((at for at, tenant in order.pauses if tenant == "runaway"), float("inf"))
        empty = [call for call in simulation.ended if call.tenant == "runaway" and (call.ended or 0.0) <= paused_at]
        answers.append(float(len(empty)))
        others.append(float(sum(tenant != "runaway" for _, tenant in order.pauses)))
    yield Line.of(
        "empty answers until the runaway is paused (threshold 3)",
        spread(answers),
        unit="answers",
        clock=SIMULATED,
        target=Target(rule.threshold),
    )
    yield Line.of("others paused", spread(others), unit="tenants", clock=SIMULATED, target=Target(0))


# --------------------------------------------------------------------------------------------- beside batch


def reserve(scale: Scale) -> Iterator[Line]:
    """Yield what people's answers take beside batch jobs that fill the queue, with one slot reserved."""
    seeds, hours = range(scale.repetitions), scale.of(5, 3)

    def p95(make: MakeOrder, people: int, *, batch: bool, level: int = 1) -> list[float]:
        return [_people_p95(make(), seed, hours * 3600.0, people=people, batch=batch, level=level) for seed in seeds]

    for slots, people, target in ((2, 1, Target(1.1)), (4, 3, Target(1.1))):
        load = f"{people} {'person' if people == 1 else 'people'} at {slots} slots"
        alone = p95(lambda slots=slots: CoreOrder(policy(slots)), people, batch=False)  # type: ignore[misc]
        orders: tuple[tuple[str, MakeOrder, Target | None], ...] = (
            ("one slot reserved", lambda slots=slots: CoreOrder(policy(slots, reserve=1)), target),  # type: ignore[misc]
            ("two slots reserved", lambda slots=slots: CoreOrder(policy(slots, reserve=2)), None),  # type: ignore[misc]
            ("no reserve, headroom only", lambda slots=slots: CoreOrder(policy(slots)), None),  # type: ignore[misc]
            ("a plain priority heap", lambda slots=slots: SlotOrder(PriorityHeap(), slots), None),  # type: ignore[misc]
        )
        for name, make, bound in orders:
            if name == "two slots reserved" and slots == 2:
                continue
            beside = p95(make, people, batch=True)
            yield Line.of(
                f"{load}: p95 beside batch against no batch, {name}",
                ratio(beside, alone),
                clock=SIMULATED,
                target=bound,
                detail=f"{median(beside):.1f} s / {median(alone):.1f} s",
            )


def _people_p95(order: Order, seed: int, seconds: float, *, people: int, batch: bool, level: int) -> float:
    simulation = Simulation(order, speed=SPEED)
    for number in range(people):
        Agent(simulation, f"person-{number}", think=30.0, sizes=lognormal(150), seed=seed, level=level)
    if batch:
        sizes: Sizes = lognormal(600)
        for number in range(2):
            Backlog(simulation, f"batch-{number}", depth=20, sizes=sizes, seed=seed, level=2)
    simulation.run(until=seconds)
    return _p95(simulation, "person")


ROWS = (
    Row("fairness", "Fairness with one flooder", shares),
    Row("gap", "Gap between two backlogged tenants", gap),
    Row("runaway", "A healthy tenant beside a runaway, two slots", runaway),
    Row("stall", "The runaway is the one that pauses", stall),
    Row("reserve", "Interactive calls beside batch", reserve),
)
