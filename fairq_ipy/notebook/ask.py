"""One question from a cell to its answer: sent through the queue, shown as it comes, kept in its conversation."""

from __future__ import annotations

import json
import time
from typing import Any

from fairq_ipy.core.messages import Place
from fairq_ipy.errors import FairqError
from fairq_ipy.notebook import views
from fairq_ipy.notebook.answer import footer
from fairq_ipy.notebook.document import Document
from fairq_ipy.notebook.question import Conversations, Question
from fairq_ipy.notebook.surface import Surface
from fairq_ipy.notebook.wording import count, level_name, place_words, plural
from fairq_ipy.session import Session
from fairq_ipy.transport import chat, wire

__all__ = ["ask", "dry_run"]


def ask(session: Session, conversations: Conversations, asked: Question, surface: Surface) -> chat.Answer:
    """Ask, show and keep.

    However it ends, the place where the answer was to appear says so, and nothing stays in the queue.

    Args:
        session: whose queue and endpoint.
        conversations: of ``--chat``.
        asked: the question.
        surface: where the answer appears.

    Raises:
        FairqError: the queue or the endpoint said no; which one says why.
        KeyboardInterrupt: the user stopped it.
    """

    def placed(place: Place | None) -> None:
        surface.waiting("sent; the answer has not begun yet" if place is None else place_words(place, time.time()))

    try:
        answer = chat.ask(
            session,
            conversations.prompt(asked),
            tenant=asked.tenant,
            priority=asked.priority,
            model=asked.model,
            system=asked.system,
            max_tokens=asked.max_tokens,
            temperature=asked.temperature,
            timeout=asked.timeout,
            stream=asked.stream,
            on_text=surface.text if asked.stream else None,
            on_place=placed,
        )
    except KeyboardInterrupt:
        surface.ended("stopped")
        raise
    except FairqError as failure:
        surface.failed(f"no answer: {failure.reason.replace('_', ' ')}")
        raise
    except BaseException:
        surface.failed("no answer")
        raise
    surface.done(answer.text, footer(answer))
    if asked.chat is not None:
        conversations.keep(asked.chat, answer.messages)
    return answer


def dry_run(session: Session, conversations: Conversations, asked: Question) -> Document:
    """Return what would be sent, and as whom. No key is part of it.

    Raises:
        FairqError: the policy would not let it be asked.
    """
    settings = session.settings
    who = session.identify(asked.tenant, asked.priority)
    request = _request(session, conversations, asked)
    size = wire.read(json.dumps(request).encode())
    facts = {
        "to": views.endpoint_name(settings),
        "tenant": who.tenant,
        "level": level_name(who.level, views.level_names(settings.rules)),
        "prompt": f"about {count(size.prompt_tokens)} tokens in {plural(size.messages, 'message')}",
    }
    return views.dry_run(request, facts)


def _request(session: Session, conversations: Conversations, asked: Question) -> dict[str, Any]:
    """Return the JSON that `chat.ask` sends for the question; a test holds the two together."""
    messages = conversations.prompt(asked)
    if asked.system is not None:
        rest = [message for message in messages if message["role"] != "system"]
        messages = [{"role": "system", "content": asked.system}, *rest]
    endpoint = session.settings.endpoint
    options = {
        "model": endpoint.model if asked.model is None else asked.model,
        "max_tokens": asked.max_tokens,
        "temperature": asked.temperature,
        "stream_options": {"include_usage": True} if asked.stream and endpoint.stream_usage else None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    return {"messages": messages, "stream": asked.stream, **given}
