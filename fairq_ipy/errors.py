"""Every error that fairq_ipy raises, in one tree, grouped by who can mend it.

::

    FairqError
      PolicyError            the editor of the policy can mend it
      ConfigurationError     the caller's set-up can mend it (a key with a line break, a name that is not there)
      Refused                the caller can mend it
        QueueFullError         the queue holds as much as the policy allows
        BudgetExceededError    a budget of the tenant is used up
        ContextTooLargeError   one request carries more than the tenant may send
        TenantPausedError      the tenant, or everything, is paused and the policy says refuse
        TenantEvictedError     the stall rule dropped what the tenant had queued
        QueueTimeoutError      the call waited longer than it may
        UnknownTenantError     nobody of that name may ask
        WouldDeadlockError     the only slot is held by the very call that asks
        BypassBlockedError     a client that was not handed ours, and the guard blocks such calls
        ShutDownError          the session was closed while the call waited
      EndpointError          the operator of the endpoint can mend it
      StreamReclaimedError   a stream was opened and not read, or the server went silent
      ShareError             the store that shares the slots is out of reach

No other module defines an exception. Every error survives ``pickle`` and ``copy``: all its facts are attributes, and
its one positional argument is the sentence that is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = [
    "BudgetExceededError",
    "BypassBlockedError",
    "ConfigurationError",
    "ContextTooLargeError",
    "EndpointError",
    "FairqError",
    "Finding",
    "PolicyError",
    "QueueFullError",
    "QueueTimeoutError",
    "Refused",
    "ShareError",
    "ShutDownError",
    "StreamReclaimedError",
    "TenantEvictedError",
    "TenantPausedError",
    "UnknownTenantError",
    "WouldDeadlockError",
    "refusal_types",
]


class FairqError(Exception):
    """The root: catch it to catch all that fairq_ipy raises by itself.

    Attributes:
        reason: one machine-readable word, the same as in the ``x-fairq-reason`` header.
        tenant: who asked, where that is known.
        ticket: number of the call, for ``%fairq story``.
        retry_after: seconds after which another try makes sense; ``None`` when waiting does not help.
    """

    reason: str = "error"

    def __init__(
        self,
        message: str = "",
        *,
        tenant: str | None = None,
        ticket: int | None = None,
        retry_after: float | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(message)
        self.tenant = tenant
        self.ticket = ticket
        self.retry_after = retry_after
        for name, value in facts.items():
            setattr(self, name, value)

    def _render_traceback_(self, *_args: object, **_kwargs: object) -> list[str]:
        """What IPython shows: the sentence, not forty lines of frames that the reader cannot mend."""
        return [f"{type(self).__name__}: {self}"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a policy, and how to mend it.

    Attributes:
        file: name of the file as the caller gave it.
        line: line, from 1.
        column: column, from 1.
        path: where in the document, as ``tenants.logs.weight``; empty for the document itself.
        message: what is wrong, with the value that was found.
        hint: what to write instead; empty when there is nothing to add.
    """

    file: str
    line: int
    column: int
    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        """Return ``file:line:column: path: message (hint)``, as compilers print it."""
        where = f"{self.file}:{self.line}:{self.column}: "
        path = f"{self.path}: " if self.path else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{where}{path}{self.message}{hint}"


class PolicyError(FairqError):
    """A policy file cannot be used; ``findings`` says all that is wrong with it, not only the first thing."""

    reason = "policy"

    def __init__(self, message: str = "", *, findings: tuple[Finding, ...] = (), **facts: Any) -> None:
        self.findings = findings
        if not message and findings:
            count = len(findings)
            head = f"{count} problem{'s' if count != 1 else ''} in the policy"
            message = "\n".join([head, *(f"  {finding}" for finding in findings)])
        super().__init__(message, **facts)


class ConfigurationError(FairqError):
    """The set-up around a call is wrong: a key with a line break, a library that is not installed, a bad argument."""

    reason = "configuration"


class Refused(FairqError):  # noqa: N818 - the name users catch; "RefusedError" says the same thing twice
    """The queue said no. Nothing was sent to the endpoint, and nothing was charged."""

    reason = "refused"


