"""Whatever the text: settings, or findings that point into it. Nothing else, and never for long."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairq_ipy import policy
from fairq_ipy.errors import Finding, PolicyError
from fairq_ipy.policy import Settings

ROOT = Path(__file__).resolve().parents[2]
GOOD = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "policies").glob("*.yaml"))]
WORDS = sorted({word for text in GOOD for word in re.findall(r"[\w${}:-]+", text)})

SIGNS = ["\n", "\n  ", "\n- ", ": ", ", ", "{", "}", "[", "]", "&a ", "*a", "<<: ", "? ", "!", "---\n", "...\n", "%"]
ODD = ["\t", "\0", "\r", "\ufeff", "\u2028", "\ud800", "'", '"', '"\\U', "|\n", ">\n", "@", "`", "#", "~", "0x", "1e9"]

snippets = st.lists(st.sampled_from(SIGNS + ODD) | st.sampled_from(WORDS) | st.text(max_size=4), max_size=40)


@st.composite
def mutations(draw: st.DrawFn) -> str:
    """Take a good policy, and cut, double or replace pieces of it."""
    text = draw(st.sampled_from(GOOD))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 30)))
        piece = draw(st.sampled_from(["", text[start:end] * 2]) | st.sampled_from(SIGNS + ODD + WORDS))
        text = text[:start] + piece + text[end:]
    return text


def findings_in(read: Callable[[], Settings]) -> tuple[Finding, ...] | None:
    """Return the findings, or ``None`` when it is good; any other exception is a failure."""
    try:
        assert isinstance(read(), Settings)
    except PolicyError as error:
        return error.findings
    return None


def judge(text: str) -> None:
    """Read `text`, and hold its findings against it."""
    findings = findings_in(lambda: policy.loads(text, "team.yaml", environ={}))
    if findings is None:
        return
    assert findings
    lines = re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))
    for finding in findings:
        assert 1 <= finding.line <= len(lines), finding
        assert 1 <= finding.column <= len(lines[finding.line - 1]) + 1, finding
        assert finding.message
        assert finding.file == "team.yaml"
        assert str(finding).isprintable(), "what a terminal would obey"


@given(st.text())
@example("\ud800")
@example("a: \x00")
@example("%TAG ! tag:x:\n--- !a\n")
@example("%YAML 1.2\n%YAML 1.2\n---\n")
@example("!<%F0%9F> x")
@example("a: &\n")
def test_any_text_is_read_or_refused(text):
    judge(text)


@given(snippets.map("".join))
def test_any_heap_of_yaml_is_read_or_refused(text):
    judge(text)


@given(mutations())
def test_any_damaged_policy_is_read_or_refused(text):
    judge(text)


@given(st.binary(max_size=200) | mutations().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_read_or_refused(tmp_path_factory, raw):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(raw)
    findings = findings_in(lambda: policy.load(path))
    assert all(finding.file == str(path) for finding in findings or ())


@pytest.mark.parametrize("text", GOOD)
def test_what_is_damaged_is_good_before(text):
    assert isinstance(policy.loads(text, environ={}), Settings)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=100))
def test_any_visible_name_may_be_a_tenant(name):
    quoted = "'" + name.replace("'", "''") + "'"
    text = f"version: 1\nendpoint: {{base_url: demo}}\ntenants: {{{quoted}: {{weight: 2}}}}\n"
    if name == "refuse" or "${" in name:
        with pytest.raises(PolicyError):
            policy.loads(text, environ={})
    else:
        assert policy.loads(text, environ={}).rules.tenants[name].weight == 2
