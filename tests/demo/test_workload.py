"""The work of the experiment, and the least time it can take."""

from __future__ import annotations

import heapq
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairq_ipy.demo.answers import mark_of, plan
from fairq_ipy.demo.workload import DEVELOPERS, Job, bound, workload


def job(wanted: float, service: float) -> Job:
    return Job(1, "ada", "batch", wanted, "", service, "")


def test_the_work_is_a_function_of_the_seed() -> None:
    assert workload(3, speed=10, slots=2) == workload(3, speed=10, slots=2)
    assert workload(3, speed=10, slots=2) != workload(4, speed=10, slots=2)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_a_hundred_requests_of_five_developers_in_the_order_they_are_wanted(seed: int) -> None:
    jobs = workload(seed, speed=10, slots=2)
    assert Counter(job.kind for job in jobs) == {"batch": 70, "interactive": 30}
    assert Counter(job.developer for job in jobs) == dict.fromkeys(DEVELOPERS, 20)
    assert [job.number for job in jobs] == list(range(1, 101))
    assert [job.wanted for job in jobs] == sorted(job.wanted for job in jobs)
    assert jobs[0].wanted == 0


def test_each_answer_is_its_own() -> None:
    jobs = workload(0, speed=10, slots=2)
    assert len({job.answer for job in jobs}) == 100
    assert all(mark_of(job.prompt) == mark_of(job.answer) == job.mark for job in jobs)
    assert all(job.answer == plan([job.prompt], seed=0).text for job in jobs)


def test_a_faster_endpoint_is_asked_faster_so_that_the_picture_stays_the_same() -> None:
    slow, fast = workload(0, speed=1, slots=2), workload(0, speed=10, slots=2)
    assert bound(slow, 2) == pytest.approx(10 * bound(fast, 2))
    assert [job.wanted for job in slow] == pytest.approx([10 * job.wanted for job in fast])


def test_reviews_are_shorter_than_refactorings() -> None:
    jobs = workload(0, speed=10, slots=2)
    assert max(job.service for job in jobs if job.kind == "interactive") < min(
        job.service for job in jobs if job.kind == "batch"
    )


@pytest.mark.parametrize(
    ("jobs", "slots", "least"),
    [
        ([job(0, 1), job(0, 1), job(0, 1), job(0, 1)], 2, 2),
        ([job(0, 1), job(5, 1)], 2, 6),
        ([job(0, 10), job(0, 1)], 2, 10),
        ([job(0, 1), job(5, 1), job(5, 1), job(5, 1), job(5, 1)], 2, 7),
        ([], 2, 0),
    ],
)
def test_the_bound_is_what_no_order_can_beat(jobs: list[Job], slots: int, least: float) -> None:
    assert bound(jobs, slots) == least


TIMES = st.integers(0, 20).map(float)


@given(st.lists(st.builds(job, TIMES, TIMES), min_size=1, max_size=20), st.integers(1, 4))
def test_serving_in_the_order_of_wanting_never_beats_the_bound_and_misses_it_by_no_more_than_one_service(
    jobs: list[Job], slots: int
) -> None:
    free = [0.0] * slots
    end = 0.0
    for one in sorted(jobs, key=lambda job: job.wanted):
        done = max(heapq.heappop(free), one.wanted) + one.service
        heapq.heappush(free, done)
        end = max(end, done)
    assert bound(jobs, slots) <= end <= bound(jobs, slots) + max(one.service for one in jobs)
