"""The experiment in words."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fairq_ipy.demo.report import Report, sentences
from fairq_ipy.demo.results import Experiment, Run


def test_the_table_has_both_runs_side_by_side(experiment: Experiment) -> None:
    lines = str(Report(experiment)).splitlines()
    assert lines[0].split("  ")[-1].strip() == "one queue"
    assert lines[2].split()[-2:] == ["40", "0"]
    assert len({len(line) for line in lines[:8]}) == 1
    assert all(len(line) <= 100 for line in lines)


def test_when_all_is_well_the_sentences_say_so(experiment: Experiment) -> None:
    said = " ".join(sentences(experiment))
    assert "nothing was refused and nothing failed" in said
    assert "All 180 answers" in said
    assert Report(experiment).kept


def test_a_run_that_ended_sooner_because_it_did_less_is_not_praised(made_run: Callable[..., Run]) -> None:
    said = " ".join(sentences(Experiment(made_run(2, 0.0), made_run(None, 2.0), 9.0, 2)))
    assert "sooner only because it left 50 jobs undone" in said
    assert "by luck" in said


def test_when_the_queue_was_refused_the_sentences_do_not_hide_it(made_run: Callable[..., Run]) -> None:
    broken = Report(Experiment(made_run(2), made_run(100), 9.0, 2))
    assert "2 of 101 requests were refused and 1 job had no answer" in str(broken).replace("\n", " ")
    assert not broken.kept


def test_a_busy_machine_is_named_as_one(made_run: Callable[..., Run]) -> None:
    run = made_run(None)
    quiet, busy = (Experiment(run, run, run.makespan_s / factor, 2) for factor in (1.05, 1.5))
    assert "little time to spare" not in str(Report(quiet))
    assert "little time to spare" in str(Report(busy))


def test_wrong_answers_are_told(made_run: Callable[..., Run]) -> None:
    run = made_run(None)
    wrong = replace(run, traces=(run.traces[0]._replace(right=False), *run.traces[1:]))
    report = Report(Experiment(run, wrong, 9.0, 2))
    assert "1 of 200 answers belonged to another question" in str(report)
    assert not report.kept


def test_a_notebook_gets_a_table_and_the_picture_with_words_for_it(experiment: Experiment) -> None:
    shown = Report(experiment)._repr_html_()
    assert shown.startswith("<table>")
    assert 'src="data:image/png;base64,' in shown
    assert 'alt="Without the queue' in shown
    assert len(shown) < 200_000


def test_a_notebook_without_matplotlib_gets_the_table(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    shown = Report(experiment)._repr_html_()
    assert "<img" not in shown
    assert "<td" in shown
