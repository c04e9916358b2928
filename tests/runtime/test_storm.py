"""Everything at once, from a seed: whatever happens, slots are conserved, nobody hangs, lanes stay in order."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections import defaultdict

import pytest

from fairq_ipy.core.messages import Admit, Pause, PolicyChanged, Resume, Submit
from fairq_ipy.core.model import Backpressure, Level, Limits, Policy, Receipt, TenantPolicy
from fairq_ipy.core.scheduler import Scheduler
from fairq_ipy.errors import FairqError
from fairq_ipy.runtime import calls, holding
from fairq_ipy.runtime.journal import replay
from fairq_ipy.runtime.keeper import Keeper
from fairq_ipy.runtime.permits import PermitBlock
from fairq_ipy.runtime.scope import Identity

from .conftest import Crew, Probe, books, eventually

TENANTS = ("a", "b", "c")
CAPS = (1, 2, 3, 5)


def policy(dice, cap):
    return Policy(
        limits=Limits(cap, queue=dice.choice([None, 60]), max_wait=dice.choice([None, 5.0])),
        levels=(Level(1, "interactive", reserve=dice.choice([0, 1])), Level(2, "batch")),
        headroom_for=dice.choice([0.0, 0.05]),
        backpressure=Backpressure(retries=2, base=0.002, max_hold=0.01),
        tenants={"c": TenantPolicy(concurrency=1)},
    )


class Meter:
    """Counts who is inside, beside the core's own books."""

    def __init__(self):
        self.lock = threading.RLock()  # the collector may end a task in the middle of it
        self.inside = 0
        self.most = 0

    def __enter__(self):
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *error):
        with self.lock:
            self.inside -= 1


class Storm:
    """Callers of every kind, each a pure function of the seed."""

    def __init__(self, keeper, seed):
        self.keeper = keeper
        self.seed = seed
        self.meter = Meter()
        self.ends = defaultdict(int)

    def block(self, dice, **options):
        who = Identity(dice.choice(TENANTS), dice.choice([1, 1, 2]))
        return PermitBlock(self.keeper, lambda: who, cost=dice.randrange(100), **options)

    def plain(self, dice):
        with self.block(dice), self.meter:
            if dice.random() < 0.3:
                with self.block(dice):
                    pass
            if dice.random() < 0.2:
                raise RuntimeError("of the block")

    def probe(self, dice):
        """A call as the transport makes them: pushed back, progressing, given up, failing."""
        kind = dice.choice(["quick", "pushed back", "given up", "broken", "progress"])
        call = (Broken if kind == "broken" else Probe)(self.keeper, settle=kind == "quick")
        call.submit(dice.choice(TENANTS), dice.choice([1, 2]), max_wait=dice.choice([None, 0.01]))
        if kind == "given up":
            self.keeper.cancel(call.ticket)
            self.keeper.post(lambda: self.keeper.settle(call.ticket, Receipt("unsent")))
            return
        call.wait()
        if kind == "pushed back":
            self.keeper.call(lambda _core, _now: self.keeper.backoff(call.ticket, status=429, retry_after=None))
            eventually(lambda: len(call.permits) > 1 or call.errors)
            if call.errors:
                raise call.errors[0]
        elif kind == "progress":
            self.keeper.post(self.keeper.progress, call.ticket, 50)
        call.end()

    async def task(self, dice):
        async with self.block(dice):
            with self.meter:
                for _ in range(dice.randrange(3)):
                    await asyncio.sleep(0)
            if dice.random() < 0.3:
                async with self.block(dice):
                    await asyncio.sleep(0)

    async def function(self, dice):
        await calls.submit(self.block(dice, on_loop=False), self.keeper, int, asynchronous=False)

    # ------------------------------------------------------------------------------------------------------ the weather

    def thread(self, number):
        dice = random.Random(f"{self.seed} {number}")
        for _ in range(60):
            self.end(dice.choice([self.plain, self.plain, self.probe]), dice)

    def end(self, call, dice):
        try:
            call(dice)
        except (FairqError, RuntimeError) as error:
            self.ends[type(error).__name__] += 1
        else:
            self.ends["ok"] += 1

    def loop(self, number):
        dice = random.Random(f"{self.seed} loop {number}")
        for _ in range(3):
            asyncio.run(self.cell(dice))

    async def cell(self, dice):
        tasks = [asyncio.create_task(dice.choice([self.task, self.task, self.function])(dice)) for _ in range(25)]
        for task in tasks:
            weather = dice.random()
            if weather < 0.2:
                task.cancel()
            elif weather < 0.4:
                await asyncio.sleep(0)
                task.cancel()
        if dice.random() < 0.5:
            threading.Event().wait(0.004)  # a loop that is blocked for longer than an offer stands
        if dice.random() < 0.3:
            return  # asyncio.run() cancels what is left
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            self.ends[type(outcome).__name__] += 1
            assert outcome is None or isinstance(outcome, (FairqError, asyncio.CancelledError)), outcome

    def dead_loop(self, number):
        dice = random.Random(f"{self.seed} dead {number}")
        loop = asyncio.new_event_loop()
        tasks = [loop.create_task(self.task(dice)) for _ in range(5)]
        for _ in range(dice.randrange(4)):
            loop.call_soon(loop.stop)
            loop.run_forever()
        for task in tasks:
            task._log_destroy_pending = False
        loop.close()
        del tasks, task
        gc.collect()

    def politics(self, number):
        dice = random.Random(f"{self.seed} politics {number}")
        for _ in range(30):
            match dice.randrange(4):
                case 0:
                    self.keeper.event(Pause(dice.choice([None, *TENANTS])))
                case 1:
                    self.keeper.event(PolicyChanged(policy(dice, dice.choice(CAPS))))
                case _:
                    self.keeper.snapshot()
            threading.Event().wait(0.001)
            for tenant in (None, *TENANTS):
                self.keeper.event(Resume(tenant))


