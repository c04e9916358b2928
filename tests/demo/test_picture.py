"""The experiment as a picture."""

from __future__ import annotations

import builtins
import subprocess
import sys
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fairq_ipy.demo import picture
from fairq_ipy.demo.results import Experiment
from fairq_ipy.errors import ConfigurationError


@pytest.mark.parametrize(("name", "starts"), [("p.png", b"\x89PNG"), ("p.SVG", b"<?xml"), ("p.pdf", b"%PDF")])
def test_the_files_name_says_the_format(experiment: Experiment, tmp_path: Path, name: str, starts: bytes) -> None:
    picture.check(tmp_path / name)
    picture.save(experiment, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(starts)


def test_each_developer_has_a_lane_in_both_runs(experiment: Experiment) -> None:
    above, below, *_ = picture.draw(experiment).axes
    for axes in (above, below):
        assert [label.get_text() for label in axes.get_yticklabels()] == ["ada", "ben", "chi", "dora", "eli"]
    assert above.get_xlim() == below.get_xlim()
    assert len(below.patches) == 100
    assert len(above.patches) == 80


def test_no_two_jobs_lie_on_each_other(experiment: Experiment) -> None:
    for run in (experiment.uncoordinated, experiment.coordinated):
        rows = picture._rows(run.traces)
        assert sum(len(row) for row in rows) == 100
        for row in rows:
            assert all(one.ended < other.job.wanted for one, other in pairwise(row))


@pytest.mark.parametrize("name", ["p", "p.jpg", "no/such/folder/p.png"])
def test_a_file_that_cannot_be_written_is_told_before_anything_runs(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        picture.check(tmp_path / name)


def test_a_file_that_turns_out_not_to_be_writable_is_told(experiment: Experiment, tmp_path: Path) -> None:
    (tmp_path / "p.png").mkdir()
    with pytest.raises(ConfigurationError, match="cannot write the picture"):
        picture.save(experiment, tmp_path / "p.png")


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigurationError, match=r"fairq-ipy\[plot\]"):
        picture.check()


def test_a_notebooks_own_plots_are_left_alone() -> None:
    code = textwrap.dedent("""
        import sys
        from fairq_ipy.demo import picture
        from fairq_ipy.demo.results import Experiment, Run, Trace
        from fairq_ipy.demo.workload import workload
        import matplotlib
        settings = [name for name in matplotlib.rcParams if name != "backend"]  # reading that one chooses it
        before = [repr(matplotlib.rcParams[name]) for name in settings]
        jobs = workload(0, speed=10, slots=2)
        run = Run(tuple(Trace(job, (), job.wanted, job.wanted + 1, job.wanted + 1, 1, True, True) for job in jobs))
        assert picture.as_png(Experiment(run, run, 1.0, 2)).startswith(b"\\x89PNG")
        assert "matplotlib.pyplot" not in sys.modules
        assert [repr(matplotlib.rcParams[name]) for name in settings] == before
    """)
    subprocess.run([sys.executable, "-c", code], check=True)
