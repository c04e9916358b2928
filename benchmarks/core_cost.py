"""What deciding costs: submit, admit and settle on the core, beside a bare heap.

The queue is filled to a depth, and kept there: each step submits one ticket and settles one that runs, which admits the
next. A step of the heap pushes one item and pops one. Tickets, receipts and items are made beforehand on both sides.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks import peers
from benchmarks.measure import THREAD_CPU, Scale, collector_at_rest, interleaved, ratio
from benchmarks.rows import Line, Row, Target, micro, missing
from fairq_ipy.core.messages import Admit, Pause, Settle, Submit
from fairq_ipy.core.model import Budget, Limits, Policy, Receipt, Stall, Ticket
from fairq_ipy.core.scheduler import Scheduler

PLAIN = Policy(limits=Limits(concurrency=2, queue=None))

EVERYTHING = replace(
    PLAIN,
    limits=Limits(
        concurrency=2,
        queue=10**9,
        queue_per_tenant=10**9,
        max_wait=1e9,
        requests_per_minute=10**9,
        tokens_per_minute=10**12,
    ),
    defaults=replace(
        PLAIN.defaults,
        concurrency=2,
        budgets=(Budget("requests", 10**12), Budget("tokens", 10**15)),
        stall=Stall(min_chars=5, threshold=3),
    ),
)
"""The same with every rule switched on, and none of them in the way."""


class LoadedCore:
    """A core whose queue stays at one depth.

    Args:
        queued: how deep.
        tenants: how many share it.
        policy: its rules.
        paused: how many of the tenants are paused. Their tickets stay queued; new ones come from the others.
    """

    def __init__(self, queued: int, tenants: int, policy: Policy = PLAIN, paused: int = 0) -> None:
        random_source = random.Random(1)
        self._core = Scheduler(policy, 0.0)
        self._now = 0.0
        self._ids = itertools.count(1)
        self._running: deque[int] = deque()
        names = [f"tenant-{number}" for number in range(tenants)]
        with collector_at_rest():
            for _ in range(-(-queued // tenants)):
                for name in names:
                    self._note(self._core.handle(Submit(self._ticket(name)), self._now))
        for name in names[:paused]:
            self._core.handle(Pause(name), self._now)
        self._next_name = itertools.cycle(names[paused:]).__next__
        self._receipts = [Receipt("ok", 100, random_source.randint(20, 600), exact=True, chars=400) for _ in range(509)]

    def _ticket(self, tenant: str) -> Ticket:
        return Ticket(next(self._ids), tenant, 1, prompt_tokens=100, messages=2, model="m")

    def _note(self, effects: list[Any]) -> None:
        for effect in effects:
            if type(effect) is Admit:
                self._running.append(effect.id)

    def seconds_per_step(self, steps: int) -> float:
        """Submit, admit and settle `steps` times, and return the thread's CPU seconds for one."""
        tickets = [self._ticket(self._next_name()) for _ in range(steps)]
        receipts = list(itertools.islice(itertools.cycle(self._receipts), steps))
        handle, running, now = self._core.handle, self._running, self._now
        with collector_at_rest():
            began = time.thread_time()
            for ticket, receipt in zip(tickets, receipts, strict=True):
                now += 0.001
                handle(Submit(ticket), now)
                for effect in handle(Settle(running.popleft(), receipt), now):
                    running.append(effect.id)  # type: ignore[union-attr]  # nothing but admissions happens here
            taken = time.thread_time() - began
        self._now = now
        return taken / steps


def _heap_side(queued: int, item: Callable[[int], Any], steps: int) -> Callable[[], float]:
    heap = peers.BareHeap(queued, item)

    def side() -> float:
        with collector_at_rest():
            return heap.seconds_per_step(steps)

    return side


def _core_side(core: LoadedCore, steps: int) -> Callable[[], float]:
    return lambda: core.seconds_per_step(steps)


