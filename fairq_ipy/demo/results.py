"""What is measured in the experiment, the same way in both runs.

- *sent*: requests that were sent; *refused*: those that the endpoint answered 429; *failed*: jobs that got no answer.
- *interactive wait*: from the moment a review is wanted to the moment the endpoint begins to serve it, by the
  endpoint's own log. One that was never served counts the time until its client gave up, which is less than it would
  have had to wait.
- *makespan*: from the start of the run until the last client has its answer, or has given up. A run with failures
  does less work, so its makespan is flattered.
- *bound*: the least makespan that any order could reach (`workload.bound`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairq_ipy.demo.workload import Job

__all__ = ["Experiment", "Run", "Trace", "quantile"]


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
    def failed_reviews(self) -> int:
        """Reviews without an answer."""
        return sum(not trace.answered for trace in self.traces if trace.job.kind == "interactive")

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
