"""The same notebook without anybody looking: nbconvert, a terminal, a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from fairq_ipy.testing import ScriptedEndpoint, chat

ROOT = Path(__file__).parents[2]

TYPED = """\
%load_ext fairq_ipy
%ask What is first?
x = %ask --tenant logs second
print(x.text.upper())
%ask --tennant x
%fairq log -n 1
%unload_ext fairq_ipy
exit
"""


@pytest.fixture
def environment(policy: Path, tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRQ_", "COV_"))}
    return kept | {
        "FAIRQ_POLICY": str(policy),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "jupyter"),
        "PYTHONPATH": str(ROOT),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


def run(environment: dict[str, str], *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """Run a module of this Python where the test's policy is, to its end."""
    folder = Path(environment["FAIRQ_POLICY"]).parent
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        input=typed,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_nbconvert_executes_and_saves_what_a_reader_sees(
    environment: dict[str, str], tmp_path: Path, mock: ScriptedEndpoint
) -> None:
    mock.reply(chat("**bold** answer"))
    cell = nbformat.v4.new_code_cell
    notebook = nbformat.v4.new_notebook(
        cells=[
            cell("%load_ext fairq_ipy"),
            cell("%%ask --tenant logs --out answer\nWhy?"),
            cell("print(answer.text)"),
            cell("%%ask --priority 99\nWhy?", metadata={"tags": ["raises-exception"]}),
            cell("%fairq"),
        ]
    )
    nbformat.write(notebook, tmp_path / "in.ipynb")
    command = [sys.executable, "-m", "nbconvert", "--execute", "--to", "notebook", "--output", "out.ipynb", "in.ipynb"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    outputs = [cell.outputs for cell in nbformat.read(tmp_path / "out.ipynb", as_version=4).cells]
    assert outputs[0][0].text.startswith("fairq: team.yaml · ")
    assert outputs[1][0].data["text/markdown"] == "**bold** answer"
    assert len(outputs[1]) == 2
    assert outputs[2][0].text == "**bold** answer\n"
    assert (outputs[3][0].ename, len(outputs[3][0].traceback)) == ("ConfigurationError", 1)
    assert "1 call so far, 1 done" in outputs[4][0].data["text/plain"]
    assert [request.prompt for request in mock.requests] == ["Why?"]


def test_terminal_ipython_asks_streams_and_steers(environment: dict[str, str], mock: ScriptedEndpoint) -> None:
    mock.reply(chat("first answer"), chat("second answer"))
    how = ("--simple-prompt", "--no-banner", "--colors=NoColor", "--no-confirm-exit")
    done = run(environment, "-m", "IPython", *how, typed=TYPED)
    assert done.returncode == 0, done.stderr
    assert "fairq: team.yaml · " in done.stdout
    assert done.stdout.count("first answer") == 1
    assert "(the answer above)" in done.stdout
    assert "SECOND ANSWER" in done.stdout
    assert "did you mean --tenant?" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert [request.prompt for request in mock.requests] == ["What is first?", "second"]


def test_a_script_needs_no_ipython(environment: dict[str, str], mock: ScriptedEndpoint) -> None:
    mock.reply(chat("hi"))
    script = "import sys, fairq_ipy as fairq; print(fairq.ask('hello')); print('IPython' in sys.modules)"
    done = run(environment, "-c", script)
    assert done.stdout == "hi\nFalse\n", done.stderr
