"""What happened, in order: the keeper's memory of every event and what the core answered.

"What happened to ticket 17?" has an answer as long as the ring has not come round, and handing the same events to a
fresh core gives the same effects, which is how a report from elsewhere can be looked into.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from fairq_ipy.core.messages import (
    Admit,
    Backoff,
    Cancel,
    Effect,
    Event,
    Held,
    Pause,
    Paused,
    Progress,
    Ready,
    Refuse,
    Resume,
    Resumed,
    Settle,
    Submit,
    Unclaimed,
)
from fairq_ipy.core.model import Receipt, Ticket

__all__ = ["Journal", "Line", "replay"]


class Line(NamedTuple):
    """One event and its effects.

    Attributes:
        now: seconds on the keeper's clock.
        event: what the core was told.
        effects: what it answered.
    """

    now: float
    event: Event
    effects: list[Effect]


class Core(Protocol):
    """What a replay needs of a scheduler."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in an event."""


class Journal:
    """A ring of the latest lines.

    Args:
        size: how many it holds.
    """

    def __init__(self, size: int) -> None:
        self._ring: deque[tuple[float, Event, list[Effect]]] = deque(maxlen=size)
        self._lent: OrderedDict[int, int] = OrderedDict()
        self._size = size
        self.append = self._ring.append

    def __len__(self) -> int:
        return len(self._ring)

    def __iter__(self) -> Iterator[Line]:
        return (Line(*entry) for entry in list(self._ring))

    def story(self, ticket: int) -> list[str]:
        """Return what happened to one ticket, one sentence a line, with times since it was submitted.

        Empty when the journal knows nothing of it (any more). O(size of the ring).
        """
        own = _Story(ticket).tell(self)
        outer = self._lent.get(ticket)
        if outer is not None:
            return [f"call {ticket} ran under the permit of call {outer}:", *self.story(outer), *own]
        return own

    def lend(self, ticket: int, outer: int) -> None:
        """Note that a call runs under the permit of another one."""
        self._lent[ticket] = outer
        if len(self._lent) > self._size:
            self._lent.popitem(last=False)


def replay(core: Core, lines: Iterable[Line]) -> Iterator[tuple[Line, list[Effect]]]:
    """Hand the events of a journal to a fresh core; yield each line with what that core answers."""
    for line in lines:
        yield line, core.handle(line.event, line.now)


class _Story:
    """Reads a journal for one ticket."""

    def __init__(self, ticket: int) -> None:
        self._id = ticket
        self._asked: Ticket | None = None
        self._began: float | None = None
        self._waiting = False
        self._lines: list[str] = []

    def tell(self, journal: Journal) -> list[str]:
        for now, event, effects in journal:
            self._event(now, event)
            for effect in effects:
                self._effect(now, effect, by_hand=isinstance(event, Pause | Resume))
        return self._lines

    def _say(self, now: float, text: str) -> None:
        if self._began is None:
            self._began = now
        self._lines.append(f"{now - self._began:+9.3f} s  {text}")

    def _event(self, now: float, event: Event) -> None:
        if isinstance(event, Submit):
            if event.ticket.id == self._id:
                self._asked, self._waiting = event.ticket, True
                self._say(now, _asked(event.ticket))
            return
        teller: Callable[[Any], str] | None = _OWN.get(type(event))
        if teller is not None:
            if getattr(event, "id", None) == self._id:
                self._waiting = isinstance(event, Backoff | Ready)
                self._say(now, teller(event))
        elif self._waiting and isinstance(event, Pause | Resume) and event.tenant in (None, self._tenant):
            self._say(now, _whose(event))

    def _effect(self, now: float, effect: Effect, *, by_hand: bool) -> None:
        if isinstance(effect, Admit | Refuse):
            if effect.id == self._id:
                self._waiting = False
                self._say(now, _admitted(effect) if isinstance(effect, Admit) else _refused(effect))
        elif by_hand or not self._waiting:
            return
        elif isinstance(effect, Held):
            self._say(now, f"the endpoint is left alone for {effect.until - now:.3f} s")
        elif isinstance(effect, Paused) and effect.tenant == self._tenant:
            self._say(now, f"{effect.tenant} is paused: {effect.why}")
        elif isinstance(effect, Resumed) and effect.tenant == self._tenant:
            self._say(now, f"{effect.tenant} runs again")

    @property
    def _tenant(self) -> str | None:
        return None if self._asked is None else self._asked.tenant


def _asked(ticket: Ticket) -> str:
    size = f"about {ticket.prompt_tokens} prompt tokens" if ticket.prompt_tokens else "a prompt of unknown size"
    model = f" for {ticket.model}" if ticket.model else ""
    return f"{ticket.tenant} asks at level {ticket.level}{model}, with {size}"


def _admitted(effect: Admit) -> str:
    again = "" if effect.attempt == 1 else f" again, attempt {effect.attempt}"
    return f"admitted{again}, after {effect.waited:.3f} s in the queue"


def _refused(effect: Refuse) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in effect.facts.items() if value is not None)
    return f"refused: {effect.reason.replace('_', ' ')}" + (f" ({facts})" if facts else "")


def _backed_off(event: Backoff) -> str:
    status = "" if event.status is None else f" with {event.status}"
    wait = "" if event.retry_after is None else f" and asks to wait {event.retry_after:g} s"
    return f"the endpoint refuses{status}{wait}"


def _settled(event: Settle) -> str:
    receipt: Receipt = event.receipt
    if receipt.outcome == "unsent":
        return "given back without being sent"
    counted = "counted by the endpoint" if receipt.exact else "estimated"
    return f"over: {receipt.outcome}, {receipt.prompt_tokens} + {receipt.output_tokens} tokens, {counted}"


def _whose(event: Pause | Resume) -> str:
    who = "everything" if event.tenant is None else event.tenant
    return f"{who} is paused {event.why}" if isinstance(event, Pause) else f"{who} is resumed"


_OWN: dict[type, Callable[[Any], str]] = {
    Cancel: lambda _: "its caller left",
    Backoff: _backed_off,
    Settle: _settled,
    Unclaimed: lambda _: "its caller did not take the permit in time; it keeps its place",
    Ready: lambda _: "its caller is back",
    Progress: lambda event: f"{event.output_tokens} output tokens so far",
}
