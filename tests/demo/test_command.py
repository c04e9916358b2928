"""``fairq demo``: options, progress, output, exit status. The experiment itself is played in test_experiment."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairq_ipy.demo import command
from fairq_ipy.demo import experiment as experiment_module
from fairq_ipy.demo.experiment import Progress
from fairq_ipy.demo.results import Experiment, Run

Played = list[dict[str, Any]]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, experiment: Experiment) -> Played:
    """Replace the experiment by its results; the list is what it was asked for."""
    asked: Played = []

    def play(*, fast: bool, seed: int, progress: Callable[[Progress], None]) -> Experiment:
        asked.append({"fast": fast, "seed": seed})
        for mode in ("uncoordinated", "coordinated"):
            for done in (0, 40, 100):
                progress(Progress(mode, done, 100, 7, 1.5))
            progress(Progress(mode, 100, 100, 7, 1.5, over=True))
        return experiment

    monkeypatch.setattr(experiment_module, "play", play)
    return asked


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(words)


def test_it_prints_a_table_and_what_it_means(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(options()) == 0
    out = capsys.readouterr().out
    assert "refused by the endpoint (429)" in out
    assert "nothing was refused and nothing failed" in out
    assert played == [{"fast": False, "seed": 0}]


def test_with_json_exactly_one_object_is_on_stdout(
    played: Played, capsys: pytest.CaptureFixture[str], experiment: Experiment
) -> None:
    assert command.main(options("--json", "--fast", "--seed", "-3")) == 0
    assert json.loads(capsys.readouterr().out) == experiment.as_dict()
    assert played == [{"fast": True, "seed": -3}]


def test_progress_is_a_few_plain_lines_where_there_is_no_terminal(
    played: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main(options())
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "each for itself:   0 of 100 done,   7 refused,  1.5 s",
        "each for itself:  40 of 100 done,   7 refused,  1.5 s",
        "each for itself: 100 of 100 done,   7 refused,  1.5 s",
        "one queue:   0 of 100 done,   7 refused,  1.5 s",
        "one queue:  40 of 100 done,   7 refused,  1.5 s",
        "one queue: 100 of 100 done,   7 refused,  1.5 s",
    ]


class Terminal(io.TextIOWrapper):
    """A terminal that keeps what was written."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="")

    def isatty(self) -> bool:
        return True

    def written(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode(self.encoding)


@pytest.mark.parametrize(("encoding", "bar"), [("utf-8", "━" * 9 + "╌" * 15), ("ascii", "#" * 9 + "." * 15)])
def test_progress_is_one_line_that_is_rewritten_in_a_terminal(encoding: str, bar: str) -> None:
    terminal = Terminal(encoding)
    show = command.progress_on(terminal)
    show(Progress("coordinated", 40, 100, 0, 1.5))
    show(Progress("coordinated", 40, 100, 0, 1.5))
    show(Progress("coordinated", 100, 100, 0, 2.0, over=True))
    written = terminal.written()
    assert written.count(bar) == 1
    assert written.count("\r") == 2
    assert written.count("\n") == 1
    assert written.endswith("\n")


def test_the_picture_is_drawn_where_it_is_asked_for(
    played: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "demo.png"
    assert command.main(options("--plot", str(target))) == 0
    assert target.read_bytes().startswith(b"\x89PNG")
    assert str(target) in capsys.readouterr().err


def test_a_picture_that_cannot_be_drawn_is_told_before_anything_runs(
    played: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(options("--plot", "demo.jpg")) == 1
    assert capsys.readouterr().err.startswith("fairq demo: cannot tell the picture's format from 'demo.jpg'")
    assert played == []


def test_a_promise_that_was_not_kept_is_no_success(
    monkeypatch: pytest.MonkeyPatch, made_run: Callable[..., Run], capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Experiment(made_run(5), made_run(50), 9.0, 2)
    monkeypatch.setattr(experiment_module, "play", lambda **_: broken)
    assert command.main(options("--json")) == 1
    assert json.loads(capsys.readouterr().out)["coordinated"]["failed"] == 2


def test_an_interrupt_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(**_: Any) -> Experiment:
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment_module, "play", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command.main(options())
    assert capsys.readouterr().err == "\nfairq demo: stopped\n"


def test_from_a_notebook_it_is_a_function_that_returns_what_it_shows(played: Played, tmp_path: Path) -> None:
    report = command.run(fast=True, plot=str(tmp_path / "p.svg"))
    assert report.as_dict()["answers_wrong"] == 0
    assert (tmp_path / "p.svg").exists()


def test_its_help_does_not_wait_for_http_libraries() -> None:
    code = (
        "import argparse, sys; from fairq_ipy.demo import command; command.add_arguments(argparse.ArgumentParser()); "
        "sys.exit(bool({'httpx', 'tornado', 'matplotlib'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
