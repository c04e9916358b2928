"""What the keeper admits: the contract between the queue and whoever does the work.

The keeper owns the core. It never knows what a piece of work is; it calls the two methods below, on its own thread, and
is told through its own methods how the work went on.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

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
