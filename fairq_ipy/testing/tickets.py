"""Tickets for tests of the core, numbered by themselves."""

from __future__ import annotations

import itertools
from typing import Any, Final

from fairq_ipy.core.model import Ticket

__all__ = ["TicketMaker", "ticket"]


class TicketMaker:
    """Makes tickets with ids 1, 2, 3 and so on.

    Args:
        first: the first id.
    """

    def __init__(self, first: int = 1) -> None:
        self._ids = itertools.count(first)

    def __call__(self, tenant: str = "a", level: int = 1, *, id: int | None = None, **fields: Any) -> Ticket:  # noqa: A002 - the field's own name
        """Return a ticket.

        Args:
            tenant: who asks.
            level: its priority class.
            id: a number of the test's own choice; ``None`` takes the next one.
            fields: any other field of `Ticket`.
        """
        return Ticket(id=next(self._ids) if id is None else id, tenant=tenant, level=level, **fields)


ticket: Final = TicketMaker()
"""The maker of a whole test run. Its counter only grows, so no test can see what another one took from it; a test that
cares about the numbers themselves makes its own `TicketMaker`."""
