"""The text of a cell, byte for byte, and what IPython would do to it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from fairq_ipy.notebook.cell import CellText, QuestionLine, lone_cell_magic

BODIES = [
    "hello",
    "hello\n",
    "hello\n\n\n",
    "a\n   \n\t\nb  \n",
    ">>> 1 + 1\n2",
    "In [1]: 1 + 1\n   ...: 2",
    "... go on",
    "!ls\n?x\nx?\n%%time\n%d %s\n",
    "  indented\n    more",
    "const f = (x: {a: number}) => `${x.a}`;\n{undefined} $HOME \\n \\",
    "[x for x in {1: {2: 3}}]\n{{ jinja }} {% raw %} {# no #}",
    "form\x0cfeed\x1cfile\u2028line\u2029paragraph\x85next\x0bvertical",
    "carriage\r\nreturn\r\n",
    "Zürich 研究 🎈\n",
    "\n\nfirst",
    "''' \"\"\" \\' \\\" \0",
]


def run(manager: TransformerManager, cell: str) -> list[tuple[str, str, str]]:
    """What the magics are called with when `cell` is run."""
    calls: list[tuple[str, str, str]] = []
    shell = SimpleNamespace(
        run_cell_magic=lambda name, line, body: calls.append((name, line, body)),
        run_line_magic=lambda name, line: calls.append((name, line, "")),
    )
    exec(manager.transform_cell(cell), {"get_ipython": lambda: shell})  # noqa: S102 - what IPython made of the cell
    return calls


@pytest.fixture
def manager() -> TransformerManager:
    manager = TransformerManager()
    manager.cleanup_transforms.append(lone_cell_magic)
    manager.token_transformers.append(QuestionLine)
    return manager


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("head", ["%%ask\n", "%%ask --tenant 'my  team'\n", "\n  \n%%ask --priority 1 \n"])
def test_a_body_is_byte_for_byte_what_was_typed(manager: TransformerManager, head: str, body: str) -> None:
    text = CellText(manager.transform_cell)
    text.pre_run_cell(SimpleNamespace(raw_cell=head + body))
    ((name, line, cell),) = run(manager, head + body)
    assert name == "ask"
    assert text.body(line, cell) == body


def test_what_ipython_would_hand_over_is_another_text(manager: TransformerManager) -> None:
    ((_, _, cell),) = run(manager, "%%ask\na\n   \nb")
    assert cell == "a\n\nb\n"


def test_a_magic_in_a_magic_has_the_text_that_it_is_given(manager: TransformerManager) -> None:
    text = CellText(manager.transform_cell)
    text.pre_run_cell(SimpleNamespace(raw_cell="%%time\n%%ask\nhello"))
    assert text.body("", "hello\n") == "hello\n"


def test_a_call_from_code_has_the_text_that_it_is_given(manager: TransformerManager) -> None:
    text = CellText(manager.transform_cell)
    text.pre_run_cell(SimpleNamespace(raw_cell="%%ask\nanother text"))
    assert text.body("", "hello") == "hello"
    assert CellText(manager.transform_cell).body("", "hello") == "hello"


@pytest.mark.parametrize("cell", ["%%ask --help", "%%ask --help\n", "%%ask"])
def test_a_magic_without_a_text_is_asked_what_it_says_to_that(manager: TransformerManager, cell: str) -> None:
    ((name, line, body),) = run(manager, cell)
    assert (name, line, body) == ("ask", cell.strip()[6:], "\n")


def test_a_terminal_waits_for_the_text(manager: TransformerManager) -> None:
    assert manager.check_complete("%%ask")[0] == "incomplete"
    assert manager.check_complete("%%ask\nhello\n\n")[0] == "complete"


def test_other_lone_magics_are_left_alone(manager: TransformerManager) -> None:
    assert run(manager, "%%asking") == [("asking", "", "")]
    assert run(manager, "%%ask?") == [("pinfo", "%%ask", "")]


@pytest.mark.parametrize(
    ("cell", "calls"),
    [
        ("%ask What is a monad?", [("ask", "What is a monad?", "")]),
        ("x = %ask What is a monad?", [("ask", "What is a monad?", "")]),
        ("%ask It's what?", [("ask", "It's what?", "")]),
        ("if True:\n    %ask Is it {x}?", [("ask", "Is it {x}?", "")]),
        ("x = 1\n%ask What is it??\ny = 2", [("ask", "What is it??", "")]),
        ("%ask --tenant a why?\n%ask how?", [("ask", "--tenant a why?", ""), ("ask", "how?", "")]),
        ("%ask What is a monad", [("ask", "What is a monad", "")]),
        ("%ask?", [("pinfo", "%ask", "")]),
        ("%ask??", [("pinfo2", "%ask", "")]),
        ("print?", [("pinfo", "print", "")]),
        ("%asking what?", [("pinfo", "what", "")]),
        ("text = '''\n%ask What is it?\n'''", []),
        ("ask = 2; x = 7 %ask", []),
    ],
)
def test_a_question_mark_ends_a_question_to_the_model(
    manager: TransformerManager, cell: str, calls: list[tuple[str, str, str]]
) -> None:
    assert run(manager, cell) == calls
