"""What the demo endpoint answers: the same for the same question, and always recognisable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairq_ipy.demo.answers import count_tokens, mark_of, plan, tokens_of

QUESTIONS = [
    "Please review `parse_line` before I merge it. [#17]",
    "Refactor class Loader in loader.py, step by step. [#18]",
    "Why is the queue longer on Mondays? [#19]",
]


@given(st.text())
def test_tokens_make_up_the_whole_text(text: str) -> None:
    assert "".join(tokens_of(text)) == text


@given(st.lists(st.text(), max_size=3), st.integers())
def test_the_same_question_gets_the_same_answer(texts: list[str], seed: int) -> None:
    assert plan(texts, seed=seed) == plan(texts, seed=seed)


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_repeats_its_questions_mark(question: str) -> None:
    answers = [plan([question], seed=seed).text for seed in range(50)]
    assert all(mark_of(answer) == mark_of(question) for answer in answers)
    assert len(set(answers)) > 5


def test_without_a_mark_an_answer_repeats_the_first_words() -> None:
    assert plan(["How long\nis it?"]).text.startswith("**On “How long”**")
    assert (
        "one two three four five six seven eight nine ten eleven twelve …"
        in plan(["one two three four five six seven eight nine ten eleven twelve thirteen"]).text
    )


def test_what_is_repeated_carries_no_markup() -> None:
    text = plan(["<img src=x> *a* `b` [c](d) | # \\"]).text
    assert text.startswith("**On “img src=x a b c(d)”**")


@pytest.mark.parametrize(
    ("question", "subject"),
    [
        ("review `a.b(c)`", "`a.b(c)`"),
        ("review def load(x): pass", "`load`"),
        ("review class Loader: pass", "`Loader`"),
        ("review notes.md", "`notes.md`"),
        ("review this", "`the change`"),
    ],
)
def test_an_answer_speaks_of_what_the_question_names(question: str, subject: str) -> None:
    assert subject in plan([question]).text.splitlines()[0]


def test_refactoring_notes_are_longer_than_reviews() -> None:
    def mean(verb: str) -> float:
        return sum(plan([f"{verb} `it` [#{at}]"]).total_s for at in range(200)) / 200

    assert mean("refactor") > 1.8 * mean("review")


def test_a_cut_answer_says_so_and_keeps_its_beginning() -> None:
    whole, cut = plan([QUESTIONS[0]]), plan([QUESTIONS[0]], max_tokens=10)
    assert cut.pieces == whole.pieces[:10]
    assert (cut.finish_reason, whole.finish_reason) == ("length", "stop")
    assert plan([QUESTIONS[0]], max_tokens=len(whole.pieces)).finish_reason == "stop"
    assert cut.total_s < whole.total_s


def test_prompts_are_counted_by_message() -> None:
    assert count_tokens(["a b", "c"]) == 2 + 4 + 1 + 4
    assert plan(["a b", "c"]).prompt_tokens == 11
    assert plan([]).prompt_tokens == 0


def test_a_longer_prompt_takes_longer_to_its_first_token() -> None:
    assert plan(["word " * 40_000]).first_token_s > 10
