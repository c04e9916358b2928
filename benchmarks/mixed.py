"""A hundred mixed requests from five developers, over real HTTP, without the queue and with it, as `fairq demo` does.

The demo's fast form, in which all times are a third, with another seed for each repetition.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from benchmarks.measure import COUNTED, WALL, Scale, ratio, spread
from benchmarks.rows import Line, Row, Target
from fairq_ipy.demo.experiment import play
from fairq_ipy.demo.results import Experiment, Run


def mixed(scale: Scale) -> Iterator[Line]:
    """Yield refusals, failures, wrong answers, makespan and interactive waits."""
    played = [play(fast=True, seed=seed) for seed in range(scale.of(5, 2))]
    coordinated = [each.coordinated for each in played]
    alone = [each.uncoordinated for each in played]
    runs = f"{len(played)} runs of 100 requests, 2 slots"

    def counted(what: str, ours: list[int], theirs: list[int], target: Target | None = None) -> Line:
        detail = f"{sum(ours)} / {sum(theirs)} without the queue"
        return Line.of(f"{runs}: {what}", spread(ours), unit="", clock=COUNTED, target=target, detail=detail)

    yield counted("429s", [run.refused_429 for run in coordinated], [run.refused_429 for run in alone], Target(0))
    yield counted("failures", [run.failed for run in coordinated], [run.failed for run in alone], Target(0))
    yield counted("wrong answers", [run.wrong for run in coordinated], [run.wrong for run in alone], Target(0))
    yield _bound(f"{runs}: makespan against the capacity bound", played, coordinated, Target(1.01))
    yield _bound("the same without the queue, which leaves out what failed", played, alone, None)
    waits, others = [run.wait_s(0.95) for run in coordinated], [run.wait_s(0.95) for run in alone]
    yield Line.of(
        "interactive wait p95, with the queue against without",
        ratio(waits, others),
        clock=WALL,
        detail=f"{median(waits):.2f} s / {median(others):.2f} s",
    )


def _bound(what: str, played: list[Experiment], runs: list[Run], target: Target | None) -> Line:
    makespans, bounds = [run.makespan_s for run in runs], [each.bound_s for each in played]
    detail = f"{median(makespans):.2f} s / {median(bounds):.2f} s"
    return Line.of(what, ratio(makespans, bounds), clock=WALL, target=target, detail=detail)


ROWS = (Row("mixed", "100 mixed requests, 5 clients, 2 slots", mixed),)
