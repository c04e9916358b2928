"""The experiment: the same 100 requests twice over real HTTP, without the queue and with it.

What is measured, the same way in both runs:

- *sent*: requests that reached the endpoint; *refused_429*: those that it refused; *failed*: jobs that got no answer.
- *interactive wait*: from the moment a review is wanted to the moment the endpoint begins to serve it, by the
  endpoint's own log. One that was never served counts the time until its client gave up, which is less than it would
  have had to wait.
- *makespan*: from the start of the run until the last client has its answer, or has given up. A run with failures
  does less work, so its makespan is flattered.
- *bound*: the least makespan that any order could reach (`workload.bound`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from fairq_ipy.demo import endpoint
from fairq_ipy.demo.books import Entry
from fairq_ipy.demo.clients import Answer, Calls, Governed, Stock
from fairq_ipy.demo.endpoint import DemoServer
from fairq_ipy.demo.workload import DEVELOPERS, Job, bound, workload

__all__ = ["Experiment", "Mode", "Progress", "Run", "Trace", "play", "quantile"]

Mode: TypeAlias = Literal["uncoordinated", "coordinated"]

SLOTS: Final = 2
SPEED: Final = 12.0
"""The endpoint is this much faster than a small model, so that 100 answers fit into a quarter of a minute."""
FAST: Final = 3.5
"""What ``fast`` divides all times by: services, arrivals, and the waits before a retry."""

_WORKERS: Final = 3
"""Threads of a developer's batch script."""
_TICK: Final = 0.1


class Progress(NamedTuple):
    """How far a run is."""

    mode: Mode
    done: int
    total: int
    refused: int
    seconds: float


class Trace(NamedTuple):
    """What became of one job. Times are seconds after the start of its run.

    Attributes:
        job: what was wanted.
        refused: when each of its attempts was refused.
        started: when the endpoint began to serve it; ``None`` if it never did.
        served: when the endpoint had served it.
        ended: when its client had the answer, or gave up.
        sent: how often it was sent.
        answered: whether there was an answer.
        right: whether that was the answer to its own question.
    """

    job: Job
    refused: tuple[float, ...]
    started: float | None
    served: float | None
    ended: float
    sent: int
    answered: bool
    right: bool

    @property
    def wait(self) -> float:
        """Seconds from being wanted to being served; until it gave up, if it never was."""
        return (self.ended if self.started is None else self.started) - self.job.wanted


@dataclass(frozen=True, slots=True)
class Run:
    """One run of all jobs, in the order of their numbers."""

    traces: tuple[Trace, ...]

    @property
    def sent(self) -> int:
        """Requests that were sent."""
        return sum(trace.sent for trace in self.traces)

    @property
    def refused_429(self) -> int:
        """Requests that the endpoint refused."""
        return sum(len(trace.refused) for trace in self.traces)

    @property
    def failed(self) -> int:
        """Jobs without an answer."""
        return sum(not trace.answered for trace in self.traces)

    @property
    def wrong(self) -> int:
        """Answers that belong to another question."""
        return sum(trace.answered and not trace.right for trace in self.traces)

    @property
    def makespan_s(self) -> float:
        """Seconds until the last client was done."""
        return max(trace.ended for trace in self.traces)

    def wait_s(self, share: float) -> float:
        """Return that quantile of the interactive waits, in seconds."""
        return quantile([trace.wait for trace in self.traces if trace.job.kind == "interactive"], share)

    def as_dict(self) -> dict[str, float]:
        """Return the run's row of ``fairq demo --json``."""
        return {
            "sent": self.sent,
            "refused_429": self.refused_429,
            "failed": self.failed,
            "interactive_wait_p50_s": round(self.wait_s(0.5), 4),
            "interactive_wait_p95_s": round(self.wait_s(0.95), 4),
            "makespan_s": round(self.makespan_s, 4),
        }


@dataclass(frozen=True, slots=True)
class Experiment:
    """Both runs, and what could be reached at best.

    Attributes:
        uncoordinated: each client for itself, with retries.
        coordinated: all through one queue.
        bound_s: seconds that any order needs at least.
        slots: requests that the endpoint served at once.
    """

    uncoordinated: Run
    coordinated: Run
    bound_s: float
    slots: int

    @property
    def answers_checked(self) -> int:
        """Answers that were compared with their questions, in both runs."""
        return sum(trace.answered for run in (self.uncoordinated, self.coordinated) for trace in run.traces)

    @property
    def answers_wrong(self) -> int:
        """Those that belonged to another question."""
        return self.uncoordinated.wrong + self.coordinated.wrong

    def as_dict(self) -> dict[str, object]:
        """Return the object that ``fairq demo --json`` prints."""
        return {
            "uncoordinated": self.uncoordinated.as_dict(),
            "coordinated": self.coordinated.as_dict(),
            "bound_s": round(self.bound_s, 4),
            "answers_checked": self.answers_checked,
            "answers_wrong": self.answers_wrong,
        }


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile, linear between two values (the usual "type 7")."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


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
        start = time.monotonic()

        def work(job: Job) -> tuple[Answer, float]:
            return calls.call(job), time.monotonic() - start

        futures: list[Future[tuple[Answer, float]]] = []

        def tell() -> None:
            done = sum(future.done() for future in futures)
            seconds = time.monotonic() - start
            progress(Progress(mode, done, len(jobs), server.stats().refused_429, seconds))

        for job in jobs:
            while (ahead := start + job.wanted - time.monotonic()) > 0:
                time.sleep(min(ahead, _TICK))
                tell()
            pool = desks[job.developer] if job.kind == "batch" else reviews
            futures.append(pool.submit(work, job))
        while wait(futures, timeout=_TICK).not_done:
            tell()
        tell()
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
