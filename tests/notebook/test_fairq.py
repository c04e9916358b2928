"""``%fairq``: each word does what it says and says what it did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError

import fairq_ipy as fairq
from fairq_ipy.errors import PolicyError
from fairq_ipy.testing import ScriptedEndpoint, error


def said(shell: Any, line: str) -> str:
    """The text of what `line` returns; its HTML must carry the same."""
    document = shell.run(line)
    assert "<div" in document._repr_html_()
    return str(document)


def test_loading_says_in_one_line_what_holds(policy: Path, shell: Any, mock: ScriptedEndpoint) -> None:
    assert shell.stdout == f"fairq: team.yaml · {mock.base_url} · 2 calls at once · tenants logs, no, my team\n"


def test_fairq_alone_is_the_status(shell: Any) -> None:
    assert said(shell, "%fairq") == said(shell, "%fairq status")
    assert "0 of 2 running, 0 waiting (room for 20)" in said(shell, "%fairq")


def test_the_status_counts_what_happened(shell: Any) -> None:
    shell.run("%ask --tenant logs hello")
    text = said(shell, "%fairq status")
    assert "1 call so far, 1 done" in text
    assert [line.split()[0] for line in text.splitlines()[-2:]] == ["tenant", "logs"]


def test_a_failed_call_is_counted_and_named_in_the_log(shell: Any, mock: ScriptedEndpoint) -> None:
    mock.reply(error(400, "no such thing"))
    with pytest.raises(fairq.EndpointError):
        shell.run("%ask hello")
    assert "1 done, 1 of them failed" in said(shell, "%fairq")
    assert "failed" in said(shell, "%fairq log")


def test_tenants_are_a_row_each(shell: Any) -> None:
    text = said(shell, "%fairq tenants")
    assert "my team  idle   interactive (1)" in text
    assert "logs     idle   batch (2)" in text


def test_the_policy_is_told_in_words(shell: Any) -> None:
    text = said(shell, "%fairq policy")
    assert "team.yaml" in text
    assert "20 calls" in text
    assert "interactive (1), batch (2)" in text
    assert "(all others)" in text


# ------------------------------------------------------------------------------------------------------------ policies


@pytest.mark.parametrize("name", ["my team.yaml", r"c\policies\team.yaml"])
@pytest.mark.parametrize("quote", ["'", '"'])
def test_another_policy_is_loaded_from_a_path_with_blanks_and_backslashes(
    shell: Any, policy: Path, name: str, quote: str
) -> None:
    text = policy.read_text(encoding="utf-8").replace("concurrency: 2", "concurrency: 7")
    (policy.parent / name).write_text(text, encoding="utf-8")
    assert "7 calls at once" in said(shell, f"%fairq load {quote}{name}{quote}")
    assert fairq.snapshot().cap == 7


def test_a_path_in_a_variable_is_filled_in(shell: Any, policy: Path) -> None:
    shell.ip.user_ns["path"] = policy
    assert "2 calls at once" in said(shell, "%fairq load {path}")


def test_a_bad_policy_is_refused_with_all_that_is_wrong_and_the_old_one_holds_on(shell: Any, policy: Path) -> None:
    bad = policy.parent / "bad.yaml"
    bad.write_text("version: 1\nlimits: {concurency: 3}\nendpoint: {base_url: 7}\n", encoding="utf-8")
    with pytest.raises(PolicyError) as caught:
        shell.run("%fairq load bad.yaml")
    assert len(caught.value.findings) == 2
    assert fairq.snapshot().cap == 2
    assert "2 problems in bad.yaml" in said(shell, "%fairq validate bad.yaml")
    assert "concurency" in said(shell, "%fairq validate bad.yaml")


def test_validate_checks_the_file_in_use_and_changes_nothing(shell: Any, policy: Path) -> None:
    assert said(shell, "%fairq validate").endswith("team.yaml is a good policy")
    before = fairq.session().settings
    assert "good policy" in said(shell, f"%fairq validate '{policy}'")
    assert fairq.session().settings is before


def test_reload_reads_the_file_at_once(shell: Any, policy: Path) -> None:
    policy.write_text(policy.read_text(encoding="utf-8").replace("concurrency: 2", "concurrency: 5"), encoding="utf-8")
    assert "5 calls at once" in said(shell, "%fairq reload")
    shell.run("1")
    assert "fairq" not in shell.stdout, "what the user asked for is no news in the next cell"


# --------------------------------------------------------------------------------------------------- pause and resume


def test_pause_and_resume_of_one_tenant(shell: Any) -> None:
    assert said(shell, "%fairq pause logs").startswith("logs is paused")
    assert fairq.snapshot().tenants["logs"].state == "paused"
    assert said(shell, "%fairq resume logs") == "logs runs again"
    assert fairq.snapshot().tenants["logs"].state == "idle"


def test_pause_and_resume_of_all(shell: Any) -> None:
    assert said(shell, "%fairq pause").startswith("everything is paused")
    assert "paused: everything is paused" in said(shell, "%fairq")
    assert said(shell, "%fairq resume") == "everything runs again"
    assert not fairq.snapshot().paused


def test_resume_of_all_names_who_is_still_paused(shell: Any) -> None:
    shell.run("%fairq pause logs")
    assert said(shell, "%fairq resume").endswith("still paused by name: logs")


@pytest.mark.parametrize("word", ["pause", "resume"])
def test_a_tenant_nobody_has_heard_of_is_an_error_with_the_nearest_name(shell: Any, word: str) -> None:
    with pytest.raises(UsageError, match=r"there is no tenant 'logz'; did you mean logs\?"):
        shell.run(f"%fairq {word} logz")
    assert "logz" not in fairq.snapshot().tenants


def test_a_tenant_called_no_is_found(shell: Any) -> None:
    assert said(shell, "%fairq pause no").startswith("no is paused")
    assert fairq.snapshot().tenants["no"].state == "paused"


def test_a_tenant_with_a_blank_in_its_name_is_found(shell: Any) -> None:
    assert said(shell, "%fairq pause 'my team';").startswith("my team is paused")


def test_a_tenant_that_only_asked_can_be_paused(shell: Any) -> None:
    shell.run("%ask --tenant newcomer hello")
    assert said(shell, "%fairq pause newcomer").startswith("newcomer is paused")


# -------------------------------------------------------------------------------------------------------- log and story


def test_the_log_shows_the_latest_calls_of_all_or_of_one(shell: Any) -> None:
    for tenant in ("logs", "no", "logs"):
        shell.run(f"%ask --tenant {tenant} hello")
    assert [line.split()[2] for line in said(shell, "%fairq log").splitlines()[1:]] == ["logs", "no", "logs"]
    assert [line.split()[0] for line in said(shell, "%fairq log -n 2").splitlines()[1:]] == ["2", "3"]
    assert [line.split()[0] for line in said(shell, "%fairq log --tenant no").splitlines()[1:]] == ["2"]


def test_a_log_of_nothing_says_so(shell: Any) -> None:
    assert said(shell, "%fairq log") == "no calls yet"


def test_the_story_of_a_call(shell: Any) -> None:
    answer = shell.run("%ask hello")
    text = said(shell, f"%fairq story {answer.ticket}")
    assert "admitted" in text
    assert "over: ok" in text
    assert "nothing is known of call 999" in said(shell, "%fairq story 999")


def test_a_story_of_no_number_is_a_usage_error(shell: Any) -> None:
    with pytest.raises(UsageError, match="'seven' is no number of a call"):
        shell.run("%fairq story seven")


# ---------------------------------------------------------------------------------------------------------- the rest


def test_the_demo_shows_how_far_it_is_and_returns_its_report(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairq_ipy.demo import command
    from fairq_ipy.demo.experiment import Progress

    def run(*, fast: bool, seed: int, progress: Any) -> str:
        progress(Progress("coordinated", 7, 100, 0, 1.5))
        return f"{fast} {seed}"

    monkeypatch.setattr(command, "run", run)
    assert shell.run("%fairq demo --fast --seed 3") == "True 3"
    assert "[100 requests, twice: each for itself, and through one queue]" in shell.stdout


def test_a_demo_that_is_stopped_says_so(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairq_ipy.demo import command

    def run(**_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", run)
    with pytest.raises(KeyboardInterrupt):
        shell.run("%fairq demo")
    assert "[stopped]" in shell.stdout
    assert "KeyboardInterrupt: stopped" in shell.stdout


def test_a_word_that_is_none_is_a_usage_error_with_the_nearest(shell: Any) -> None:
    with pytest.raises(UsageError, match=r"there is no command 'pauze'; did you mean pause\?"):
        shell.run("%fairq pauze logs")


def test_help_needs_nothing(shell: Any) -> None:
    for line in ("%fairq --help", "%fairq pause --help", "%ask --help", "%%ask --help"):
        assert shell.run(line) is None
        assert shell.stdout.startswith(f"usage: {line.removesuffix(' --help')}")


def test_a_name_from_outside_is_text(shell: Any) -> None:
    shell.run("%ask --tenant '<img src=x onerror=alert(1)>' hello")
    for line in ("%fairq", "%fairq tenants", "%fairq log"):
        html = shell.run(line)._repr_html_()
        assert "<img" not in html
        assert "&lt;img" in html
