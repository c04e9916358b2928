"""The notebooks of examples/: they run on kernels of both generations, and are saved as readers see them."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))

MACHINE = re.compile(r"/(?:home|root|Users|tmp|private|var|work)/|[A-Z]:\\\\")
"""Folders of the machine that a notebook was saved on."""


@pytest.fixture(params=NOTEBOOKS)
def saved(request) -> nbformat.NotebookNode:
    return nbformat.read(EXAMPLES / request.param, as_version=4)


def test_there_are_examples():
    assert {"quickstart.ipynb", "policy_tour.ipynb"} <= set(NOTEBOOKS)


@pytest.fixture(scope="module")
def played(kernel_python, tmp_path_factory) -> Iterator[dict[str, Future[nbformat.NotebookNode]]]:
    """All examples, each in a kernel of its own at the same time: they mostly wait."""
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(len(NOTEBOOKS)) as pool:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        yield {name: pool.submit(play_through, name, kernel_python) for name in NOTEBOOKS}


def play_through(name: str, python: str) -> nbformat.NotebookNode:
    return asyncio.run(Client(nbformat.read(EXAMPLES / name, as_version=4), python).async_execute())


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_runs_to_its_end_and_shows_what_it_showed(name, played):
    saved = nbformat.read(EXAMPLES / name, as_version=4)
    assert [kinds(cell) for cell in played[name].result().cells] == [kinds(cell) for cell in saved.cells]


class Client(NotebookClient):
    """Runs a notebook in its own folder, in a kernel of the given interpreter."""

    def __init__(self, notebook: nbformat.NotebookNode, python: str) -> None:
        where = {"metadata": {"path": str(EXAMPLES)}}
        super().__init__(notebook, timeout=120, kernel_name="python3", resources=where, coalesce_streams=True)
        self._python = python

    def create_kernel_manager(self):
        manager = super().create_kernel_manager()
        manager.kernel_spec.argv[0] = self._python
        return manager


def kinds(cell: nbformat.NotebookNode) -> list[str]:
    """What a cell shows, without the words and times that differ from run to run."""
    return [output.get("ename") or "+".join(sorted(output.get("data", ["text"]))) for output in cell.get("outputs", [])]


def test_every_code_cell_is_saved_as_it_ran(saved):
    code = [cell for cell in saved.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert sum(bool(cell.outputs) for cell in code) >= len(code) / 2


def test_only_the_cells_that_say_so_end_in_an_error(saved):
    for cell in saved.cells:
        failed = any(output.output_type == "error" for output in cell.get("outputs", []))
        assert failed == ("raises-exception" in cell.metadata.get("tags", [])), cell.source


def test_no_output_names_the_machine_it_ran_on(saved):
    for cell in saved.cells:
        assert not MACHINE.search(str(cell.get("outputs", ""))), cell.source


def test_it_is_small_and_has_no_dead_widgets(saved):
    assert len(nbformat.writes(saved)) < 100_000
    assert "widgets" not in saved.metadata
    assert "application/vnd.jupyter.widget-view+json" not in nbformat.writes(saved)


def test_playing_a_notebook_shows_its_cells_and_what_they_print(tmp_path):
    v4 = nbformat.v4
    cells = [
        v4.new_markdown_cell("# A story\n\nIt begins."),
        v4.new_code_cell("print(6 * 7)"),
        v4.new_code_cell("'end'"),
    ]
    nbformat.write(v4.new_notebook(cells=cells), tmp_path / "story.ipynb")

    done = play(tmp_path / "story.ipynb")

    assert done.returncode == 0, done.stderr
    assert re.search(r"A story\n=+\n.*It begins\..*In \[1\]: print\(6 \* 7\)\n  42\n.*'end'", done.stdout, re.DOTALL)


def test_playing_a_notebook_that_fails_shows_the_error_and_fails(tmp_path):
    cells = [nbformat.v4.new_code_cell("1 / 0"), nbformat.v4.new_code_cell("print('never')")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "story.ipynb")

    done = play(tmp_path / "story.ipynb")

    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stdout
    assert "never')\n  never" not in done.stdout


def test_a_notebook_whose_output_names_the_machine_is_not_saved(tmp_path):
    cells = [nbformat.v4.new_code_cell("import os; print(os.getcwd())")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "story.ipynb")
    before = (tmp_path / "story.ipynb").read_bytes()

    done = play("--save", tmp_path / "story.ipynb")

    assert done.returncode == 1
    assert "not saved" in done.stderr
    assert (tmp_path / "story.ipynb").read_bytes() == before


def play(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / "play.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=dict(os.environ))
