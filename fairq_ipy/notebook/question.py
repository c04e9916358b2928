"""One question of a cell: what was typed, and the conversation that it goes on with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from IPython.core.error import UsageError

from fairq_ipy.notebook.arguments import Parsed
from fairq_ipy.notebook.template import render

__all__ = ["Conversations", "Message", "Question", "question"]

Message: TypeAlias = Mapping[str, Any]
"""One message in the shape of the endpoint: ``role`` and ``content``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What ``%%ask`` was given; the options carry the names that they have there."""

    text: str
    tenant: str | None = None
    priority: str | None = None
    model: str | None = None
    system: str | None = None
    chat: str | None = None
    out: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    timeout: float | None = None
    stream: bool = True
    dry_run: bool = False


def question(who: str, parsed: Parsed, text: str, names: Mapping[str, Any]) -> Question:
    """Return the question; refuse one that says nothing before it costs anything.

    Args:
        who: the magic, for messages.
        parsed: its options.
        text: the text to send, before ``--template``.
        names: the caller's variables, for ``--template``.

    Raises:
        UsageError: nothing but white space is left to send, or the template is wrong.
        ConfigurationError: ``--template`` without Jinja2.
    """
    values = dict(parsed.values)
    if values.pop("template"):
        text = render(text, names)
    if not text.strip():
        raise UsageError(f"{who}: there is no text to send; nothing was sent ({who} --help)")
    return Question(text=text, stream=not values.pop("no_stream"), **values)


class Conversations:
    """The conversations of ``--chat``, by name. A turn is added when its answer is complete, never by halves."""

    def __init__(self) -> None:
        self._messages: dict[str, tuple[Message, ...]] = {}

    def names(self) -> list[str]:
        """Return the names of all conversations."""
        return list(self._messages)

    def prompt(self, asked: Question) -> list[Message]:
        """Return what to send: the conversation so far, if there is one, and the question."""
        so_far = self._messages.get(asked.chat, ()) if asked.chat is not None else ()
        return [*so_far, {"role": "user", "content": asked.text}]

    def keep(self, name: str, messages: Sequence[Message]) -> None:
        """Keep a conversation as it stands after an answer."""
        self._messages[name] = tuple(messages)
