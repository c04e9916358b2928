"""``%%ask`` and ``%ask``: what is sent and as whom, what is refused before it costs anything, what failures say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError

import fairq_ipy as fairq
from fairq_ipy.core.messages import Submit
from fairq_ipy.testing import ScriptedEndpoint, chat


def prompts(mock: ScriptedEndpoint) -> list[str]:
    return [request.json["messages"][-1]["content"] for request in mock.requests]


# ---------------------------------------------------------------------------------------------------------------- sent


# ---------------------------------------------------------------------------------------------------------------- sent


def test_a_line_may_end_with_a_question_mark_and_take_variables(shell: Any, mock: ScriptedEndpoint) -> None:
    shell.run("word = 'monad'")
    shell.run("%ask What is a {word}?")
    shell.run("def f(inner):\n    answer = %ask What is {inner}\n    return answer\nf('that')")
    assert prompts(mock) == ["What is a monad?", "What is that"]


def test_magics_in_a_loop_ask_each_time(shell: Any, mock: ScriptedEndpoint) -> None:
    shell.run("for n in range(3):\n    %ask number {n}")
    assert prompts(mock) == ["number 0", "number 1", "number 2"]


def test_options_reach_the_endpoint(shell: Any, mock: ScriptedEndpoint) -> None:
    shell.run("%%ask --model other --system 'be brief' --max-tokens 7 --temperature 0 --no-stream\nhello")
    sent = mock.requests[0].json
    assert sent["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    assert (sent["model"], sent["max_tokens"], sent["temperature"], sent["stream"]) == ("other", 7, 0.0, False)


@pytest.mark.parametrize(
    ("options", "tenant", "level"),
    [
        ("", "notebook", 1),
        ("--tenant logs", "logs", 2),
        ("--tenant no", "no", 2),
        ("--tenant='my team'", "my team", 1),
        ("--priority 0", "notebook", 0),
        ("--priority 1;", "notebook", 1),
        ("--priority 9", "notebook", 9),
        ("--priority batch", "notebook", 2),
        ("--tenant logs --priority interactive", "logs", 1),
        ("--tenant {who}", "a b", 1),
    ],
)
def test_a_call_belongs_to_whom_it_says(shell: Any, options: str, tenant: str, level: int) -> None:
    shell.run("who = 'a b'")
    shell.run(f"%%ask {options}\nhello")
    tickets = [line.event.ticket for line in fairq.session().keeper.journal if isinstance(line.event, Submit)]
    assert [(ticket.tenant, ticket.level) for ticket in tickets] == [(tenant, level)]


def test_a_call_inside_a_scope_belongs_to_it(shell: Any) -> None:
    shell.run("import fairq_ipy as fairq\nwith fairq.tenant('logs'):\n    %ask hello")
    assert fairq.snapshot().tenants["logs"].completed == 1


def test_a_template_is_filled_in_from_the_users_variables(shell: Any, mock: ScriptedEndpoint) -> None:
    shell.run("rows = [1, 2]")
    shell.run("%%ask --template\n{{ rows | length }} rows, {not} $this\n")
    assert prompts(mock) == ["2 rows, {not} $this\n"]


# ------------------------------------------------------------------------------------------------------------ not sent


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("%%ask --prioritty 1\nhello", "there is no option '--prioritty'; did you mean --priority?"),
        ("%%ask --tenant {typo}\nhello", "name 'typo' is not defined"),
        ("%%ask --tenant $typo\nhello", "$typo in $typo cannot be filled in"),
        ("%ask what is {typo}", "name 'typo' is not defined"),
        ("%%ask --tenant 'my team\nhello", "the quote ' is not closed"),
        ("%%ask hello\nthere", "'hello' is too much here"),
        ("%%ask\n  \n\t\n", "nothing was sent"),
        ("%%ask", "nothing was sent"),
        ("%ask", "nothing was sent"),
        ("%ask --tenant logs", "nothing was sent"),
        ("%%ask --template\n{{ nobody }}", "'nobody' is undefined"),
        ("%%ask --template\n{{ ' ' }}", "nothing was sent"),
        ("%%ask --timeout soon\nhello", "as 500ms, 30s, 2m or 1h"),
        ("%%ask --out 1x\nhello", "no name for a variable"),
    ],
)
def test_a_mistake_is_one_line_and_costs_nothing(shell: Any, mock: ScriptedEndpoint, cell: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        shell.run(cell)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert mock.arrivals == 0
    assert set(fairq.snapshot().tenants) == {"logs", "no", "my team"}


@pytest.mark.parametrize("priority", ["-1", "10", "50", "1.5", "high", "01", "Batch", "''"])
def test_a_priority_that_is_none_is_an_error(shell: Any, mock: ScriptedEndpoint, priority: str) -> None:
    with pytest.raises(
        (UsageError, fairq.ConfigurationError), match=r"level from 0 to 9, interactive, batch|empty name"
    ):
        shell.run(f"%%ask --priority {priority}\nhello")
    assert mock.arrivals == 0


def test_a_dry_run_shows_exactly_what_would_be_sent(
    shell: Any, mock: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRQ_API_KEY", "sk-secret")
    shell.run("%%ask --chat plans --system 'be kind'\nfirst")
    options = "--tenant logs --chat plans --system 'be brief' --max-tokens 7 --temperature 0.5"
    document = shell.run(f"%ask --dry-run {options} hello")
    assert mock.arrivals == 1
    text = str(document)
    assert "tenant: logs\nlevel: batch (2)\nprompt: about " in text
    assert " tokens in 4 messages" in text
    assert "sk-secret" not in text + document._repr_html_()
    shell.run(f"%ask {options} hello")
    assert json.loads(text[text.index("{") :]) == mock.requests[1].json


def test_a_dry_run_of_somebody_unknown_is_refused(shell: Any, policy: Path) -> None:
    policy.write_text(
        policy.read_text(encoding="utf-8") + "unknown_tenants: refuse\ndefault_tenant: logs\n", encoding="utf-8"
    )
    shell.run("%fairq reload")
    with pytest.raises(fairq.UnknownTenantError, match="logs"):
        shell.run("%ask --dry-run --tenant logz hello")


# ------------------------------------------------------------------------------------------------------------ terminal


def test_a_terminal_shows_the_answer_once(shell: Any, mock: ScriptedEndpoint) -> None:
    mock.reply(chat("one two"))
    answer = shell.run("%%ask\nhello")
    assert answer.text == "one two"
    assert shell.stdout.startswith("one two\n[mock-small · ")
    assert shell.stdout.count("one two") == 1
    assert shell.stdout.endswith("(the answer above)\n")


def test_in_the_next_cell_a_terminal_shows_the_text(shell: Any, mock: ScriptedEndpoint) -> None:
    mock.reply(chat("one two"))
    shell.run("answer = %ask hello")
    shell.run("answer")
    assert shell.stdout.endswith(": one two\n")


def test_without_stream_a_terminal_shows_the_answer_whole(shell: Any, mock: ScriptedEndpoint) -> None:
    mock.reply(chat("one two"))
    shell.run("%%ask --no-stream\nhello")
    assert shell.stdout.startswith("one two\n[")
