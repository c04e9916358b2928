"""Real kernels, driven as a front end drives them: cells, outputs that are updated, clicks, interrupts.

Every wait has a deadline and fails with what was seen. A kernel is started once for each generation of ipykernel and
cleared between tests; after each test nothing may be left in its queue.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from traitlets.config import Config

from fairq_ipy.testing import ScriptedEndpoint

ROOT = Path(__file__).parents[2]
KERNEL6 = Path(os.environ.get("FAIRQ_KERNEL6") or ROOT / ".venv-k6" / "bin" / "python")

POLICY = """\
version: 1
endpoint: {{base_url: "{base_url}", model: mock-small}}
limits: {{concurrency: 2, queue: 20}}
headroom_for: 0s
levels:
  interactive: {{level: 1}}
  batch: {{level: 2}}
tenants:
  logs: {{level: batch}}
  "no": {{level: batch}}
  my team: {{level: interactive}}
"""


class Outputs:
    """What one cell shows, as a front end keeps it."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.updates: list[dict[str, Any]] = []
        self.stream = ""
        self.error: tuple[str, str] | None = None
        self.idle = False
        self.result: dict[str, str] | None = None

    def take(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            self.stream += content["text"]
        elif kind == "error":
            self.error = content["ename"], "\n".join(content["traceback"])
        elif kind == "execute_result":
            self.result = content["data"]
            self.items.append(dict(content))
        elif kind == "display_data":
            self.items.append(dict(content))
        elif kind == "status" and content["execution_state"] == "idle":
            self.idle = True

    def update(self, display: str, data: dict[str, str]) -> None:
        for item in self.items:
            if item.get("transient", {}).get("display_id") == display:
                item["data"] = data
                self.updates.append(data)

    @property
    def shown(self) -> list[str]:
        """The present text of each output, in order."""
        return [item["data"].get("text/markdown", item["data"]["text/plain"]) for item in self.items]

    def __repr__(self) -> str:
        return f"shown={self.shown} stream={self.stream!r} error={self.error}"


class Kernel:
    """One real kernel."""

    def __init__(self, python: str, folder: Path) -> None:
        manager = KernelManager(kernel_name="python3")
        assert manager.kernel_spec is not None
        manager.kernel_spec.argv[0] = python
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRQ_", "COV_"))}
        environment |= {
            "IPYTHONDIR": str(folder / "ipython"),
            "PYTHONPATH": str(ROOT),
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        manager.start_kernel(env=environment, cwd=str(folder))
        self.manager = manager
        self.client: BlockingKernelClient = manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.cells: dict[str, Outputs] = {}

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    # ------------------------------------------------------------------------------------------------------- cells

    def send(self, code: str, *, stop_on_error: bool = True) -> str:
        """Send a cell and return its number at once."""
        cell = self.client.execute(code, stop_on_error=stop_on_error)
        self.cells[cell] = Outputs()
        return str(cell)

    def run(self, code: str, timeout: float = 30) -> Outputs:
        """Run a cell to its end."""
        return self.finish(self.send(code), timeout)

    def value(self, expression: str) -> Any:
        """Return the value of an expression that can be written as JSON."""
        seen = self.run(f"import json as _json; print('\\n' + _json.dumps({expression}))")
        assert seen.error is None, seen
        return json.loads(seen.stream.splitlines()[-1])

    def finish(self, cell: str, timeout: float = 30) -> Outputs:
        """Wait until a cell is over."""
        return self.until(lambda: self.cells[cell].idle, cell, timeout)

    def until(self, reached: Callable[[], bool], cell: str, timeout: float = 15) -> Outputs:
        """Take in messages until it is so; the kernel itself must still be alive."""
        end = time.monotonic() + timeout
        while not reached():
            if time.monotonic() > end:
                raise AssertionError(
                    f"not so after {timeout:g} s; alive: {self.manager.is_alive()}; {self.cells[cell]}"
                )
            self._take(0.1)
        return self.cells[cell]

    def shows(self, cell: str, text: str, timeout: float = 15) -> Outputs:
        """Wait until an output of the cell contains `text`."""
        return self.until(lambda: any(text in each for each in self.cells[cell].shown), cell, timeout)

    def _take(self, timeout: float) -> None:
        try:
            message = self.client.get_iopub_msg(timeout=timeout)
        except queue.Empty:
            return
        content, kind = message["content"], message["msg_type"]
        if kind == "update_display_data":
            for outputs in self.cells.values():
                outputs.update(content["transient"]["display_id"], content["data"])
        else:
            self.cells.setdefault(message["parent_header"].get("msg_id", ""), Outputs()).take(kind, content)

    # ------------------------------------------------------------------------------------------------------ others

    def interrupt(self) -> None:
        """Press the stop button."""
        self.manager.interrupt_kernel()

    def restart(self) -> None:
        """Press the restart button."""
        self.manager.restart_kernel(now=False)
        self.client.wait_for_ready(timeout=60)

    def complete(self, code: str) -> list[str]:
        """Press Tab at the end of `code`."""
        reply = self.client.complete(code, reply=True, timeout=10)
        return list(reply["content"]["matches"])

    def widget_message(self, comm: str, data: dict[str, Any]) -> None:
        """Send what a front end sends when a widget is used."""
        content = {"comm_id": comm, "data": data}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", content))


class Shell:
    """A plain IPython that keeps what it prints."""

    def __init__(self, ip: InteractiveShell) -> None:
        self.ip = ip
        self.stdout = ""

    def run(self, cell: str) -> Any:
        """Run a cell; return its value, raise its error, keep its output."""
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            result = self.ip.run_cell(cell, store_history=True)
        self.stdout = out.getvalue()
        if result.error_in_exec is not None:
            raise result.error_in_exec
        return result.result

    def close(self) -> None:
        self.ip.run_cell("%unload_ext fairq_ipy")
        self.ip.user_ns.clear()  # `reset` would collect garbage for a tenth of a second
        self.ip.init_user_ns()


def _python(generation: int) -> str:
    if generation == 7:
        return sys.executable
    if not KERNEL6.exists():
        pytest.skip(f"no environment with ipykernel 6 at {KERNEL6}; `make test` creates it")
    return str(KERNEL6)


@pytest.fixture(scope="session", params=[7, 6], ids=["ipykernel7", "ipykernel6"])
def _kernel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    kernel = Kernel(_python(request.param), tmp_path_factory.mktemp(f"kernel{request.param}"))
    yield kernel
    kernel.close()


@pytest.fixture
def mock() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint() as endpoint:
        yield endpoint


@pytest.fixture
def policy(mock: ScriptedEndpoint, tmp_path: Path) -> Path:
    path = tmp_path / "team.yaml"
    path.write_text(POLICY.format(base_url=mock.base_url), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def _ip() -> InteractiveShell:
    config = Config()
    config.HistoryManager.enabled = False
    return InteractiveShell.instance(config=config)


@pytest.fixture
def shell(_ip: InteractiveShell, policy: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A plain IPython in this process, with the extension; for what needs no kernel."""
    monkeypatch.setenv("FAIRQ_POLICY", str(policy))
    monkeypatch.chdir(policy.parent)
    own = Shell(_ip)
    own.run("%load_ext fairq_ipy")
    yield own
    own.close()


@pytest.fixture
def bare_kernel(_kernel: Kernel, tmp_path: Path) -> Iterator[Kernel]:
    """A kernel without the extension, in an empty folder."""
    _kernel.run(
        "get_ipython().user_ns.clear(); get_ipython().init_user_ns()\n"
        f"import os; os.chdir({str(tmp_path)!r}); os.environ.pop('FAIRQ_POLICY', None)"
    )
    _kernel.cells.clear()
    yield _kernel
    _kernel.run("%unload_ext fairq_ipy")


@pytest.fixture
def kernel(bare_kernel: Kernel, policy: Path, mock: ScriptedEndpoint) -> Iterator[Kernel]:
    """A kernel with the extension, whose policy names the scripted endpoint; it leaves nothing behind."""
    loaded = bare_kernel.run(f"import os; os.environ['FAIRQ_POLICY'] = {str(policy)!r}\n%load_ext fairq_ipy")
    assert loaded.error is None, loaded
    bare_kernel.run("from fairq_ipy.session import session as fairq_session")
    yield bare_kernel
    if bare_kernel.value("'fairq_ipy' in get_ipython().extension_manager.loaded"):
        assert bare_kernel.value("[fairq_session().snapshot().in_flight, fairq_session().snapshot().queued]") == [0, 0]
        mock.always(_plain())
        assert bare_kernel.run("%%ask\nstill there?").error is None
    assert mock.max_in_flight <= 2


def _plain() -> Any:
    from fairq_ipy.testing.replies import echo

    return echo()
