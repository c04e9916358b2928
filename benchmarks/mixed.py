"""A hundred mixed requests from five developers, over real HTTP, without the queue and with it, as `fairq demo` does.

The runs with the queue have the demo's own speed, those without are its fast form, in which all times are a third; what
is a time is therefore compared in units of the bound. Another seed for each repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.measure import COUNTED, WALL, Scale, ratio, spread
from benchmarks.rows import Line, Row, Target
from fairq_ipy.demo import endpoint
from fairq_ipy.demo.clients import Governed, Stock
from fairq_ipy.demo.experiment import FAST, SLOTS, SPEED, play_run
from fairq_ipy.demo.results import Run
from fairq_ipy.demo.workload import bound, workload


@dataclass(frozen=True, slots=True)
class Played:
    """One run, and the least makespan that its jobs could have."""

    run: Run
    bound_s: float


def mixed(scale: Scale) -> Iterator[Line]:
    """Yield refusals, failures, wrong answers, makespan and interactive waits."""
    ours, alone = [], []
    for seed in range(scale.of(scale.few, 2)):
        ours.append(_played(seed, coordinated=True, fast=scale.quick))
        alone.append(_played(seed, coordinated=False, fast=True))
    runs = f"{len(ours)} runs of 100 requests, {SLOTS} slots"
    counts: tuple[tuple[str, Callable[[Run], int]], ...] = (
        ("429s", lambda run: run.refused_429),
        ("failures", lambda run: run.failed),
        ("wrong answers", lambda run: run.wrong),
    )
    for what, count in counts:
        yield Line.of(
            f"{runs}: {what}",
            spread([count(each.run) for each in ours]),
            unit="",
            clock=COUNTED,
            target=Target(0),
            detail=f"in all {sum(count(each.run) for each in ours)}, without the queue "
            f"{sum(count(each.run) for each in alone)}",
        )
    yield _makespan(f"{runs}: makespan against the capacity bound", ours, Target(1.01))
    yield _makespan("the same without the queue, which leaves out what failed", alone, None)
    waits, others = ([each.run.wait_s(0.95) / each.bound_s for each in side] for side in (ours, alone))
    yield Line.of(
        "interactive wait p95, with the queue against without",
        ratio(waits, others),
        clock=WALL,
        detail=f"{median(waits):.2%} / {median(others):.2%} of the bound",
    )


def _makespan(what: str, played: Sequence[Played], target: Target | None) -> Line:
    makespans, bounds = [each.run.makespan_s for each in played], [each.bound_s for each in played]
    detail = f"{median(makespans):.2f} s / {median(bounds):.2f} s"
    return Line.of(what, ratio(makespans, bounds), clock=WALL, target=target, detail=detail)


def _played(seed: int, *, coordinated: bool, fast: bool) -> Played:
    scale = 1 / FAST if fast else 1.0
    speed = SPEED / scale
    jobs = workload(seed, speed=speed, slots=SLOTS)
    with endpoint.start(concurrency=SLOTS, speed=speed, seed=seed) as server:
        url = server.base_url
        if coordinated:
            run = play_run("coordinated", jobs, server, Governed(url, slots=SLOTS), lambda _: None)
        else:
            run = play_run("uncoordinated", jobs, server, Stock(url, scale=scale, seed=seed), lambda _: None)
    return Played(run, bound(jobs, SLOTS))


ROWS = (Row("mixed", "100 mixed requests, 5 clients, 2 slots", mixed),)