def cost(scale: Scale) -> Iterator[Line]:
    """Yield what one call costs the core, as a multiple of a bare heap's push and pop."""
    steps = scale.of(10_000, 3_000)
    targets = {(100_000, 10): Target(1.6), (100_000, 1000): Target(3)}
    most = scale.of(1_000_000, 200_000)
    for queued, tenants in ((1_000, 10), (1_000, 1000), (100_000, 10), (100_000, 1000), (most, 10)):
        taken = interleaved(
            {
                "core": _core_side(LoadedCore(queued, tenants), steps),
                "heap": _heap_side(queued, peers.plain_item, steps),
                "ordered": _heap_side(queued, peers.ordered_item, steps),
            },
            scale.repetitions,
        )
        core, heap, ordered = (median(taken[side]) for side in ("core", "heap", "ordered"))
        load = f"{queued:,} queued, {tenants} tenants"
        yield Line.of(
            f"{load}: against a bare heapq of tuples",
            ratio(taken["core"], taken["heap"]),
            clock=THREAD_CPU,
            target=targets.get((queued, tenants)),
            detail=f"{micro(core)} / {micro(heap)}",
        )
        yield Line.of(
            f"{load}: against a heapq of ordered dataclasses",
            ratio(taken["core"], taken["ordered"]),
            clock=THREAD_CPU,
            detail=f"{micro(core)} / {micro(ordered)}",
        )


def rules(scale: Scale) -> Iterator[Line]:
    """Yield what the rules cost that a plain policy leaves off."""
    steps = scale.of(10_000, 3_000)
    taken = interleaved(
        {
            "everything": _core_side(LoadedCore(10_000, 10, EVERYTHING), steps),
            "plain": _core_side(LoadedCore(10_000, 10), steps),
        },
        scale.repetitions,
    )
    yield Line.of(
        "budgets, rates, deadlines, bounds and the stall rule on, against off (10,000 queued, 10 tenants)",
        ratio(taken["everything"], taken["plain"]),
        clock=THREAD_CPU,
        detail=f"{micro(median(taken['everything']))} / {micro(median(taken['plain']))}",
    )


def growth(scale: Scale) -> Iterator[Line]:
    """Yield how the cost grows with the queue and with the tenants."""
    steps = scale.of(10_000, 3_000)
    most = scale.of(1_000_000, 200_000)
    taken = interleaved(
        {
            "large": _core_side(LoadedCore(most, 10), steps),
            "small": _core_side(LoadedCore(1_000, 10), steps),
            "large heap": _heap_side(most, peers.plain_item, steps),
            "small heap": _heap_side(1_000, peers.plain_item, steps),
        },
        scale.repetitions,
    )
    yield _grown(f"{most:,} queued against 1,000 (10 tenants)", taken, "large", "small", Target(1.3))
    yield _grown(f"{most:,} queued against 1,000: a bare heapq", taken, "large heap", "small heap")
    taken = interleaved(
        {
            "many": _core_side(LoadedCore(100_000, 1000), steps),
            "few": _core_side(LoadedCore(100_000, 10), steps),
        },
        scale.repetitions,
    )
    yield _grown("1000 tenants against 10 (100,000 queued)", taken, "many", "few", Target(1.8))
    yield _priomesh(scale)


def _grown(what: str, taken: dict[str, list[float]], large: str, small: str, target: Target | None = None) -> Line:
    detail = f"{micro(median(taken[large]))} / {micro(median(taken[small]))}"
    return Line.of(what, ratio(taken[large], taken[small]), clock=THREAD_CPU, target=target, detail=detail)


def _priomesh(scale: Scale) -> Line:
    what = "1000 tenants against 10 (10,000 queued): priomesh, put and get"
    if not peers.installed("priomesh"):
        return missing(what)
    steps = scale.of(2_000, 500)

    async def both() -> dict[str, list[float]]:
        sides = {"many": peers.Mesh(), "few": peers.Mesh()}
        for name, tenants in (("many", 1000), ("few", 10)):
            await sides[name].fill(10_000, tenants)
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(scale.repetitions):
            for name, mesh in sides.items():
                taken[name].append(await mesh.seconds_per_step(steps))
        return taken

    return _grown(what, asyncio.run(both()), "many", "few")


def paused(scale: Scale) -> Iterator[Line]:
    """Yield what tenants cost that may not go."""
    steps = scale.of(10_000, 3_000)
    for tenants in (10, 1000):
        taken = interleaved(
            {
                "half": _core_side(LoadedCore(100_000, tenants, paused=tenants // 2), steps),
                "none": _core_side(LoadedCore(100_000, tenants), steps),
            },
            scale.repetitions,
        )
        yield _grown(
            f"half of {tenants} tenants paused against none (100,000 queued)", taken, "half", "none", Target(1.1)
        )


ROWS = (
    Row("core", "The core alone: submit + admit + settle", cost),
    Row("rules", "The core with every rule on", rules),
    Row("growth", "The core as the queue and the team grow", growth),
    Row("paused", "The core with paused tenants", paused),
)
