"""Waiting for an answer as our own front end does: with a deadline, and showing the place in the queue meanwhile."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from fairq_ipy.core.messages import Place
from fairq_ipy.errors import QueueTimeoutError
from fairq_ipy.runtime.gate import LoopGate, ThreadGate
from fairq_ipy.transport.exchange import Answer, Exchange
from fairq_ipy.transport.governing import Wish

__all__ = ["await_answer", "wait_for_answer"]

SHOW_EVERY: Final = 0.25
"""Seconds between two looks at a waiting call's place."""

LATE: Final = 0.5
"""Seconds that the queue may be late with its own refusal before the caller leaves by itself."""


def wait_for_answer(gate: ThreadGate[Answer], exchange: Exchange, wish: Wish) -> Answer:
    """Wait on this thread.

    Raises:
        QueueTimeoutError: the deadline passed before the call was sent.
        TimeoutError: it passed after.
    """
    shown: Place | None = None
    while True:
        try:
            answer = gate.wait(_step(exchange, wish))
        except TimeoutError:
            if gate.done:
                raise
        else:
            _show(wish, None, shown)
            return answer
        _check_deadline(exchange, wish)
        shown = _show(wish, exchange.keeper.place(exchange.ticket.id), shown)


async def await_answer(gate: LoopGate[Answer], exchange: Exchange, wish: Wish) -> Answer:
    """Do the same for a task."""
    shown: Place | None = None
    while not gate.done:
        await asyncio.wait([gate.future], timeout=_step(exchange, wish))
        if not gate.done:
            _check_deadline(exchange, wish)
            shown = _show(wish, exchange.keeper.place(exchange.ticket.id), shown)
    _show(wish, None, shown)
    return await gate


def _deadline(exchange: Exchange, wish: Wish) -> float | None:
    """Return when to give up; a call that was not sent yet is the queue's to refuse, which knows the same time."""
    if wish.deadline is None or exchange.account.attempts:
        return wish.deadline
    return wish.deadline + LATE


def _step(exchange: Exchange, wish: Wish) -> float | None:
    """Return after how many seconds there is something to do besides waiting."""
    step = None if wish.on_place is None else SHOW_EVERY
    deadline = _deadline(exchange, wish)
    if deadline is None:
        return step
    left = max(deadline - time.monotonic(), 0.0)
    return left if step is None else min(left, step)


def _show(wish: Wish, place: Place | None, shown: Place | None) -> Place | None:
    """Show a place; that the wait is over is shown once, and only to those who saw it begin."""
    if wish.on_place is not None and (place is not None or shown is not None):
        wish.on_place(place)
    return place


def _check_deadline(exchange: Exchange, wish: Wish) -> None:
    deadline = _deadline(exchange, wish)
    if deadline is None or time.monotonic() < deadline:
        return
    if exchange.account.attempts:
        raise TimeoutError
    ticket = exchange.ticket
    waited = 0.0 if wish.max_wait is None else wish.max_wait
    text = f"waited {waited:.3g} s in the queue and was not sent; try again when less is queued, or allow it more time"
    raise QueueTimeoutError(text, tenant=ticket.tenant, ticket=ticket.id, waited=waited)
