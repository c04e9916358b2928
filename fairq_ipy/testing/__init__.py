"""The public test kit: a clock that stands still, tickets, and a real HTTP endpoint that does what a test tells it.

Our own tests use only this, and so can a user's::

    from fairq_ipy.testing import ScriptedEndpoint, chat, error

    with ScriptedEndpoint() as mock:
        mock.reply(error(429, retry_after=1), chat("hi"))
        ...
"""

from __future__ import annotations

from fairq_ipy.testing.clock import FakeClock
from fairq_ipy.testing.endpoint import ScriptedEndpoint
from fairq_ipy.testing.gates import Gate
from fairq_ipy.testing.record import Counts, Recorded
from fairq_ipy.testing.replies import (
    Message,
    Pause,
    Reply,
    chat,
    chunk,
    cut,
    echo,
    embeddings,
    endless,
    error,
    html,
    json_reply,
    plain,
    raw,
    sse,
    stream,
)
from fairq_ipy.testing.tickets import TicketMaker, ticket

__all__ = [
    "Counts",
    "FakeClock",
    "Gate",
    "Message",
    "Pause",
    "Recorded",
    "Reply",
    "ScriptedEndpoint",
    "TicketMaker",
    "chat",
    "chunk",
    "cut",
    "echo",
    "embeddings",
    "endless",
    "error",
    "html",
    "json_reply",
    "plain",
    "raw",
    "sse",
    "stream",
    "ticket",
]
