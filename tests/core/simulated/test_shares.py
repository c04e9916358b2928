"""Fair shares, measured: whatever happens around them, two tenants that both wait get the same, within a bound.

The bound is that of start-time fair queueing (Goyal et al., theorem 1): the largest call of each, over its weight, and
what the estimates of the calls in flight were wrong by, at both ends of the interval.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from fairq_ipy.core.model import TenantPolicy

A, B = 1.0, 2.0
"""The prices of a prompt token and of an output token."""


@dataclass
class Ledger:
    """Writes down after every event who got what, by the true costs, and who was waiting for more."""

    world: object
    costs: dict[int, float] = field(default_factory=dict)
    got: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    largest: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    rows: list[tuple[dict[str, float], dict[str, float], set[str]]] = field(default_factory=list)
    seen: int = 0

    def step(self) -> None:
        """Note the moment after an event."""
        queue = self.world.scheduler._queue
        for ticket in self.world.order[self.seen :]:
            cost = self.costs[ticket.id] / queue.tenants[ticket.tenant].rules.weight
            self.got[ticket.tenant] += cost
            self.largest[ticket.tenant] = max(self.largest[ticket.tenant], cost)
        self.seen = len(self.world.order)
        wrong: dict[str, float] = defaultdict(float)
        for number in self.world.running:
            entry = queue.entries[number]
            wrong[entry.ticket.tenant] += abs(self.costs[number] - entry.charged) / entry.share
        backlogged = {name for name, tenant in queue.tenants.items() if tenant.queued and not tenant.blocked()}
        self.rows.append((dict(self.got), dict(wrong), backlogged))

    def lead(self, one: str, other: str) -> float:
        """Return by how much `one` ever got more than `other` in an interval throughout which `other` waited."""
        worst, low = 0.0, None
        for got, _, backlogged in self.rows:
            ahead = got.get(one, 0.0) - got.get(other, 0.0)
            low = None if other not in backlogged else ahead if low is None else min(low, ahead)
            worst = worst if low is None else max(worst, ahead - low)
        return worst

    def bound(self, one: str, other: str) -> float:
        """Return what that may be at the most."""
        wrong = max(errors.get(one, 0.0) + errors.get(other, 0.0) for _, errors, _ in self.rows)
        return self.largest[one] + self.largest[other] + 2 * wrong + 1e-6


def tell_a_story(world, rules, *, seed, cap, weights, knowledge, chunks, disturbances):
    """Let "a" and "b" wait all the time while "c" is disturbed in every way; return the ledger."""
    chance = random.Random(seed)
    outputs: dict[int, int] = {}
    spread = {name: chance.choice([(1, 10), (1, 500), (200, 200), (1, 3000)]) for name in "abc"}
    tenants = {name: TenantPolicy(weight=weight) for name, weight in zip("abc", weights, strict=True)}
    if "own" in disturbances:
        tenants["c"] = TenantPolicy(weight=weights[2], concurrency=1)
    made = world(
        rules(concurrency=cap, queue=None, headroom_for=0, tenants=tenants),
        lambda ticket: (1.0 + (ticket.prompt_tokens + outputs[ticket.id]) / 100, outputs[ticket.id]),
        chunks=chunks,
    )
    ledger = Ledger(made)
    made.on_step = ledger.step
    coming: list[int] = []

    def submit(name: str) -> int:
        number = len(outputs) + 1
        output = chance.choice([spread[name][0], chance.randint(*spread[name])])
        prompt = chance.choice([0, 50, 400])
        outputs[number] = 0 if knowledge == "exact" else output
        prompt += output if knowledge == "exact" else 0
        most = {"exact": 0, "none": None, "limit": 3000}[knowledge]
        ledger.costs[number] = A * prompt + B * outputs[number]
        assert made.submit(name, prompt_tokens=prompt, max_tokens=most) == number
        return number

    def burst() -> None:
        coming.extend(submit("c") for _ in range(chance.randint(1, 12)))
        made.at(made.now + chance.uniform(0, 60), burst)

    def disturb() -> None:
        if "cancel" in disturbances and coming:
            made.cancel(coming.pop(chance.randrange(len(coming))))
        if "pause" in disturbances:
            (made.pause if chance.random() < 0.5 else made.resume)("c")
        made.at(made.now + chance.uniform(0, 20), disturb)

    made.on_done = lambda ticket: submit(ticket.tenant) if ticket.tenant != "c" else None
    made.at(chance.uniform(0, 30), burst)
    made.at(chance.uniform(0, 30), disturb)
    for _ in range(cap + 2):
        submit("a")
        submit("b")
    made.run(200.0)
    return ledger


stories = given(
    seed=st.integers(0, 2**32 - 1),
    cap=st.sampled_from([1, 2, 5]),
    weights=st.tuples(*[st.sampled_from([0.25, 1.0, 3.0])] * 3),
    knowledge=st.sampled_from(["exact", "none", "limit"]),
    chunks=st.sampled_from([0, 5]),
    disturbances=st.sets(st.sampled_from(["own", "cancel", "pause"])),
)


@stories
def test_who_waits_is_never_further_behind_anybody_than_the_bound(world, rules, **story):
    ledger = tell_a_story(world, rules, **story)
    assert min(ledger.got["a"], ledger.got["b"]) > 0
    for one, other in ("ab", "ba", "ca", "cb"):
        assert ledger.lead(one, other) <= ledger.bound(one, other), (one, other)
