"""Any story that can be told to the queue keeps its promises. The events; what they promise is kept by `oracle`."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from oracle import Oracle

from fairq_ipy.core.messages import (
    Backoff,
    Cancel,
    Capacity,
    Close,
    Event,
    Hold,
    Pause,
    PolicyChanged,
    Progress,
    Ready,
    Resume,
    Settle,
    Submit,
    Tick,
    Unclaimed,
    WindowTurned,
)
from fairq_ipy.core.model import (
    Adaptive,
    Backpressure,
    Budget,
    Context,
    Level,
    Limits,
    Policy,
    Receipt,
    Stall,
    TenantPolicy,
    Ticket,
)
from fairq_ipy.core.scheduler import Scheduler

TENANTS = ("a", "b", "c")

stalls = st.builds(
    Stall,
    min_chars=st.just(5),
    threshold=st.integers(1, 2),
    action=st.sampled_from(["warn", "pause", "evict"]),
    resume_after=st.sampled_from([None, 0.0, 10.0]),
    resume_max=st.just(30.0),
)
budgets = st.lists(
    st.builds(
        Budget,
        unit=st.sampled_from(["requests", "messages", "tokens"]),
        limit=st.sampled_from([0, 2, 5, 400]),
        per=st.sampled_from(["session", "minute", "day"]),
    ),
    max_size=2,
    unique_by=lambda budget: (budget.unit, budget.per),
).map(tuple)


def tenant_rules(budgets: Any) -> Any:
    """Return rules for one tenant."""
    return st.builds(
        TenantPolicy,
        weight=st.sampled_from([0.5, 1.0, 3.0]),
        concurrency=st.sampled_from([None, None, None, 2, 1, 0]),
        queue=st.sampled_from([None, None, None, 2, 0]),
        context=st.sampled_from([Context(), Context(), Context(messages=3, tokens=150)]),
        budgets=budgets,
        on_exhausted=st.sampled_from(["refuse", "wait"]),
        on_paused=st.sampled_from(["wait", "wait", "refuse"]),
        stall=st.none() | stalls,
    )


policies = st.builds(
    Policy,
    limits=st.builds(
        Limits,
        concurrency=st.sampled_from([2, 2, 1, 3, 4, 0]),
        adaptive=st.sampled_from([None, None, None, Adaptive(1, 4), Adaptive(2, 3)]),
        queue=st.sampled_from([None, None, None, 4, 0]),
        queue_per_tenant=st.sampled_from([None, None, None, 2]),
        max_wait=st.sampled_from([None, None, None, 45.0, 7.0, 0.0]),
        requests_per_minute=st.sampled_from([None, None, None, 6, 2, 0]),
        tokens_per_minute=st.sampled_from([None, None, None, 900, 300, 0]),
    ),
    levels=st.tuples(
        *(st.builds(Level, st.just(n), st.just(str(n)), st.sampled_from([0, 0, 1, 2])) for n in (1, 2, 3))
    ),
    starve_after=st.sampled_from([None, 0.0, 10.0, 30.0]),
    headroom_for=st.sampled_from([0.0, 20.0]),
    backpressure=st.builds(Backpressure, retries=st.integers(0, 2), base=st.sampled_from([0.0, 1.0])),
    defaults=tenant_rules(st.just(())),
    tenants=st.dictionaries(st.sampled_from("ab"), tenant_rules(st.just(())), max_size=2).flatmap(
        lambda rules: tenant_rules(budgets).map(lambda last: rules | {"c": last})
    ),
    unknown_tenants=st.sampled_from(["allow", "allow", "refuse"]),
)
receipts = st.builds(
    Receipt,
    outcome=st.sampled_from(["ok", "ok", "ok", "failed", "cancelled", "truncated", "unsent"]),
    prompt_tokens=st.integers(0, 100),
    output_tokens=st.sampled_from([0, 10, 300, 2000]),
    chars=st.sampled_from([0, 4, 5, 100]),
    acted=st.sampled_from([False, False, True]),
    status=st.sampled_from([None, 200, 400, 429, 500]),
)
shapes = st.builds(
    Ticket,
    id=st.just(0),
    tenant=st.just(""),
    level=st.integers(1, 3),
    prompt_tokens=st.sampled_from([0, 50, 100, 200]),
    max_tokens=st.sampled_from([None, 0, 10, 200]),
    messages=st.sampled_from([0, 1, 4]),
    max_wait=st.sampled_from([None, None, 0.0, 5.0]),
)
moments = st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0, 30.0, 59.5, 100.0])
anybody = st.sampled_from([*TENANTS, "c", "stranger"])


class Story(RuleBasedStateMachine):
    """Tells the core and the oracle the same events at the same times."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.steps = 0
        self.number = 0
        self.journal: list[tuple[Event, float, list[Any]]] = []

    @initialize(policy=policies)
    def begin(self, policy: Policy) -> None:
        self.first = policy
        self.core = Scheduler(policy, self.now)
        self.oracle = Oracle(policy)

    def tell(self, event: Event) -> list[Any]:
        self.steps += 1
        effects = self.core.handle(event, self.now)
        self.journal.append((event, self.now, effects))
        self.core.check()
        self.oracle.watch(event, self.now, effects, self.core)
        return effects

    def pick(self, data: st.DataObject, *states: str) -> int:
        return data.draw(st.sampled_from(self.oracle.ids(*states)))

    # ------------------------------------------------------------------------------------------------------------ time

    @rule(seconds=moments)
    def oversleep(self, seconds: float) -> None:
        """Time passes and nobody ticks: the next event comes late."""
        self.now += seconds

    @rule(seconds=moments)
    def wait(self, seconds: float) -> None:
        """Time passes, and the core is woken when it asked for it; before that, time changes nothing."""
        end = self.now + seconds
        for _ in range(1000):
            wake = self.core.wake_at
            if wake is None or wake > end:
                break
            self.now = max(self.now, wake)
            self.tell(Tick())
            assert self.core.wake_at is None or self.core.wake_at > self.now, "it asks to be woken for nothing"
        self.now = end
        assert self.tell(Tick()) == [], "a wake-up was lost"

    # ----------------------------------------------------------------------------------------------------------- calls

    @rule(shape=shapes, tenant=anybody, count=st.integers(1, 3))
    def submit(self, shape: Ticket, tenant: str, count: int) -> None:
        for _ in range(count):
            self.submit_one(shape, tenant)

    def submit_one(self, shape: Ticket, tenant: str) -> None:
        self.number += 1
        ticket = shape._replace(id=self.number, tenant=tenant)
        if tenant == "c" and ticket.max_tokens is None:
            # Who has a budget of tokens says how many: what an open end may cost changes while it waits.
            ticket = ticket._replace(max_tokens=10)
        self.tell(Submit(ticket))

    @precondition(lambda self: self.oracle.ids("running"))
    @rule(data=st.data(), receipt=receipts)
    def settle(self, data: st.DataObject, receipt: Receipt) -> None:
        self.tell(Settle(self.pick(data, "running"), receipt))

    @precondition(lambda self: self.oracle.ids("running"))
    @rule(
        data=st.data(), retry_after=st.sampled_from([None, None, 0.0, 4.0, 500.0]), jitter=st.sampled_from([0.0, 0.5])
    )
    def backoff(self, data: st.DataObject, retry_after: float | None, jitter: float) -> None:
        self.tell(Backoff(self.pick(data, "running"), retry_after, jitter, 429))

    @precondition(lambda self: self.oracle.ids("running"))
    @rule(data=st.data(), tokens=st.sampled_from([5, 500, 5000]))
    def progress(self, data: st.DataObject, tokens: int) -> None:
        self.tell(Progress(self.pick(data, "running"), tokens))

    @precondition(lambda self: self.oracle.ids("running"))
    @rule(data=st.data())
    def unclaimed(self, data: st.DataObject) -> None:
        self.tell(Unclaimed(self.pick(data, "running")))

    @precondition(lambda self: self.oracle.ids("dormant"))
    @rule(data=st.data())
    def ready(self, data: st.DataObject) -> None:
        self.tell(Ready(self.pick(data, "dormant")))

    @precondition(lambda self: self.oracle.ids("waiting", "dormant"))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.tell(Cancel(self.pick(data, "waiting", "dormant")))

    @rule(make=st.sampled_from([Cancel, Ready, lambda number: Progress(number, 9)]), number=st.integers(1, 40))
    def race(self, make: Any, number: int) -> None:
        """News of a call that may have ended long ago."""
        if number not in self.oracle.ids("waiting", "dormant"):
            self.tell(make(number))

    @rule(
        make=st.sampled_from(
            [lambda number: Settle(number, Receipt()), Unclaimed, lambda number: Backoff(number, 1.0, 0.0)],
        ),
        number=st.integers(1, 40),
    )
    def mistake(self, make: Any, number: int) -> None:
        """News of a call that does not run: an error, and nothing has changed."""
        if number in self.oracle.ids("running"):
            return
        before = self.core.snapshot(self.now), self.core.wake_at
        try:
            self.core.handle(make(number), self.now)
        except ValueError:
            assert (self.core.snapshot(self.now), self.core.wake_at) == before
            self.core.check()
        else:
            raise AssertionError("a mistake went unnoticed")

    # ---------------------------------------------------------------------------------------------------------- people

    @rule(tenant=st.none() | anybody)
    def pause(self, tenant: str | None) -> None:
        self.tell(Pause(tenant))

    @rule(tenant=st.none() | anybody)
    def resume(self, tenant: str | None) -> None:
        self.tell(Resume(tenant))

    @precondition(lambda self: self.steps > 10)
    @rule(policy=policies)
    def change(self, policy: Policy) -> None:
        self.tell(PolicyChanged(policy))

    # --------------------------------------------------------------------------------------------------------- outside

    @rule(seconds=st.sampled_from([-5.0, 0.0, 2.0, 20.0]))
    def hold(self, seconds: float) -> None:
        self.tell(Hold(self.now + seconds))

    @rule(slots=st.sampled_from([None, None, 0, 1, 3]))
    def capacity(self, slots: int | None) -> None:
        self.tell(Capacity(slots))

    @rule(per=st.sampled_from(["minute", "day"]))
    def window(self, per: Any) -> None:
        self.tell(WindowTurned(per, self.now + 60.0))

    @precondition(lambda self: self.steps > 25)
    @rule()
    def close(self) -> None:
        self.tell(Close())

    def teardown(self) -> None:
        again = Scheduler(self.first, 100.0)
        for event, now, effects in self.journal:
            assert again.handle(event, now) == effects, "a replay took another way"
        assert again.snapshot(self.now) == self.core.snapshot(self.now)


def test_every_story_keeps_every_promise():
    run_state_machine_as_test(Story, settings=settings(stateful_step_count=40))
