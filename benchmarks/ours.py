"""fairq_ipy's own queue in the shape of its peers: calls whose I/O the keeper does, and permits for one's own I/O."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, Self

from fairq_ipy.core.model import Limits, Policy, Receipt, Ticket
from fairq_ipy.errors import FairqError
from fairq_ipy.runtime.gate import Gate, LoopGate, ThreadGate
from fairq_ipy.runtime.keeper import Keeper
from fairq_ipy.runtime.permits import PermitBlock
from fairq_ipy.runtime.scope import Identity
from fairq_ipy.runtime.work import Permit

ANSWER: Final = Receipt("ok", 100, 200, exact=True, chars=800, status=200)


def open_policy(slots: int) -> Policy:
    """Return the default rules with so many slots and a queue without bounds."""
    return Policy(limits=Limits(concurrency=slots, queue=None))


@dataclass(frozen=True, slots=True)
class Service:
    """What a call does while it holds a slot: it waits so many seconds for an endpoint, or for one turn of a loop."""

    seconds: float = 0.0

    async def __call__(self) -> None:
        await asyncio.sleep(self.seconds)


class Call:
    """One call whose I/O the keeper does (`Work`), as a governed request is one."""

    __slots__ = ("gate", "keeper", "number", "seconds")

    def __init__(self, keeper: Keeper, gate: Gate[int], seconds: float) -> None:
        self.keeper = keeper
        self.gate = gate
        self.seconds = seconds
        self.number = keeper.next_id()

    def admitted(self, permit: Permit) -> None:
        del permit
        if self.seconds:
            self.keeper.loop.call_later(self.seconds, self._end)
        else:
            self.keeper.loop.call_soon(self._end)

    def _end(self) -> None:
        self.keeper.settle(self.number, ANSWER)
        self.gate.resolve(self.number)

    def refused(self, error: FairqError) -> None:
        self.gate.reject(error)


class KeeperQueue:
    """The keeper as a peer of the others.

    Args:
        slots: how many calls run at a time.
    """

    def __init__(self, slots: int) -> None:
        self.keeper = Keeper(open_policy(slots))

    async def call(self, job: Service, tenant: str = "t", priority: int = 1) -> int:
        """Make a call from a task, and await its answer."""
        keeper = self.keeper
        gate: LoopGate[int] = keeper.loop_gate()
        work = Call(keeper, gate, job.seconds)
        try:
            keeper.submit(work, Ticket(work.number, tenant, priority, 100))
            return await gate
        except BaseException:
            keeper.cancel(work.number)
            raise

    def call_blocking(self, job: Service, tenant: str = "t", priority: int = 1) -> int:
        """Make a call from a thread, and block it until the answer is there."""
        keeper = self.keeper
        gate: ThreadGate[int] = keeper.thread_gate()
        work = Call(keeper, gate, job.seconds)
        try:
            keeper.submit(work, Ticket(work.number, tenant, priority, 100))
            return gate.wait()
        except BaseException:
            keeper.cancel(work.number)
            raise

    def taken(self) -> int:
        """Return how many slots are not free."""
        return self.keeper.snapshot().in_flight

    def close(self) -> None:
        self.keeper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exit_info: object) -> None:
        self.close()


class PermitQueue(KeeperQueue):
    """The same keeper, but callers only ask for a permit, and do their own I/O while they hold it."""

    def _block(self, tenant: str) -> PermitBlock:
        who = Identity(tenant, 1)
        return PermitBlock(self.keeper, lambda: who, cost=100)

    async def call(self, job: Any, tenant: str = "t", priority: int = 1) -> int:
        del priority
        async with self._block(tenant) as permit:
            await job()
            return permit.ticket
