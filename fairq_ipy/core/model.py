"""The words of the core: what a call asks for, what it may use, what it cost, and what the policy allows.

Everything here is immutable. Times are seconds of one monotonic clock, durations are seconds, sizes are tokens,
messages or characters as named. ``None`` means "no limit" or "not known"; 0 always means zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

Unit: TypeAlias = Literal["requests", "messages", "tokens"]
Per: TypeAlias = Literal["session", "minute", "hour", "day", "month"]
Outcome: TypeAlias = Literal["ok", "failed", "cancelled", "truncated", "unsent"]
Reason: TypeAlias = Literal[
    "queue_full",
    "budget",
    "context",
    "paused",
    "evicted",
    "queue_timeout",
    "unknown_tenant",
    "would_deadlock",
    "shut_down",
    "endpoint",
]

LEVELS = range(10)
"""The level numbers that a policy or a caller may name; lower is sooner."""


CREDIBLE: Final = 10**9
"""The most tokens that one call can have used. A larger number is a mistake of whoever counted, and would drown the
counts of all others: floats absorb what is 2**53 times smaller, and beyond 1e308 they end."""


class Ticket(NamedTuple):
    """A call that wants to go.

    Attributes:
        id: the caller's number for it, unique in a session.
        tenant: who asks.
        level: priority class, one of `LEVELS`.
        prompt_tokens: estimated size of the prompt.
        max_tokens: the request's own limit on output tokens, if it has one.
        messages: messages in the request.
        model: model name, for the output estimate; may be empty.
        max_wait: seconds it may wait in the queue; ``None`` takes the policy's.
    """

    id: int
    tenant: str
    level: int
    prompt_tokens: int = 0
    max_tokens: int | None = None
    messages: int = 0
    model: str = ""
    max_wait: float | None = None

    def credible(self) -> Ticket:
        """Return it with counts that can be true."""
        most = 0 if self.max_tokens is None else self.max_tokens
        if max(self.prompt_tokens, most) <= CREDIBLE:
            return self
        limit = None if self.max_tokens is None else min(most, CREDIBLE)
        return self._replace(prompt_tokens=min(self.prompt_tokens, CREDIBLE), max_tokens=limit)


class Receipt(NamedTuple):
    """What an admitted call cost, told once when its last byte has come or its caller has gone.

    Attributes:
        outcome: ``ok``; ``failed`` (an error of the endpoint or the network); ``cancelled`` (the caller left);
            ``truncated`` (the stream was cut or ended in an error); ``unsent`` (never reached the endpoint: refunded).
        prompt_tokens: as the endpoint counted, else as estimated.
        output_tokens: likewise.
        exact: whether the endpoint itself counted.
        chars: length of the answer's text.
        acted: whether the answer calls a tool or carries reasoning; such an answer is never empty.
        status: HTTP status, if there was one.
    """

    outcome: Outcome = "ok"
    prompt_tokens: int = 0
    output_tokens: int = 0
    exact: bool = False
    chars: int = 0
    acted: bool = False
    status: int | None = None

    def credible(self) -> Receipt:
        """Return it with counts that can be true."""
        if max(self.prompt_tokens, self.output_tokens) <= CREDIBLE:
            return self
        prompt, output = min(self.prompt_tokens, CREDIBLE), min(self.output_tokens, CREDIBLE)
        return self._replace(prompt_tokens=prompt, output_tokens=output, exact=False)

    @property
    def answered(self) -> bool:
        """Whether the endpoint is there and does not refuse; a caller's own mistake (4xx) is an answer too."""
        if self.status is None:
            return self.outcome == "ok"
        return self.status < HTTPStatus.INTERNAL_SERVER_ERROR and self.status != HTTPStatus.TOO_MANY_REQUESTS


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a tenant may use per window.

    Attributes:
        unit: what is counted.
        limit: how many in one window; 0 allows none.
        per: the window; ``session`` never turns.
    """

    unit: Unit
    limit: int
    per: Per = "session"


@dataclass(frozen=True, slots=True)
class Context:
    """How much one request may carry: messages, and tokens of the prompt."""

    messages: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """When a tenant's answers carry no information, and what follows.

    Attributes:
        min_chars: an answer shorter than this that neither calls a tool nor reasons is empty.
        threshold: how many in a row.
        action: ``warn``, ``pause``, or ``evict`` (pause, and refuse what is queued).
        resume_after: seconds until one probe may go; ``None`` leaves it to a person.
        resume_max: the longest cool-down; each failed probe doubles the last one up to this.
    """

    min_chars: int = 1
    threshold: int = 3
    action: Literal["warn", "pause", "evict"] = "pause"
    resume_after: float | None = None
    resume_max: float = 900.0


@dataclass(frozen=True, slots=True)
class TenantPolicy:
    """What holds for one tenant.

    Attributes:
        level: its level when a call names none.
        weight: its share against others of the level; above 0.
        concurrency: how many of its calls may be in flight.
        queue: how many of its calls may wait; ``None`` takes the limit for every tenant.
        context: bounds of one request.
        budgets: bounds per window; all of them hold.
        on_exhausted: ``refuse`` at once, or ``wait`` for the window to turn.
        on_paused: ``wait`` in the queue, or ``refuse`` at once.
        stall: the stall rule; ``None`` for none.
    """

    level: int = 1
    weight: float = 1.0
    concurrency: int | None = None
    queue: int | None = None
    context: Context = Context()
    budgets: tuple[Budget, ...] = ()
    on_exhausted: Literal["refuse", "wait"] = "refuse"
    on_paused: Literal["wait", "refuse"] = "wait"
    stall: Stall | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """A priority class. ``reserve`` slots of it cannot be taken by later levels."""

    number: int
    name: str
    reserve: int = 0


@dataclass(frozen=True, slots=True)
class Adaptive:
    """The bounds within which the concurrency is found by asking."""

    least: int = 1
    most: int = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """How many, how fast, and how long.

    Attributes:
        concurrency: calls in flight at once; where it is adaptive, at first.
        adaptive: bounds within which the concurrency follows what the endpoint takes; ``None`` keeps it fixed.
        queue: calls that may wait, over all tenants; 0 means that a call goes at once or not at all.
        queue_per_tenant: calls of one tenant that may wait.
        max_wait: seconds a call may wait.
        requests_per_minute: requests sent in any 60 s.
        tokens_per_minute: prompt and output tokens of the requests sent in any 60 s.
        first_token: seconds a server may think before its first data.
        idle_stream: seconds a stream may be silent after that.
    """

    concurrency: int = 2
    adaptive: Adaptive | None = None
    queue: int | None = 100
    queue_per_tenant: int | None = None
    max_wait: float | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    first_token: float | None = 120.0
    idle_stream: float | None = 60.0


@dataclass(frozen=True, slots=True)
class Backpressure:
    """What happens when the endpoint says 429 or 503.

    Attributes:
        retries: how often one request is sent again.
        base: seconds of the first hold when the endpoint names none; it doubles with every refusal in a row.
        max_hold: the longest hold, in seconds; a longer Retry-After is cut to it.
    """

    retries: int = 3
    base: float = 1.0
    max_hold: float = 120.0


@dataclass(frozen=True, slots=True)
class Policy:
    """All the rules of one queue.

    Attributes:
        limits: of the endpoint.
        levels: the named levels, in order of their numbers.
        starve_after: seconds after which a level that gets nothing gets one admission; ``None`` switches it off.
        headroom_for: seconds for which a tenant's activity keeps the others from taking every slot; 0 switches it off.
        backpressure: what a refusing endpoint is met with.
        defaults: what holds for a tenant that is not named.
        tenants: what holds for those that are.
        default_tenant: who an untagged call is; ``None`` refuses it.
        unknown_tenants: whether tenants that are not named may ask.
        prompt_weight: cost of one prompt token (``a`` of the fairness rule).
        output_weight: cost of one output token (``b``).
    """

    limits: Limits = Limits()
    levels: tuple[Level, ...] = (Level(1, "interactive"), Level(2, "batch"))
    starve_after: float | None = 30.0
    headroom_for: float = 60.0
    backpressure: Backpressure = Backpressure()
    defaults: TenantPolicy = TenantPolicy()
    tenants: Mapping[str, TenantPolicy] = field(default_factory=lambda: MappingProxyType({}))
    default_tenant: str | None = "notebook"
    unknown_tenants: Literal["allow", "refuse"] = "allow"
    prompt_weight: float = 1.0
    output_weight: float = 2.0

    def tenant(self, name: str) -> TenantPolicy:
        """Return what holds for `name`."""
        return self.tenants.get(name, self.defaults)

    def admits(self, name: str) -> bool:
        """Return whether a tenant of that name may ask at all."""
        return self.unknown_tenants == "allow" or name in self.tenants or name == self.default_tenant
