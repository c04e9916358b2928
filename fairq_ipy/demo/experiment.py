"""The experiment: the same 100 requests twice over real HTTP, without the queue and with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Final, Literal, NamedTuple, TypeAlias

from fairq_ipy.demo import endpoint
from fairq_ipy.demo.books import Entry
from fairq_ipy.demo.clients import Answer, Calls, Governed, Stock
from fairq_ipy.demo.endpoint import DemoServer
from fairq_ipy.demo.results import Experiment, Run, Trace
from fairq_ipy.demo.workload import DEVELOPERS, Job, bound, workload

__all__ = ["Mode", "Progress", "play", "play_run"]

Mode: TypeAlias = Literal["uncoordinated", "coordinated"]

SLOTS: Final = 2
SPEED: Final = 10.0
"""The endpoint is this much faster than a small model, so that 100 answers fit into a quarter of a minute."""
FAST: Final = 2.5
"""What ``fast`` divides all times by: services, arrivals, and the waits before a retry."""

_WORKERS: Final = 2
"""Threads of a developer's batch script."""
_TICK: Final = 0.1


class Progress(NamedTuple):
    """How far a run is: jobs that are over, of how many, 429s so far, seconds since its start; told once when over."""

    mode: Mode
    done: int
    total: int
    refused: int
    seconds: float
    over: bool = False


def play(*, fast: bool = False, seed: int = 0, progress: Callable[[Progress], None] = lambda _: None) -> Experiment:
    """Play both runs, one after the other, each on an endpoint of its own.

    Args:
        fast: make all times shorter, for a run of a few seconds.
        seed: another seed gives other work of the same kind.
        progress: told about ten times a second how far it is, on the caller's thread.

    Returns:
        Both runs.

    Raises:
        ConfigurationError: when the endpoint cannot be started.
    """
    scale = 1 / FAST if fast else 1.0
    speed = SPEED / scale
    jobs = workload(seed, speed=speed, slots=SLOTS)

    def run(mode: Mode, clients: Callable[[str], Calls]) -> Run:
        with endpoint.start(concurrency=SLOTS, speed=speed, seed=seed) as server:
            return play_run(mode, jobs, server, clients(server.base_url), progress)

    return Experiment(
        uncoordinated=run("uncoordinated", lambda url: Stock(url, scale=scale, seed=seed)),
        coordinated=run("coordinated", lambda url: Governed(url, slots=SLOTS)),
        bound_s=bound(jobs, SLOTS),
        slots=SLOTS,
    )


def play_run(
    mode: Mode, jobs: Sequence[Job], server: DemoServer, calls: Calls, progress: Callable[[Progress], None]
) -> Run:
    """Let five developers do `jobs` through `calls`, each job at its time; closes `calls`.

    A developer's batch script has a few threads; a review is asked for at the moment it is wanted. Whatever ends this
    early, an interrupt included, ends the clients too.
    """
    with ExitStack() as ending:
        desks = {name: ThreadPoolExecutor(_WORKERS, f"demo-{name}-batch") for name in DEVELOPERS}
        reviews = ThreadPoolExecutor(len(jobs), "demo-review")
        for pool in (*desks.values(), reviews):
            ending.callback(pool.shutdown, cancel_futures=True)
        ending.callback(calls.close)
        calls.greet()
        start = time.monotonic()

        def work(job: Job) -> tuple[Answer, float]:
            return calls.call(job), time.monotonic() - start

        futures: list[Future[tuple[Answer, float]]] = []

        def tell(*, over: bool = False) -> None:
            done = sum(future.done() for future in futures)
            seconds = time.monotonic() - start
            progress(Progress(mode, done, len(jobs), server.stats().refused_429, seconds, over))

        for job in jobs:
            while (ahead := start + job.wanted - time.monotonic()) > 0:
                time.sleep(min(ahead, _TICK))
                tell()
            pool = desks[job.developer] if job.kind == "batch" else reviews
            futures.append(pool.submit(work, job))
        while wait(futures, timeout=_TICK).not_done:
            tell()
        tell(over=True)
        log = server.stats().log
        return Run(tuple(_trace(job, *future.result(), log, start) for job, future in zip(jobs, futures, strict=True)))


def _trace(job: Job, answer: Answer, ended: float, log: Sequence[Entry], start: float) -> Trace:
    """Put together what the client and the endpoint know of one job."""
    entries = [entry for entry in log if entry.mark == job.mark]
    served = next((entry for entry in entries if entry.started is not None), None)
    return Trace(
        job=job,
        refused=tuple(entry.arrived - start for entry in entries if entry.outcome == "refused"),
        started=None if served is None or served.started is None else served.started - start,
        served=None if served is None or served.ended is None else served.ended - start,
        ended=ended,
        sent=answer.sent,
        answered=answer.text is not None,
        right=answer.text == job.answer,
    )
