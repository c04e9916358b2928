"""What is measured, and how it is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairq_ipy.demo.results import Experiment, Run, quantile


def test_a_run_counts_what_was_sent_refused_and_left_undone(made_run: Callable[..., Run]) -> None:
    run = made_run(5)
    assert (run.sent, run.refused_429, run.failed) == (80 + 40, 40, 20)
    assert 0 < run.failed_reviews < 20
    assert run.wrong == 0


def test_waits_are_those_of_reviews_from_being_wanted_to_being_served(made_run: Callable[..., Run]) -> None:
    run = made_run(None, 0.25)
    assert run.wait_s(0.5) == pytest.approx(0.25)
    assert run.wait_s(0.95) == pytest.approx(0.25)


def test_one_that_was_never_served_waited_until_it_gave_up(made_run: Callable[..., Run]) -> None:
    trace = made_run(1).traces[0]
    assert trace.wait == trace.ended - trace.job.wanted


def test_an_answer_to_another_question_is_wrong(made_run: Callable[..., Run]) -> None:
    run = made_run(None)
    first = run.traces[0]._replace(right=False)
    experiment = Experiment(replace(run, traces=(first, *run.traces[1:])), run, 9.0, 2)
    assert (experiment.answers_checked, experiment.answers_wrong) == (200, 1)


def test_the_object_that_is_printed_has_the_promised_keys(experiment: Experiment) -> None:
    shown = experiment.as_dict()
    keys = ["sent", "refused_429", "failed", "interactive_wait_p50_s", "interactive_wait_p95_s", "makespan_s"]
    assert list(shown) == ["uncoordinated", "coordinated", "bound_s", "answers_checked", "answers_wrong"]
    assert shown["uncoordinated"] == experiment.uncoordinated.as_dict()
    assert list(experiment.coordinated.as_dict()) == keys
    assert shown["answers_checked"] == 180


@pytest.mark.parametrize(("share", "value"), [(0, 1), (0.5, 2.5), (0.95, 3.85), (1, 4)])
def test_quantiles_are_linear_between_two_values(share: float, value: float) -> None:
    assert quantile([4, 1, 3, 2], share) == pytest.approx(value)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_a_quantile_lies_among_its_values(values: list[float], share: float) -> None:
    assert min(values) - 1e-6 <= quantile(values, share) <= max(values) + 1e-6
