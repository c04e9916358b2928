"""What the demo endpoint answers, and how long that takes: a function of the question alone.

The same question gets the same answer in the same time, on each machine and in each run. That is what lets `fairq demo`
compare two runs of the same work, compute the least time that work can take, and check that each answer belongs to its
question: an answer always repeats the question's own mark, as ``[#17]``, or else its first words.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from fairq_ipy.demo import phrases

__all__ = ["Plan", "count_tokens", "mark_of", "plan", "tokens_of"]

TOKENS_PER_SECOND: Final = 60.0
"""How fast an answer is written, at speed 1: a small model on a shared card."""

_FIRST_TOKEN: Final = (0.2, 0.4)
_PROMPT_TOKENS_PER_SECOND: Final = 4000.0

_ECHOED_WORDS: Final = 12
_TOKEN: Final = re.compile(r"\s*(?:\w+|[^\w\s])|\s+")
_MARK: Final = re.compile(r"\[#[\w.-]{1,40}\]")
_CODE: Final = re.compile(r"`([^`\n]{1,60})`|\b(?:def|class)\s+(\w+)|\b(\w+\.(?:py|ts|js|sql|yaml|md))\b")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


class Plan(NamedTuple):
    """An answer before it is sent.

    Attributes:
        pieces: its tokens; joined, they are the text.
        prompt_tokens: size of the question.
        first_token_s: seconds until the first token, at speed 1.
        total_s: seconds until the last one, at speed 1.
        finish_reason: ``stop``, or ``length`` when `max_tokens` cut it.
    """

    pieces: tuple[str, ...]
    prompt_tokens: int
    first_token_s: float
    total_s: float
    finish_reason: str

    @property
    def text(self) -> str:
        """The whole answer."""
        return "".join(self.pieces)


def tokens_of(text: str) -> list[str]:
    """Split `text` into tokens (words and signs, each with the blanks before it); joined, they are `text` again."""
    return _TOKEN.findall(text)


def count_tokens(texts: Sequence[str]) -> int:
    """Return how many tokens a prompt of these messages has; each message costs four more, as in the real API."""
    return sum(len(tokens_of(text)) + 4 for text in texts)


def mark_of(text: str) -> str | None:
    """Return the last mark like ``[#17]`` in `text`."""
    found = _MARK.findall(text)
    return found[-1] if found else None


def plan(texts: Sequence[str], *, max_tokens: int | None = None, seed: int = 0) -> Plan:
    """Return the answer to a conversation.

    Args:
        texts: the messages' texts; the last one is the question.
        max_tokens: where the answer is cut.
        seed: another seed gives other answers to the same questions.
    """
    question = texts[-1] if texts else ""
    digest = hashlib.blake2b("\0".join([str(seed), *texts]).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    chance = random.Random(int.from_bytes(digest, "big"))
    text = _write(question, chance)
    pieces = tokens_of(text)
    finish_reason = "stop"
    if max_tokens is not None and len(pieces) > max_tokens:
        pieces, finish_reason = pieces[:max_tokens], "length"
    prompt_tokens = count_tokens(texts)
    first = chance.uniform(*_FIRST_TOKEN) + prompt_tokens / _PROMPT_TOKENS_PER_SECOND
    return Plan(tuple(pieces), prompt_tokens, first, first + len(pieces) / TOKENS_PER_SECOND, finish_reason)


def _write(question: str, chance: random.Random) -> str:
    lowered = question.lower()
    if "refactor" in lowered:
        return _refactoring(question, chance)
    if "review" in lowered:
        return _review(question, chance)
    return _note(question, chance)


def _review(question: str, chance: random.Random) -> str:
    it = _subject(question)
    points = chance.sample(phrases.REVIEW, chance.choice((2, 2, 3)))
    lines = [f"{at}. {point.format(it=it)}" for at, point in enumerate(points, 1)]
    return "\n".join([f"**Review {_echo(question)}** of `{it}`: {chance.choice(phrases.REVIEW_VERDICTS)}", "", *lines])


def _refactoring(question: str, chance: random.Random) -> str:
    it = _subject(question)
    names = _NAME.findall(it)
    name = names[0] if names else "apply"
    steps = chance.sample(phrases.STEPS, chance.choice((3, 4, 5)))
    lines = [f"{at}. {step}" for at, step in enumerate(steps, 1)]
    sketch = chance.choice(phrases.SKETCHES).format(name=name)
    return "\n".join(
        [
            f"**Refactoring note {_echo(question)}** for `{it}`",
            "",
            chance.choice(phrases.WHY).format(it=it),
            "",
            *lines,
            "",
            "```python",
            sketch,
            "```",
            "",
            "Do it in that order; the tests stay green after each step.",
        ]
    )


def _note(question: str, chance: random.Random) -> str:
    points = chance.sample(phrases.POINTS, 3)
    lines = [f"- {point}" for point in points]
    end = "*A canned answer of the demo endpoint: it repeats your question and knows no more than that.*"
    return "\n".join([f"**{_echo(question)}**", "", chance.choice(phrases.OPENINGS), "", *lines, "", end])


def _echo(question: str) -> str:
    """Return what the answer repeats of its question: its mark, else its first words, as text without markup."""
    mark = mark_of(question)
    if mark is not None:
        return mark
    line = next((line.strip() for line in question.splitlines() if line.strip()), "an empty question")
    words = re.sub(r"[*_`<>#|\[\]\\]", "", line).split()
    shown = " ".join(words[:_ECHOED_WORDS])[:80].rstrip()
    return f"On “{shown}”" if len(words) <= _ECHOED_WORDS else f"On “{shown} …”"


def _subject(question: str) -> str:
    """Return the piece of code that a question names."""
    found = _CODE.search(question)
    if found is None:
        return "the change"
    return next(group for group in found.groups() if group)
