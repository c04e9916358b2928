"""What a cell asks, and what a conversation carries along."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.error import UsageError

from fairq_ipy.notebook.commands import ASK
from fairq_ipy.notebook.question import Conversations, Question, question


def asked(line: str, text: str, **names: Any) -> Question:
    return question("%%ask", ASK.parse(line, names), text, names)


def test_the_text_is_what_was_given() -> None:
    assert asked("", " {x} {{ x }}\n", x=1).text == " {x} {{ x }}\n"


def test_a_template_is_filled_in_only_where_it_is_asked_for() -> None:
    assert asked("--template", "{x} {{ x }}\n", x=1).text == "{x} 1\n"


@pytest.mark.parametrize("text", ["", "\n", "  \n\t\n", "\u2028"])
def test_a_blank_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="nothing was sent"):
        asked("", text)


def test_a_template_that_comes_out_blank_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing was sent"):
        asked("--template", "{{ x }}", x=" ")


def test_options_arrive_with_their_values() -> None:
    line = "--tenant a --priority 0 --temperature 0 --max-tokens 5 --timeout 2m --no-stream --out y"
    assert asked(line, "x") == Question(
        text="x", tenant="a", priority="0", temperature=0.0, max_tokens=5, timeout=120.0, stream=False, out="y"
    )


def said(messages: list[Any]) -> list[str]:
    return [message["content"] for message in messages]


def test_a_question_without_a_chat_stands_alone() -> None:
    talks = Conversations()
    talks.keep("plans", [{"role": "user", "content": "one"}])
    assert talks.prompt(Question(text="x")) == [{"role": "user", "content": "x"}]


def test_a_chat_carries_all_turns_along() -> None:
    talks = Conversations()
    first = talks.prompt(Question(text="one", chat="plans"))
    talks.keep("plans", [{"role": "system", "content": "be brief"}, *first, {"role": "assistant", "content": "1"}])
    assert said(talks.prompt(Question(text="two", chat="plans"))) == ["be brief", "one", "1", "two"]


def test_a_turn_without_an_answer_leaves_no_trace() -> None:
    talks = Conversations()
    talks.prompt(Question(text="one", chat="plans"))
    assert talks.names() == []
    assert said(talks.prompt(Question(text="two", chat="plans"))) == ["two"]


def test_conversations_do_not_mix() -> None:
    talks = Conversations()
    talks.keep("a", talks.prompt(Question(text="one", chat="a")))
    assert said(talks.prompt(Question(text="two", chat="b"))) == ["two"]
    assert talks.names() == ["a"]