class QueueFullError(Refused):
    """The queue, or the tenant's part of it, is full.

    Attributes:
        depth: calls that wait.
        bound: how many may wait.
    """

    reason = "queue_full"
    depth: int | None = None
    bound: int | None = None


class BudgetExceededError(Refused):
    """A budget has no room for this call.

    Attributes:
        budget: which one, as ``tokens per day``.
        limit: its size.
        used: how much of it is used.
        resets_at: seconds since the epoch when its window turns; ``None`` for a session's budget.
        checkpoint: where the request was kept, if it was.
    """

    reason = "budget"
    budget: str | None = None
    limit: int | None = None
    used: int | None = None
    resets_at: float | None = None
    checkpoint: str | None = None


class ContextTooLargeError(Refused):
    """One request carries more messages or tokens than its tenant may send.

    Attributes:
        unit: ``messages`` or ``tokens``.
        size: what the request carries.
        limit: what it may carry.
        checkpoint: where the request was kept, if it was.
    """

    reason = "context"
    unit: str | None = None
    size: int | None = None
    limit: int | None = None
    checkpoint: str | None = None


class TenantPausedError(Refused):
    """The tenant is paused and the policy says that its calls are refused instead of waiting.

    Attributes:
        why: who or what paused it.
        resumes_at: seconds since the epoch; ``None`` when only a person resumes it.
    """

    reason = "paused"
    why: str | None = None
    resumes_at: float | None = None


class TenantEvictedError(Refused):
    """The stall rule paused the tenant and dropped what it had queued.

    Attributes:
        why: what the rule saw.
        checkpoint: where the request was kept, if it was.
    """

    reason = "evicted"
    why: str | None = None
    checkpoint: str | None = None


class QueueTimeoutError(Refused):
    """The call waited in the queue for longer than it may; it was never sent.

    Attributes:
        waited: seconds in the queue.
    """

    reason = "queue_timeout"
    waited: float | None = None


class UnknownTenantError(Refused):
    """The policy lets only named tenants ask, and this is none of them.

    Attributes:
        nearest: names that look like it.
    """

    reason = "unknown_tenant"
    nearest: tuple[str, ...] = ()


class WouldDeadlockError(Refused):
    """A call waits for a slot that only its own caller can free.

    Attributes:
        outer: number of the call that holds the slot.
    """

    reason = "would_deadlock"
    outer: int | None = None


class BypassBlockedError(Refused):
    """A call of the endpoint by a client that is not ours, which the guard is told to block (``guard: block``).

    Attributes:
        library: what would have sent it, as ``requests``.
        host: whom it would have gone to.
        module: who made it: the first module outside of that library.
    """

    reason = "bypass"
    library: str | None = None
    host: str | None = None
    module: str | None = None


class ShutDownError(Refused):
    """The session was closed, or the extension unloaded, while the call waited."""

    reason = "shut_down"


class EndpointError(FairqError):
    """The endpoint refused or failed, and trying again within the policy's bounds did not help.

    Attributes:
        status: HTTP status; ``None`` when no answer came.
        body: the provider's own text, cut to a readable length.
        attempts: how often the request was sent.
        partial: text that arrived before a stream was cut; empty otherwise.
    """

    reason = "endpoint"
    status: int | None = None
    body: str = ""
    attempts: int = 1
    partial: str = ""


class StreamReclaimedError(FairqError):
    """The slot of a stream was taken back: nobody read it, or the server sent nothing for too long.

    Attributes:
        silent_for: seconds without data.
    """

    reason = "stream_reclaimed"
    silent_for: float | None = None


class ShareError(FairqError):
    """The store that shares the endpoint's slots between kernels is out of reach."""

    reason = "share"


def refusal_types() -> dict[str, type[FairqError]]:
    """Map each machine-readable reason to the error that carries it."""
    found: dict[str, type[FairqError]] = {}
    todo: list[type[FairqError]] = [FairqError]
    while todo:
        kind = todo.pop()
        found[kind.reason] = kind
        todo.extend(kind.__subclasses__())
    return found
