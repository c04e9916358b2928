"""What the keeper admits: the contract between the queue and whoever does the work.

The keeper owns the core. It never knows what a piece of work is; it calls the two methods below, on its own thread, and
is told through its own methods how the work went on.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol, runtime_checkable

from fairq_ipy.core.messages import Place
from fairq_ipy.core.model import Receipt, Ticket
from fairq_ipy.errors import FairqError


class Permit(NamedTuple):
    """One admission.

    Attributes:
        ticket: number of the call.
        attempt: 1 for the first time it was admitted.
        waited: seconds in the queue, over all attempts.
    """

    ticket: int
    attempt: int
    waited: float


@runtime_checkable
class Work(Protocol):
    """Something that waits for a permit. Both methods run on the keeper's thread and must not block."""

    def admitted(self, permit: Permit) -> None:
        """Start now. Exactly one of ``keeper.settle``, ``keeper.backoff`` or ``keeper.unclaimed`` must follow."""

    def refused(self, error: FairqError) -> None:
        """It is over without (another) admission: refused, expired, evicted, or retries used up."""


@runtime_checkable
class Lender(Protocol):
    """A permit that the calls inside its block run under. All methods belong to the keeper's thread.

    `Desk` turns to it for every call that it has taken in, as it would turn to the core for any other.
    """

    def lend(self, work: Work, ticket: Ticket) -> bool:
        """Take `work` in, to be admitted under this permit in its turn; ``False`` when the permit is over."""

    def progressed(self, id: int, output_tokens: int) -> None:  # noqa: A002 - the ticket's own word for it
        """See `Desk.progress`."""

    def returned(self, id: int, receipt: Receipt) -> None:  # noqa: A002 - see above
        """See `Desk.settle`."""

    def pushed_back(self, id: int, status: int | None, retry_after: float | None) -> None:  # noqa: A002 - see above
        """See `Desk.backoff`."""

    def unclaimed(self, id: int) -> None:  # noqa: A002 - see above
        """See `Desk.unclaimed`."""

    def ready(self, id: int) -> None:  # noqa: A002 - see above
        """See `Desk.ready`."""

    def left(self, id: int) -> None:  # noqa: A002 - see above
        """See `Desk.leave`."""

    def place(self, id: int) -> Place | None:  # noqa: A002 - see above
        """See `Desk.where`."""

    def stuck_without(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether its slot stays taken until `loop` runs."""
