"""The life of a ticket as a table: what may happen to it in which state.

A missing key is the illegal move. Every ticket enters once, through `ENQUEUE` or `REFUSE`, and reaches exactly one of
the three ends. ``DORMANT`` is a ticket that was offered a permit which nobody took: it keeps its place in line, and is
passed over until its waiter is back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from fairq_ipy.core.model import Ticket

if TYPE_CHECKING:
    from fairq_ipy.core.fairness import Lane
    from fairq_ipy.core.limits import Spent

State: TypeAlias = Literal["new", "waiting", "dormant", "running", "settled", "refused", "cancelled"]
Move: TypeAlias = Literal["enqueue", "admit", "settle", "refuse", "cancel", "requeue", "unclaim", "wake"]

TRANSITIONS: Final[Mapping[tuple[State, Move], State]] = {
    ("new", "enqueue"): "waiting",
    ("new", "refuse"): "refused",
    ("waiting", "admit"): "running",
    ("waiting", "refuse"): "refused",
    ("waiting", "cancel"): "cancelled",
    ("dormant", "wake"): "waiting",
    ("dormant", "refuse"): "refused",
    ("dormant", "cancel"): "cancelled",
    ("running", "settle"): "settled",
    ("running", "requeue"): "waiting",
    ("running", "refuse"): "refused",
    ("running", "unclaim"): "dormant",
}

WAITING: Final = frozenset({"waiting", "dormant"})


class Entry:
    """One ticket inside the core: the only mutable record of it.

    Attributes:
        ticket: what the caller asked for.
        lane: where it waits.
        seq: order of arrival, kept over retries.
        state: see `TRANSITIONS`.
        arrived: when it was submitted.
        since: when its present wait or run began.
        v_arrived: the level's virtual time at its arrival; no refund takes the lane's counter below it.
        deadline: when it has waited too long; ``None`` for never.
        waited: seconds in the queue before the present wait.
        attempts: how often it was admitted.
        charged: cost charged for the running attempt.
        charged_output: output tokens in that charge.
        share: the lane's weight when it was charged.
        held_tokens: tokens reserved in the tenant's budgets.
        sent: its line in the request rate window, if that limit is on.
        spent: its line in the token rate window, if that limit is on.
    """

    __slots__ = (
        "arrived",
        "attempts",
        "charged",
        "charged_output",
        "deadline",
        "held_tokens",
        "lane",
        "sent",
        "seq",
        "share",
        "since",
        "spent",
        "state",
        "ticket",
        "v_arrived",
        "waited",
    )

    def __init__(self, ticket: Ticket, lane: Lane, seq: int, now: float, v_arrived: float) -> None:
        self.ticket = ticket
        self.lane = lane
        self.seq = seq
        self.state: State = "new"
        self.arrived = now
        self.since = now
        self.v_arrived = v_arrived
        self.deadline: float | None = None
        self.waited = 0.0
        self.attempts = 0
        self.charged = 0.0
        self.charged_output = 0.0
        self.share = 1.0
        self.held_tokens = 0
        self.sent: Spent | None = None
        self.spent: Spent | None = None

    def move(self, move: Move) -> None:
        """Change the state, or raise `ValueError` when the table has no such move."""
        try:
            self.state = TRANSITIONS[self.state, move]
        except KeyError:
            text = f"ticket {self.ticket.id} is {self.state}: {move!r} is not possible"
            raise ValueError(text) from None
