"""Discrete events over the real core with a clock that jumps: an endpoint, tenants that ask, and any order of service.

A `Simulation` owns the time. It hands calls to an *order*, which answers with those that may go now: `CoreOrder` is
fairq_ipy's scheduler, `SlotOrder` puts any plain queue in front of the same number of slots. A call that goes occupies
one slot of the endpoint until its last token, and tells how far it is while it streams. Nothing here reads a clock or
sleeps, and all chance comes from seeds: the same seed gives the same calls, whatever the order.

    simulation = Simulation(CoreOrder(Policy()))
    Agent(simulation, "healthy", think=5.0, sizes=lognormal(200), seed=1)
    Backlog(simulation, "runaway", depth=50, sizes=lognormal(200), seed=2)
    simulation.run(until=3600)
    percentile([call.latency for call in simulation.ended if call.tenant == "healthy"], 95)
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from fairq_ipy.core.messages import Admit, Effect, Paused, Progress, Refuse, Settle, Submit, Tick
from fairq_ipy.core.model import Policy, Receipt, Ticket
from fairq_ipy.core.scheduler import Scheduler

PROMPT_WEIGHT = Policy().prompt_weight
OUTPUT_WEIGHT = Policy().output_weight

Sizes: TypeAlias = Callable[[random.Random], tuple[int, int]]
"""Draws the prompt and output tokens of one call."""


@dataclass(slots=True, eq=False)
class Call:
    """One call, and what became of it. Times are simulated seconds; ``None``: not yet.

    Attributes:
        output: tokens that it will produce; the order is told only as they come.
        chars: length of its answer's text.
        then: called when it has ended or was refused.
    """

    id: int
    tenant: str
    level: int
    prompt: int
    output: int
    chars: int
    asked: float
    then: Callable[[Call], None] | None = None
    began: float | None = None
    first_token: float = 0.0
    ended: float | None = None

    @property
    def latency(self) -> float:
        """Seconds from asking to the last token."""
        return math.inf if self.ended is None else self.ended - self.asked

    @property
    def cost(self) -> float:
        """What fairness counts."""
        return PROMPT_WEIGHT * self.prompt + OUTPUT_WEIGHT * self.output


class Order(Protocol):
    """Who goes next, and how many at a time. Each method returns the ids of the calls that may go now."""

    def submit(self, call: Call, now: float) -> Iterable[int]: ...
    def progress(self, call: Call, tokens: int, now: float) -> Iterable[int]: ...
    def settle(self, call: Call, now: float) -> Iterable[int]: ...
    def tick(self, now: float) -> Iterable[int]: ...
    @property
    def wake_at(self) -> float | None: ...


class Waiting(Protocol):
    """A plain queue of calls."""

    def push(self, call: Any) -> None: ...
    def pop(self) -> Any: ...
    def __len__(self) -> int: ...


class SlotOrder:
    """Any plain queue in front of so many slots."""

    wake_at: float | None = None

    def __init__(self, queue: Waiting, slots: int) -> None:
        self._queue = queue
        self._free = slots

    def _go(self) -> Iterable[int]:
        while self._free and len(self._queue):
            self._free -= 1
            yield self._queue.pop().id

    def submit(self, call: Call, now: float) -> Iterable[int]:
        del now
        self._queue.push(call)
        return self._go()

    def progress(self, call: Call, tokens: int, now: float) -> Iterable[int]:
        del call, tokens, now
        return ()

    def settle(self, call: Call, now: float) -> Iterable[int]:
        del call, now
        self._free += 1
        return self._go()

    def tick(self, now: float) -> Iterable[int]:
        del now
        return ()


class CoreOrder:
    """The scheduler of fairq_ipy.

    Attributes:
        scheduler: for a look inside.
        pauses: what the stall rule paused, and when.
        refused: ids that were refused.
    """

    def __init__(self, policy: Policy) -> None:
        self.scheduler = Scheduler(policy, 0.0)
        self.pauses: list[tuple[float, str]] = []
        self.refused: list[int] = []

    def _said(self, effects: list[Effect], now: float) -> list[int]:
        admitted = []
        for effect in effects:
            if isinstance(effect, Admit):
                admitted.append(effect.id)
            elif isinstance(effect, Refuse):
                self.refused.append(effect.id)
            elif isinstance(effect, Paused) and effect.tenant is not None:
                self.pauses.append((now, effect.tenant))
        return admitted

    def submit(self, call: Call, now: float) -> Iterable[int]:
        ticket = Ticket(call.id, call.tenant, call.level, call.prompt, None, 1, "m")
        return self._said(self.scheduler.handle(Submit(ticket), now), now)

    def progress(self, call: Call, tokens: int, now: float) -> Iterable[int]:
        return self._said(self.scheduler.handle(Progress(call.id, tokens), now), now)

    def settle(self, call: Call, now: float) -> Iterable[int]:
        receipt = Receipt("ok", call.prompt, call.output, exact=True, chars=call.chars, status=200)
        return self._said(self.scheduler.handle(Settle(call.id, receipt), now), now)

    def tick(self, now: float) -> Iterable[int]:
        return self._said(self.scheduler.handle(Tick(), now), now)

    @property
    def wake_at(self) -> float | None:
        return self.scheduler.wake_at


class Simulation:
    """Time, an endpoint, and an order.

    Args:
        order: who goes next.
        first_token: seconds until an answer begins.
        speed: tokens of one answer per second.
        stream_every: seconds between two reports of a stream; ``None`` streams nothing, so that only the end tells.

    Attributes:
        now: the time, in seconds since the beginning.
        calls: every call ever asked, by id.
        ended: those that ran to their end, in that order.
    """

    def __init__(
        self, order: Order, *, first_token: float = 0.4, speed: float = 50.0, stream_every: float | None = 1.0
    ) -> None:
        self.order = order
        self.now = 0.0
        self.calls: dict[int, Call] = {}
        self.ended: list[Call] = []
        self._first_token = first_token
        self._speed = speed
        self._stream_every = stream_every
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        self._ids = itertools.count(1)

    def after(self, seconds: float, function: Callable[[], None]) -> None:
        """Have `function` called when that much time has passed."""
        heapq.heappush(self._due, (self.now + seconds, next(self._sequence), function))

    def ask(
        self,
        tenant: str,
        size: tuple[int, int],
        *,
        level: int = 1,
        chars: int | None = None,
        then: Callable[[Call], None] | None = None,
    ) -> Call:
        """Ask for an answer of a size in prompt and output tokens."""
        prompt, output = size
        text = 4 * output if chars is None else chars
        call = Call(next(self._ids), tenant, level, prompt, output, text, self.now, then)
        self.calls[call.id] = call
        self._start(self.order.submit(call, self.now))
        return call

    def run(self, until: float) -> None:
        """Let time pass up to a point, and everything happen that is due."""
        while True:
            event = self._due[0][0] if self._due else math.inf
            wake = self.order.wake_at
            at = event if wake is None else min(event, max(wake, self.now))
            if at > until:
                break
            self.now = at
            if at < event:
                self._start(self.order.tick(at))
            else:
                heapq.heappop(self._due)[2]()
        self.now = until

    def _start(self, ids: Iterable[int]) -> None:
        for number in ids:
            call = self.calls[number]
            call.began = self.now
            call.first_token = self.now + self._first_token
            self.after(self._first_token + call.output / self._speed, lambda call=call: self._end(call))  # type: ignore[misc]
            if self._stream_every is not None:
                self.after(self._first_token + self._stream_every, lambda call=call: self._stream(call))  # type: ignore[misc]

    def _stream(self, call: Call) -> None:
        if call.ended is None and self._stream_every is not None:
            tokens = min(call.output, round((self.now - call.first_token) * self._speed))
            self._start(self.order.progress(call, tokens, self.now))
            self.after(self._stream_every, lambda: self._stream(call))

    def _end(self, call: Call) -> None:
        call.ended = self.now
        self.ended.append(call)
        self._start(self.order.settle(call, self.now))
        if call.then is not None:
            call.then(call)


# ------------------------------------------------------------------------------------------------------ who asks


def lognormal(median: float, *, sigma: float = 0.6, most: int = 2000, prompt: tuple[int, int] = (50, 400)) -> Sizes:
    """Return sizes as chat answers have them: many around the median, some much longer."""

    def draw(source: random.Random) -> tuple[int, int]:
        output = min(most, max(1, round(source.lognormvariate(math.log(median), sigma))))
        return source.randint(*prompt), output

    return draw


class Agent:
    """Asks, reads the answer, thinks, asks again; one call at a time. `think` is the mean, in seconds."""

    def __init__(
        self, simulation: Simulation, tenant: str, *, think: float, sizes: Sizes, seed: int, level: int = 1
    ) -> None:
        self._simulation = simulation
        self._tenant = tenant
        self._think = think
        self._sizes = sizes
        self._level = level
        self._random = random.Random(f"{tenant}/{seed}")
        self._pause()

    def _pause(self, call: Call | None = None) -> None:
        del call
        self._simulation.after(self._random.expovariate(1 / self._think), self._ask)

    def _ask(self) -> None:
        self._simulation.ask(self._tenant, self._sizes(self._random), level=self._level, then=self._pause)


class Backlog:
    """Always has `depth` calls that wait or run: a batch job, or an agent that has run away."""

    def __init__(
        self,
        simulation: Simulation,
        tenant: str,
        *,
        depth: int,
        sizes: Sizes,
        seed: int,
        level: int = 1,
        chars: int | None = None,
    ) -> None:
        self._simulation = simulation
        self._tenant = tenant
        self._sizes = sizes
        self._level = level
        self._chars = chars
        self._random = random.Random(f"{tenant}/{seed}")
        for _ in range(depth):
            simulation.after(0.0, self._ask)

    def _ask(self, call: Call | None = None) -> None:
        del call
        size = self._sizes(self._random)
        self._simulation.ask(self._tenant, size, level=self._level, chars=self._chars, then=self._ask)


# ------------------------------------------------------------------------------------------------------ what came of it


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile."""
    if not values:
        return math.inf
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def jain(shares: Sequence[float]) -> float:
    """Return Jain's fairness index (Jain, Chiu, Hawe, 1984): 1 when all got the same, 1/n when one got all."""
    total = sum(shares)
    return total * total / (len(shares) * sum(share * share for share in shares)) if total else 0.0


def served(call: Call, until: float, speed: float = 50.0) -> float:
    """Return the cost of what a call got by a point in time: its prompt when it begins, its tokens as they come."""
    if call.began is None or call.began > until:
        return 0.0
    tokens = min(float(call.output), max(0.0, until - call.first_token) * speed)
    return PROMPT_WEIGHT * call.prompt + OUTPUT_WEIGHT * tokens
