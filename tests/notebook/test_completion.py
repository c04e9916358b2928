"""What Tab offers, and that nothing of it is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

from fairq_ipy.notebook.commands import FAIRQ
from fairq_ipy.notebook.completion import Values, candidates, matcher, paths

Complete: TypeAlias = Callable[[str], list[str]]

VALUES: Values = {
    "tenants": lambda: ["logs", "my team", "it's", "logs"],
    "levels": lambda: ["interactive", "batch"],
    "models": lambda: ["demo-small"],
    "chats": lambda: ["plans"],
}


@pytest.mark.parametrize(
    ("line", "fragment", "found"),
    [
        ("%%ask --te", "--te", ["--tenant", "--temperature", "--template"]),
        ("%%ask --tenant ", "", ["logs", '"my team"', '"it\'s"']),
        ("%%ask --tenant lo", "lo", ["logs"]),
        ("%%ask --tenant=", "", ["logs", '"my team"', '"it\'s"']),
        ("%%ask --tenant=lo", "lo", ["logs"]),
        ("%%ask --tenant='my", "'my", ['"my team"']),
        ("%%ask --tenant 'my t", "'my t", ['"my team"']),
        ("%%ask --tenant logs --tena", "--tena", []),
        ("%%ask --priority ", "", ["interactive", "batch"]),
        ("%%ask --model ", "", ["demo-small"]),
        ("%%ask --chat p", "p", ["plans"]),
        ("%%ask --max-tokens ", "", []),
        ("%%ask --nothing=", "", []),
        ("%ask --pri", "--pri", ["--priority"]),
        ("x = %ask --pri", "--pri", ["--priority"]),
        ("    %ask --pri", "--pri", ["--priority"]),
        ("%ask what about --te", "", []),
        ("%ask what ", "", []),
        ("%fairq ", "", list(FAIRQ.commands)),
        ("%fairq pa", "pa", ["pause"]),
        ("%fairq pause ", "", ["logs", '"my team"', '"it\'s"']),
        ("%fairq pause lo", "lo", ["logs"]),
        ("%fairq log ", "", ["--number", "--tenant", "--help"]),
        ("%fairq log -n ", "", []),
        ("%fairq log -n 5 --tenant l", "l", ["logs"]),
        ("%fairq log --tenant logs ", "", ["--number", "--tenant", "--help"]),
        ("%fairq nonsense ", "", []),
        ("%fairq", "", []),
        ("%timeit x --te", "", []),
        ("print('%ask --te", "", []),
    ],
)
def test_tab_offers_what_can_be_typed_here(line: str, fragment: str, found: list[str]) -> None:
    assert candidates(line, VALUES) == (fragment, found)


def test_paths_lead_to_policies_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my policies").mkdir()
    for name in ("team.yaml", "solo.yml", "notes.txt", ".hidden.yaml"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert candidates("%fairq load ", {}) == ("", ['"my policies/"', "solo.yml", "team.yaml"])
    assert candidates("%fairq validate te", {}) == ("te", ["team.yaml"])
    assert paths(f"{tmp_path}/s") == [f"{tmp_path}/solo.yml"]
    assert paths("no/such/folder/") == []


@pytest.fixture
def complete() -> Iterator[Complete]:
    shell = InteractiveShell.instance()
    ours = matcher(VALUES)
    shell.Completer.custom_matchers.append(ours)

    def of(text: str) -> list[str]:
        with provisionalcompleter():
            return [found.text for found in shell.Completer.completions(text, len(text))]

    yield of
    shell.Completer.custom_matchers.remove(ours)


def test_ipython_itself_offers_them(complete: Complete) -> None:
    assert complete("%%ask --tenant ") == ["logs", '"my team"', '"it\'s"']
    assert complete("x = 1\n%fairq pa") == ["pause"]
    assert complete("\n%%ask --tenant lo") == ["logs"]


def test_the_text_of_a_cell_is_not_completed(complete: Complete) -> None:
    assert "--tenant" not in complete("%%ask --tenant logs\nhello --te")
    assert "pause" not in complete("%%ask\n%fairq pa")
