"""Loading, reloading and unloading: once, twice, with a bad policy, with a policy that changes, and without a trace."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fairq_ipy as fairq
from fairq_ipy.notebook import extension
from fairq_ipy.testing import ScriptedEndpoint

BAD = "version: 1\nendpoint: {base_url: demo}\nlimits: {concurency: 2}\n"


def traces(shell: Any) -> dict[str, list[Any]]:
    """Everything of a shell that an extension may hang something on."""
    ip = shell.ip
    return {
        "magics": [name for names in ip.magics_manager.magics.values() for name in names],
        "registry": list(ip.magics_manager.registry),
        "matchers": list(ip.Completer.custom_matchers),
        "cleanup": list(ip.input_transformers_cleanup),
        "tokens": list(ip.input_transformer_manager.token_transformers),
        "events": [callback for callbacks in ip.events.callbacks.values() for callback in callbacks],
        "threads": sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("fairq")),
    }


def until(shell: Any, says: str, seconds: float = 15) -> str:
    """Run cells until one of them says it, and return its output."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        shell.run("1")
        if says in shell.stdout:
            return str(shell.stdout)
        time.sleep(0.05)
    raise AssertionError(f"no cell said {says!r}")


def test_unloading_leaves_no_trace(shell: Any) -> None:
    shell.run("%unload_ext fairq_ipy")
    before = traces(shell)
    shell.run("%load_ext fairq_ipy")
    assert traces(shell) != before
    shell.run("%unload_ext fairq_ipy")
    assert traces(shell) == before


def test_loading_twice_is_loading_once(shell: Any) -> None:
    once = traces(shell)
    shell.run("%load_ext fairq_ipy")
    assert traces(shell) == once
    extension.load(shell.ip)  # as a start-up file may do
    assert {name: len(found) for name, found in traces(shell).items()} == {
        name: len(found) for name, found in once.items()
    }


def test_three_reloads_leave_one_of_each_and_one_entry_per_call(shell: Any, mock: ScriptedEndpoint) -> None:
    once = traces(shell)
    for _ in range(3):
        shell.run("%reload_ext fairq_ipy")
        assert shell.stdout.startswith("fairq: team.yaml · ")
    assert {name: len(found) for name, found in traces(shell).items()} == {
        name: len(found) for name, found in once.items()
    }
    shell.run("%ask hello")
    assert mock.arrivals == 1
    assert fairq.snapshot().submitted == 1


def test_whoever_waits_when_it_is_unloaded_gets_an_error(shell: Any, mock: ScriptedEndpoint) -> None:
    mock.hold()
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            fairq.ask("hello")
        except fairq.FairqError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    mock.wait_for(in_flight=2)
    _until(lambda: fairq.snapshot().queued == 2)
    shell.run("%unload_ext fairq_ipy")
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert {type(error).__name__ for error in errors} == {"ShutDownError"}
    mock.wait_for(disconnects=2)


