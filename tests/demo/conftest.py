"""Made-up results of the experiment, for the tests that only show them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairq_ipy.demo.results import Experiment, Run, Trace
from fairq_ipy.demo.workload import workload


@pytest.fixture
def made_run() -> Callable[..., Run]:
    """Make a run in which each `nth` job was refused twice and gave up, and each job waited `wait` seconds."""

    def make(nth: int | None, wait: float = 0.25) -> Run:
        traces = []
        for job in workload(0, speed=10, slots=2):
            start = job.wanted + wait
            end = start + job.service
            if nth is not None and job.number % nth == 0:
                traces.append(Trace(job, (job.wanted, start), None, None, end, 2, answered=False, right=False))
            else:
                traces.append(Trace(job, (), start, end, end + 0.01, 1, answered=True, right=True))
        return Run(tuple(traces))

    return make


@pytest.fixture
def experiment(made_run: Callable[..., Run]) -> Experiment:
    """An experiment that went as it should."""
    return Experiment(made_run(5, 0.5), made_run(None, 0.25), bound_s=9.0, slots=2)
