"""What goes into the core, what comes out, and the picture of it.

Events are facts that happened outside. Effects are orders to the outside. Both are immutable tuples, so that a journal
of them can be kept, shown as a story, and replayed to the same effects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from fairq_ipy.core.model import Per, Policy, Reason, Receipt, Ticket, Unit

# --------------------------------------------------------------------------------------------------------- events


class Submit(NamedTuple):
    """A ticket asks to go."""

    ticket: Ticket


class Cancel(NamedTuple):
    """The caller of a waiting ticket gave up. For one in flight, the outside closes it and settles it."""

    id: int


class Progress(NamedTuple):
    """A running stream has produced this many output tokens so far."""

    id: int
    output_tokens: int


class Settle(NamedTuple):
    """A running call is over."""

    id: int
    receipt: Receipt


class Backoff(NamedTuple):
    """The endpoint refused a running call for now.

    Attributes:
        id: the ticket.
        retry_after: seconds the endpoint asked for; ``None`` when it named none that makes sense.
        jitter: a number in [0, 1) drawn outside, since the core knows no chance.
        status: HTTP status.
    """

    id: int
    retry_after: float | None
    jitter: float
    status: int | None = None


class Unclaimed(NamedTuple):
    """An offered permit was not taken in time; the ticket keeps its place but is not offered again until `Ready`."""

    id: int


class Ready(NamedTuple):
    """The waiter of an unclaimed ticket can take an offer again."""

    id: int


class Pause(NamedTuple):
    """A person pauses a tenant, or all (``None``)."""

    tenant: str | None = None
    why: str = "by hand"


class Resume(NamedTuple):
    """A person resumes a tenant, or all (``None``)."""

    tenant: str | None = None


class Hold(NamedTuple):
    """The endpoint must be left alone until this time; an earlier time than the present hold changes nothing."""

    until: float


class Capacity(NamedTuple):
    """How many slots the slot source grants now; ``None`` means as many as the policy's concurrency says."""

    slots: int | None


class PolicyChanged(NamedTuple):
    """New rules hold from now on."""

    policy: Policy


class WindowTurned(NamedTuple):
    """A budget window began. `ends` is when it turns, on the core's clock."""

    per: Per
    ends: float


class Tick(NamedTuple):
    """Time has passed."""


class Close(NamedTuple):
    """Nothing more is admitted; whoever waits is refused."""


Event: TypeAlias = (
    Submit
    | Cancel
    | Progress
    | Settle
    | Backoff
    | Unclaimed
    | Ready
    | Pause
    | Resume
    | Hold
    | Capacity
    | PolicyChanged
    | WindowTurned
    | Tick
    | Close
)

# -------------------------------------------------------------------------------------------------------- effects


class Admit(NamedTuple):
    """The ticket may go now.

    Attributes:
        id: the ticket.
        attempt: 1 for the first time.
        waited: seconds in the queue, over all attempts.
    """

    id: int
    attempt: int
    waited: float


class Refuse(NamedTuple):
    """The ticket will not go (again). `facts` are the attributes of the error that the caller gets."""

    id: int
    reason: Reason
    facts: Mapping[str, Any]


class Paused(NamedTuple):
    """A tenant was paused, by the stall rule or by a person. `until` is when a probe may go, if one may."""

    tenant: str | None
    why: str
    until: float | None


class Resumed(NamedTuple):
    """A tenant, or all (``None``), runs again."""

    tenant: str | None


class Warned(NamedTuple):
    """The stall rule saw something and only says so."""

    tenant: str
    why: str


class Held(NamedTuple):
    """The endpoint is left alone until then."""

    until: float


Effect: TypeAlias = Admit | Refuse | Paused | Resumed | Warned | Held

# ------------------------------------------------------------------------------------------------------- snapshot

TenantState: TypeAlias = Literal["idle", "running", "waiting", "paused", "stalled", "probing", "over_budget"]


@dataclass(frozen=True, slots=True)
class BudgetState:
    """One budget of one tenant: how much of `limit` is used and reserved, and when its window turns."""

    unit: Unit
    per: Per
    limit: int
    used: int
    reserved: int
    resets_at: float | None


@dataclass(frozen=True, slots=True)
class TenantSnapshot:
    """One tenant at one moment.

    Attributes:
        queued: its calls that wait.
        in_flight: its calls that run.
        state: the one word for it.
        submitted, completed, rejected, cancelled, failed: counts since the session began. `failed` is part of
            `completed`: calls that ran and ended in an error.
        tokens: prompt and output tokens charged.
        weight: its share.
        level: its default level.
        why: why it is paused or stalled; empty otherwise.
        until: when that ends by itself.
        budgets: its budgets.
        last_wait: seconds its latest admitted call waited; ``None`` before the first.
        oldest_wait: seconds its longest waiting call has waited; ``None`` when none waits.
    """

    queued: int = 0
    in_flight: int = 0
    state: TenantState = "idle"
    submitted: int = 0
    completed: int = 0
    rejected: int = 0
    cancelled: int = 0
    failed: int = 0
    tokens: int = 0
    weight: float = 1.0
    level: int = 1
    why: str = ""
    until: float | None = None
    budgets: tuple[BudgetState, ...] = ()
    last_wait: float | None = None
    oldest_wait: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole queue at one moment; immutable, cheap to keep and to compare.

    Attributes:
        in_flight: calls that run.
        queued: calls that wait.
        cap: how many may run.
        paused: whether all is paused.
        held_until: when the hold ends; ``None`` when there is none.
        submitted, completed, rejected, cancelled, failed: counts since the session began. Every ticket ends in
            exactly one of `completed`, `rejected` and `cancelled`.
        refusals_by_endpoint: how often the endpoint said 429 or 503.
        retries: how often a call was sent again.
        tokens: prompt and output tokens charged.
        queue_bound: how many may wait; ``None`` for no bound.
        tenants: by name, everyone who ever asked and everyone the policy names.
        why_held: ``""``, or why nothing is admitted though slots are free.
    """

    in_flight: int = 0
    queued: int = 0
    cap: int = 0
    paused: bool = False
    held_until: float | None = None
    submitted: int = 0
    completed: int = 0
    rejected: int = 0
    cancelled: int = 0
    failed: int = 0
    refusals_by_endpoint: int = 0
    retries: int = 0
    tokens: int = 0
    queue_bound: int | None = None
    tenants: Mapping[str, TenantSnapshot] = field(default_factory=lambda: MappingProxyType({}))
    why_held: str = ""


WaitsFor: TypeAlias = Literal["slot", "hold", "paused", "stalled", "budget", "rate", "headroom", "concurrency", "offer"]


class Place(NamedTuple):
    """Where a waiting ticket stands, for its waiting line.

    Attributes:
        ahead: tickets that are likely to go before it (those of sooner levels, and those before it in its lane and
            its level); an upper bound under fairness.
        why: what it waits for: ``slot``, ``hold``, ``paused``, ``stalled``, ``budget``, ``rate``, ``headroom``,
            ``concurrency`` (its tenant's own) or ``offer``.
        until: when that ends, if that is known.
    """

    ahead: int
    why: WaitsFor
    until: float | None = None