def _until(reached: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_permit_that_an_interrupted_cell_left_open_is_given_back(shell: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        shell.run("import fairq_ipy as fairq; block = fairq.permit(); block.__enter__(); raise KeyboardInterrupt")
    _until(lambda: fairq.snapshot().in_flight == 0)


def test_a_permit_that_is_kept_from_cell_to_cell_survives_an_ordinary_error(shell: Any) -> None:
    with pytest.raises(ValueError, match="mine"):
        shell.run("import fairq_ipy as fairq; block = fairq.permit(); block.__enter__(); raise ValueError('mine')")
    assert fairq.snapshot().in_flight == 1
    shell.run("block.__exit__(None, None, None)")
    _until(lambda: fairq.snapshot().in_flight == 0)


def test_a_session_that_is_there_already_is_kept(shell: Any) -> None:
    shell.run("%unload_ext fairq_ipy")
    session = fairq.load()
    shell.run("%load_ext fairq_ipy")
    assert fairq.session() is session
    assert session.keeper.idle_hook is None, "a terminal has no widgets to pump"


# ---------------------------------------------------------------------------------------------------------- bad policy


@pytest.fixture
def bad(shell: Any, policy: Path) -> str:
    """Load with a policy that cannot be used; return the good text."""
    good = policy.read_text(encoding="utf-8")
    policy.write_text(BAD, encoding="utf-8")
    shell.run("%reload_ext fairq_ipy")
    return good


@pytest.mark.usefixtures("bad")
def test_a_bad_policy_is_told_calmly_and_the_magics_are_there(shell: Any) -> None:
    assert "not usable: 1 problem in " in shell.stdout
    assert "concurency" in shell.stdout
    assert "Traceback" not in shell.stdout
    shell.run("%fairq --help")


@pytest.mark.usefixtures("bad")
@pytest.mark.parametrize("cell", ["%ask hello", "%fairq", "%fairq pause", "import fairq_ipy; fairq_ipy.ask('hello')"])
def test_nothing_is_governed_by_other_rules_than_the_file_says(shell: Any, mock: ScriptedEndpoint, cell: str) -> None:
    with pytest.raises(fairq.PolicyError, match="concurency"):
        shell.run(cell)
    assert mock.arrivals == 0


def test_a_mended_policy_is_found_by_itself(shell: Any, policy: Path, bad: str, mock: ScriptedEndpoint) -> None:
    policy.write_text(bad, encoding="utf-8")
    shell.run("%ask hello")
    assert mock.arrivals == 1


def test_another_policy_can_be_loaded_instead(shell: Any, policy: Path, bad: str, mock: ScriptedEndpoint) -> None:
    (policy.parent / "other.yaml").write_text(bad, encoding="utf-8")
    assert str(shell.run("%fairq load other.yaml")).startswith("fairq: other.yaml · ")
    shell.run("%ask hello")
    assert mock.arrivals == 1


@pytest.mark.usefixtures("bad")
def test_the_file_in_question_can_be_validated(shell: Any) -> None:
    assert "1 problem in " in str(shell.run("%fairq validate"))


def test_a_policy_that_was_named_and_is_not_there_is_told(
    shell: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FAIRQ_POLICY", str(tmp_path / "gone.yaml"))
    shell.run("%reload_ext fairq_ipy")
    assert "gone.yaml" in shell.stdout
    assert "there is no such file" in shell.stdout


def test_without_any_policy_the_built_in_one_holds(shell: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.delenv("FAIRQ_POLICY")
    monkeypatch.delenv("FAIRQ_BASE_URL", raising=False)
    shell.run("%reload_ext fairq_ipy")
    assert shell.stdout == (
        "fairq: built-in policy · the built-in demo endpoint · 2 calls at once · no tenants named\n"
    )


def test_a_policy_is_found_upward_from_the_notebooks_folder(
    shell: Any, monkeypatch: pytest.MonkeyPatch, policy: Path, tmp_path: Path
) -> None:
    (tmp_path / "project" / "policies").mkdir(parents=True)
    (tmp_path / "project" / "deep" / "down").mkdir(parents=True)
    policy.rename(tmp_path / "project" / "policies" / "team.yaml")
    monkeypatch.chdir(tmp_path / "project" / "deep" / "down")
    monkeypatch.delenv("FAIRQ_POLICY")
    shell.run("%reload_ext fairq_ipy")
    assert "team.yaml" in shell.stdout
    assert "tenants logs, no, my team" in shell.stdout


# ---------------------------------------------------------------------------------------------------------- hot reload


def test_a_policy_that_breaks_is_told_once_and_once_when_it_is_mended(shell: Any, policy: Path) -> None:
    good = policy.read_text(encoding="utf-8")
    policy.write_text(BAD, encoding="utf-8")
    told = until(shell, "concurency")
    assert told.count("fairq: ") == 1
    assert "the rules before it hold on" in told
    assert fairq.snapshot().cap == 2
    assert "note: team.yaml:3:10: limits.concurency: " in str(shell.run("%fairq"))
    assert str(policy.parent) not in told, "a saved notebook does not name the machine"
    shell.run("1")
    assert "fairq" not in shell.stdout
    policy.write_text(good.replace("concurrency: 2", "concurrency: 4"), encoding="utf-8")
    told = until(shell, "is mended and in use")
    assert told.count("fairq: ") == 1
    assert fairq.snapshot().cap == 4
    shell.run("1")
    assert "fairq" not in shell.stdout


def test_a_policy_that_changes_is_told(shell: Any, policy: Path) -> None:
    text = policy.read_text(encoding="utf-8").replace("concurrency: 2", "concurrency: 3")
    policy.write_text(text, encoding="utf-8")
    assert "fairq: team.yaml was changed and is in use\n" in until(shell, "was changed")
    assert fairq.snapshot().cap == 3


def test_a_tenant_that_the_stall_rule_pauses_is_told(shell: Any, policy: Path, mock: ScriptedEndpoint) -> None:
    from fairq_ipy.testing import plain

    text = policy.read_text(encoding="utf-8") + "defaults: {stall: {min_chars: 5, threshold: 2, action: pause}}\n"
    policy.write_text(text, encoding="utf-8")
    shell.run("%fairq reload")
    mock.always(plain(""))
    for _ in range(2):
        shell.run("%ask --tenant logs --no-stream hello")
    told = until(shell, "fairq: logs is paused: ")
    assert "(%fairq resume)" in told


# ------------------------------------------------------------------------------------------------------------- kernels


@pytest.mark.parametrize(("version", "told"), [("7.0.1", True), ("7.3.0", True), ("7.4.0", False), ("6.31.0", False)])
def test_a_kernel_that_loses_messages_is_named_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], version: str, told: bool
) -> None:
    monkeypatch.setattr(extension.metadata, "version", lambda _name: version)
    extension._warn_of_lost_messages()
    said = capsys.readouterr().err
    assert (f"ipykernel {version} loses messages" in said) == told
    assert said.count("\n") == told


def test_a_kernel_loads_reloads_and_unloads(kernel: Any, mock: ScriptedEndpoint) -> None:
    for _ in range(3):
        assert kernel.run("%reload_ext fairq_ipy").stream.startswith("fairq: ")
    assert kernel.run("%load_ext fairq_ipy").stream.startswith("The fairq_ipy extension is already loaded")
    assert kernel.run("%%ask\nhello").shown[0] == "hello"
    assert kernel.value("fairq_session().keeper.idle_hook is not None"), "widgets are pumped"
    assert kernel.run("%unload_ext fairq_ipy").error is None
    assert "not found" in kernel.run("%fairq").stream
    assert mock.arrivals == 1


def test_tab_works_in_a_kernel_and_is_gone_afterwards(kernel: Any) -> None:
    assert kernel.complete("%fairq pa") == ["pause"]
    assert kernel.complete("%%ask --tenant ") == ["logs", "no", '"my team"', "notebook"]
    assert kernel.complete("%%ask --priority b") == ["batch"]
    assert "pause" not in kernel.complete("%%ask\n%fairq pa")
    kernel.run("%unload_ext fairq_ipy")
    assert "pause" not in kernel.complete("%fairq pa")


def test_a_bad_policy_is_a_table_in_a_notebook(kernel: Any, policy: Path) -> None:
    policy.write_text(BAD, encoding="utf-8")
    seen = kernel.run("%reload_ext fairq_ipy")
    assert seen.error is None
    assert "<table>" in seen.items[0]["data"]["text/html"]
    assert "concurency" in seen.items[0]["data"]["text/plain"]
    failed = kernel.run("%%ask\nhello")
    assert failed.error is not None
    assert failed.error[0] == "PolicyError"
    assert "Traceback" not in failed.error[1]
    kernel.run("%unload_ext fairq_ipy")
