"""How a magic line is read: C20, C21 and C28 of what people met, and the help texts."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.error import UsageError

from fairq_ipy.notebook.arguments import Command, Operand, Option
from fairq_ipy.notebook.commands import ASK, ASK_LINE, FAIRQ
from fairq_ipy.notebook.line import scan

LOAD, LOG, STORY = (FAIRQ.commands[name] for name in ("load", "log", "story"))


def given(command: Command, line: str, **names: Any) -> dict[str, Any]:
    """What was typed, without what was not."""
    return {key: value for key, value in command.parse(line, names).values.items() if value not in (None, False)}


def refused(command: Command, line: str, **names: Any) -> str:
    with pytest.raises(UsageError) as caught:
        command.parse(line, names)
    assert type(caught.value) is UsageError, "a subclass of UsageError is shown with a traceback"
    return str(caught.value)


# ----------------------------------------------------------------------------------------------------- quotes, blanks


@pytest.mark.parametrize(
    ("line", "tenant"),
    [
        ("--tenant logs", "logs"),
        ("--tenant=logs", "logs"),
        ("--tenant 'my team'", "my team"),
        ("--tenant='my team'", "my team"),
        ('--tenant="my team"', "my team"),
        ("""--tenant "o'brien" """, "o'brien"),
        ("--tenant o'brien", "o'brien"),
        ("""--tenant 'a "b" c'""", 'a "b" c'),
        ("--tenant  '  a  '", "  a  "),
        ("--tenant 'a'\"'\"'b'", "a'b"),
        ("--tenant a=b", "a=b"),
        ("--tenant --x", "--x"),
        ("--tenant no", "no"),
        ("--tenant -1", "-1"),
        ("--tenant Zürich-研究", "Zürich-研究"),
    ],
)
def test_quotes_go_and_what_they_hold_stays(line: str, tenant: str) -> None:
    assert given(ASK, line) == {"tenant": tenant}


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ('"policies/my team.yaml"', "policies/my team.yaml"),
        (r"C:\policies\new\team.yaml", r"C:\policies\new\team.yaml"),
        (r'"C:\my policies\team.yaml"', r"C:\my policies\team.yaml"),
        ('"C:\\my policies\\"', "C:\\my policies\\"),
        (r"\\server\share\team.yaml", r"\\server\share\team.yaml"),
        (r"policies\\twice.yaml", r"policies\\twice.yaml"),
        ("policies/team.yaml;", "policies/team.yaml"),
        ("'policies/team;.yaml'", "policies/team;.yaml"),
    ],
)
def test_a_path_arrives_as_it_was_typed(line: str, path: str) -> None:
    assert given(LOAD, line) == {"path": path}


@pytest.mark.parametrize("line", ["--tenant 'x", '--tenant="my team', "--tenant '"])
def test_a_quote_that_is_not_closed_is_one_clear_line(line: str) -> None:
    assert "is not closed in: " in refused(ASK, line)


def test_the_semicolon_of_a_silent_cell_belongs_to_no_argument() -> None:
    assert given(ASK, "--tenant 'a;' --priority 1;") == {"tenant": "a;", "priority": "1"}
    assert given(ASK, "--priority 1 ;") == {"priority": "1"}


# ---------------------------------------------------------------------------------------------------------- variables


def test_a_variable_with_blanks_and_quotes_stays_one_word() -> None:
    assert given(ASK, "--tenant {who} --chat $who", who='it\'s "my" team') == {
        "tenant": 'it\'s "my" team',
        "chat": 'it\'s "my" team',
    }


def test_an_expression_is_filled_in_with_its_format() -> None:
    assert given(ASK, "--tenant {team['name']!r} --model m-{size:03d}", team={"name": "a"}, size=7) == {
        "tenant": "'a'",
        "model": "m-007",
    }


@pytest.mark.parametrize(
    "line", ["--tenant {typo}", "--tenant={typo}", "--tenant '{ typo }'", "--tenant a{typo.name}b"]
)
def test_an_undefined_name_is_an_error_and_never_a_tenant(line: str) -> None:
    assert "name 'typo' is not defined" in refused(ASK, line)


@pytest.mark.parametrize("line", ["--tenant $typo", "--tenant {typo", "--tenant typo}", "--tenant {1x}", "--tenant {}"])
def test_braces_and_dollars_that_mean_nothing_are_no_name_either(line: str) -> None:
    assert "cannot be filled in" in refused(ASK, line)


def test_doubled_braces_and_dollars_are_themselves() -> None:
    assert given(ASK, "--tenant {{name}} --chat $$name") == {"tenant": "{name}", "chat": "$name"}


def test_a_system_message_may_hold_json() -> None:
    assert given(ASK, """--system 'Answer as {"a": [1, {"b": 2}]} for $HOME'""")["system"] == (
        'Answer as {"a": [1, {"b": 2}]} for $HOME'
    )


def test_an_expression_that_fails_says_how() -> None:
    assert "division by zero" in refused(ASK, "--tenant {one/0}", one=1)


# -------------------------------------------------------------------------------------------------------- text of %ask


@pytest.mark.parametrize(
    "text",
    [
        "What's up?",
        "'tis  a   test ",
        'say "hi',
        "-1 + 1 = ?",
        r"C:\temp\new",
        'fix {"a": {"b": 1}} please',
        "what is $HOME; and %d?",
        "x --tenant y",
        "function f() { return 1 }",
    ],
)
def test_the_text_of_a_line_arrives_as_it_was_typed(text: str) -> None:
    assert ASK_LINE.parse(f" --tenant logs  {text}", {}).text == text
    assert ASK_LINE.parse(text, {}).text == text


def test_the_text_takes_variables_as_all_magics_do() -> None:
    assert ASK_LINE.parse("sum {n} and $n, not {{n}}", {"n": 3}).text == "sum 3 and 3, not {n}"


def test_an_undefined_name_in_the_text_is_not_sent() -> None:
    assert "write {{question}}" in refused(ASK_LINE, "{question}")


def test_two_dashes_end_the_options() -> None:
    assert ASK_LINE.parse("--tenant a -- --tenant b", {}).text == "--tenant b"


def test_an_open_quote_in_an_option_before_the_text_is_an_error() -> None:
    assert "is not closed" in refused(ASK_LINE, "--tenant 'x what is this?")


# -------------------------------------------------------------------------------------------------------------- typos


@pytest.mark.parametrize(
    ("command", "line", "hint"),
    [
        (ASK, "--prioritty 1", "did you mean --priority?"),
        (ASK, "--prioritty=1", "did you mean --priority?"),
        (ASK, "--TENANT x", "did you mean --tenant?"),
        (ASK, "--maxtokens 5", "did you mean --max-tokens?"),
        (ASK_LINE, "--tennant logs what is it", "did you mean --tenant?"),
        (LOG, "--numbr 5", "did you mean --number?"),
        (LOG, "--zzz", "there are --number, --tenant, --help"),
    ],
)
def test_a_typo_is_a_usage_error_with_the_nearest_option(command: Command, line: str, hint: str) -> None:
    assert hint in refused(command, line)


@pytest.mark.parametrize(
    ("command", "line", "says"),
    [
        (ASK, "--tenant", "--tenant needs a value, as in --tenant NAME"),
        (ASK, "--tenant --priority 1", "--tenant needs a value"),
        (ASK, "--tenant a --tenant b", "--tenant is given twice"),
        (ASK, "--no-stream=1", "--no-stream takes no value"),
        (ASK, "hello there", "'hello there' is too much here"),
        (LOAD, "my team.yaml", "'team.yaml' is too much here"),
        (LOAD, "", "PATH is missing"),
        (STORY, "", "TICKET is missing"),
    ],
)
def test_what_is_missing_or_too_much_is_said(command: Command, line: str, says: str) -> None:
    message = refused(command, line)
    assert says in message
    assert "\n" not in message


# ------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("text", ["0", "9", "-1", "50", "1.5", "batch", "high"])
def test_a_priority_is_what_was_typed_and_the_policy_judges_it(text: str) -> None:
    assert given(ASK, f"--priority {text}") == {"priority": text}


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("--timeout", "500ms", 0.5),
        ("--timeout", "30s", 30.0),
        ("--timeout", "1.5m", 90.0),
        ("--timeout", "1h", 3600.0),
        ("--timeout", "20", 20.0),
        ("--max-tokens", "1", 1),
        ("--temperature", "0.7", 0.7),
        ("--out", "answer_2", "answer_2"),
    ],
)
def test_values_have_their_type(option: str, text: str, value: Any) -> None:
    key = option[2:].replace("-", "_")
    assert given(ASK, f"{option} {text}") == {key: value}


def test_a_temperature_of_0_is_a_temperature() -> None:
    assert ASK.parse("--temperature 0", {}).values["temperature"] == 0.0
    assert ASK.parse("", {}).values["temperature"] is None


@pytest.mark.parametrize(
    "line",
    [
        "--timeout 0",
        "--timeout 0s",
        "--timeout soon",
        "--timeout -5s",
        "--max-tokens 0",
        "--max-tokens 1.5",
        "--max-tokens many",
        "--temperature warm",
        "--temperature -1",
        "--temperature nan",
        "--temperature inf",
        "--out 1x",
        "--out class",
        "--out a.b",
        "--tenant ''",
        "--tenant ' '",
        "--chat ''",
    ],
)
def test_a_value_that_cannot_be_is_refused_before_anything_is_sent(line: str) -> None:
    assert refused(ASK, line).startswith("%%ask: --")


# --------------------------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("command", [ASK, ASK_LINE, FAIRQ, *FAIRQ.commands.values()], ids=lambda each: each.name)
@pytest.mark.parametrize("flag", ["--help", "-h", "--help;"])
def test_each_command_explains_all_that_it_takes(command: Command, flag: str) -> None:
    text = command.parse(f" {flag}", {}).help
    assert text.startswith(f"usage: {command.name}")
    for option in command.options:
        assert option.usage in text
    for operand in command.operands:
        assert operand.metavar in text
    for name in command.commands:
        assert f"  {name} " in text
    assert all(len(line) <= 100 for line in text.splitlines())


def test_help_inside_a_text_is_text() -> None:
    assert ASK_LINE.parse("what does --help do", {}).text == "what does --help do"


def test_an_option_after_its_value_is_not_confused_with_the_value() -> None:
    command = Command("%x", "", (Option("--name", "", "NAME"), Option("--flag", "")), (Operand("one", "ONE", ""),))
    assert command.parse("--name n --flag 1", {}).values == {"name": "n", "flag": True, "one": "1"}


# --------------------------------------------------------------------------------------------------------------- scan


def test_scanning_tells_where_each_word_stands() -> None:
    line = "  ab 'c d' --x='e f' g"
    assert [line[word.start : word.end] for word in scan(line).words] == ["ab", "'c d'", "--x='e f'", "g"]


def test_scanning_never_fails_on_a_line_that_is_being_typed() -> None:
    found = scan("--tenant 'my te")
    assert (found.words[-1].text, found.open_quote) == ("my te", "'")
