"""``--template``: only what is asked for is filled in."""

from __future__ import annotations

import sys

import pytest
from IPython.core.error import UsageError

from fairq_ipy.errors import ConfigurationError
from fairq_ipy.notebook.template import render


def test_expressions_are_filled_in_and_the_rest_stays() -> None:
    text = "{{ name }} has {n} and ${x}, {{ rows | length }} rows.\n\n  \n"
    assert render(text, {"name": "<b>", "rows": [1, 2]}) == "<b> has {n} and ${x}, 2 rows.\n\n  \n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ nobody }}", "'nobody' is undefined"),
        ("a\n{{ open", "line 2: "),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ name.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_what_cannot_be_filled_in_is_one_line(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        render(text, {"name": "x"})
    assert type(caught.value) is UsageError


def test_private_names_of_the_shell_are_not_visible() -> None:
    with pytest.raises(UsageError, match="'_oh' is undefined"):
        render("{{ _oh }}", {"_oh": {1: "secret"}})


def test_without_jinja2_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigurationError, match="pip install jinja2"):
        render("x", {})