class Broken(Probe):
    def admitted(self, permit):
        raise ValueError("no socket")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_a_storm_leaves_nothing_behind(seed, make_keeper, monkeypatch, caplog):
    caplog.set_level("CRITICAL")
    monkeypatch.setattr(holding, "CLAIM_WITHIN", 0.002)
    rules = policy(random.Random(seed), 2)
    keeper: Keeper = make_keeper(rules, journal_size=1_000_000)
    began = keeper.began
    storm, crew = Storm(keeper, seed), Crew()
    for number in range(3):
        crew.start(storm.thread, number)
    for number in range(2):
        crew.start(storm.loop, number)
    crew.start(storm.dead_loop, 0)
    crew.start(storm.politics, 0)
    crew.join()
    gc.collect()
    eventually(lambda: books(keeper) == (0, 0))
    assert storm.meter.inside == 0
    assert storm.meter.most <= max(CAPS)
    snapshot = keeper.snapshot()
    assert snapshot.submitted == snapshot.completed + snapshot.rejected + snapshot.cancelled > 300
    assert not keeper._works
    assert not keeper._running
    assert not keeper._loans
    lines = list(keeper.journal)
    assert all(effects == line.effects for line, effects in replay(Scheduler(rules, began), lines))
    assert lanes_in_order(lines)


def lanes_in_order(lines):
    """Whether first admissions within a lane came in the order of arrival, except for those that missed an offer."""
    away = {line.event.id for line in lines if type(line.event).__name__ == "Unclaimed"}
    lane = {line.event.ticket.id: line.event.ticket[1:3] for line in lines if isinstance(line.event, Submit)}
    arrived = {number: at for at, number in enumerate(lane)}
    latest = defaultdict(lambda: -1)
    for line in lines:
        for effect in line.effects:
            if isinstance(effect, Admit) and effect.attempt == 1 and effect.id not in away:
                if arrived[effect.id] < latest[lane[effect.id]]:
                    return False
                latest[lane[effect.id]] = arrived[effect.id]
    return True


def test_ten_thousand_callers_at_once_each_get_their_own_answer(make_keeper):
    keeper = make_keeper(Policy(limits=Limits(8, queue=None), headroom_for=0.0))
    answers: dict[int, int] = {}

    class Echo:
        """Answers on the keeper's loop, like a call of the transport, after the others that run."""

        def __init__(self, ticket, gate, question):
            self.ticket, self.gate, self.question = ticket, gate, question

        def admitted(self, permit):
            assert permit.ticket == self.ticket
            keeper.loop.call_soon(self.over)

        def over(self):
            keeper.settle(self.ticket, Receipt())
            self.gate.resolve(self.question * 7)

        def refused(self, error):
            self.gate.reject(error)

    def submit(gate, question):
        number = keeper.next_id()
        keeper.submit(Echo(number, gate, question), ticket(number, question))
        return gate

    async def ask(question):
        answers[question] = await submit(keeper.loop_gate(), question)

    async def cell(questions):
        await asyncio.gather(*(ask(question) for question in questions))

    def thread(questions):
        for question in questions:
            answers[question] = submit(keeper.thread_gate(), question).wait()

    crew = Crew()
    for number in range(2):
        crew.start(asyncio.run, cell(range(number * 4000, number * 4000 + 4000)))
    for number in range(20):
        crew.start(thread, range(8000 + number * 100, 8100 + number * 100))
    crew.join()
    assert answers == {question: question * 7 for question in range(10_000)}
    assert keeper.snapshot().completed == 10_000


def ticket(number, question):
    from fairq_ipy.core.model import Ticket

    return Ticket(number, f"t{question % 10}", 1 + question % 2)
