"""A permit for one call that does its I/O elsewhere: on the caller's thread or loop, with the caller's own library."""

from __future__ import annotations

from fairq_ipy.runtime.gate import Gate
from fairq_ipy.runtime.holding import Holding, Offer

__all__ = ["Turn"]


class Turn(Holding):
    """A permit for one call, which goes back into the queue when the endpoint says "later"."""

    __slots__ = ()

    def push_back(self, gate: Gate[Offer], status: int, retry_after: float | None) -> None:
        """Wait at `gate` for the next admission. On the keeper's thread."""
        if self._state in {"offered", "held"}:
            self._state, self._gate = "waiting", gate
            self._keeper.backoff(self.ticket.id, status=status, retry_after=retry_after)
