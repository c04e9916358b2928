"""What happened, in order."""

from __future__ import annotations

import itertools
import random
import re
import threading

import pytest

from fairq_ipy.core.messages import (
    Admit,
    Backoff,
    Cancel,
    Held,
    Pause,
    Paused,
    PolicyChanged,
    Progress,
    Ready,
    Refuse,
    Resume,
    Resumed,
    Settle,
    Submit,
    Tick,
    Unclaimed,
)
from fairq_ipy.core.model import Backpressure, Limits, Policy, Receipt, Ticket
from fairq_ipy.core.scheduler import Scheduler
from fairq_ipy.runtime.desk import Desk
from fairq_ipy.runtime.journal import Journal, replay
from fairq_ipy.testing import FakeClock

from .conftest import Probe, eventually, rules


def journal(*lines):
    made = Journal(100)
    for line in lines:
        made.append(line)
    return made


TICKET = Ticket(17, "logs", 2, prompt_tokens=1800, model="demo-small")


def words(lines):
    return [re.sub(r"\s+", " ", line).strip() for line in lines]


def test_the_story_of_a_call_is_told_in_sentences_with_times():
    story = journal(
        (10.0, Submit(TICKET), []),
        (10.5, Submit(Ticket(18, "other", 1)), [Admit(18, 1, 0.0)]),
        (11.0, Settle(18, Receipt()), [Admit(17, 1, 1.0)]),
        (11.2, Progress(17, 5), []),
        (11.5, Backoff(17, 2.0, 0.0, 429), [Held(13.5)]),
        (13.5, Tick(), [Admit(17, 2, 3.0)]),
        (15.0, Settle(17, Receipt("ok", 1790, 20, exact=True)), []),
    ).story(17)
    assert words(story) == [
        "+0.000 s logs asks at level 2 for demo-small, with about 1800 prompt tokens",
        "+1.000 s admitted, after 1.000 s in the queue",
        "+1.200 s 5 output tokens so far",
        "+1.500 s the endpoint refuses with 429 and asks to wait 2 s",
        "+1.500 s the endpoint is left alone for 2.000 s",
        "+3.500 s admitted again, attempt 2, after 3.000 s in the queue",
        "+5.000 s over: ok, 1790 + 20 tokens, counted by the endpoint",
    ]


def test_the_story_tells_what_held_up_a_call_that_waited_and_nothing_of_others():
    story = journal(
        (0.0, Pause("logs"), [Paused("logs", "by hand", None)]),
        (1.0, Submit(TICKET), []),
        (2.0, Resume("logs"), [Resumed("logs")]),
        (3.0, Pause("other"), [Paused("other", "by hand", None)]),
        (4.0, Pause(), [Paused(None, "by hand", None)]),
        (5.0, Resume(), [Resumed(None)]),
        (6.0, Tick(), [Paused("logs", "3 empty answers in a row", None)]),
        (7.0, Cancel(17), []),
        (8.0, Pause("logs"), [Paused("logs", "by hand", None)]),
    ).story(17)
    assert words(story)[1:] == [
        "+1.000 s logs is resumed",
        "+3.000 s everything is paused by hand",
        "+4.000 s everything is resumed",
        "+5.000 s logs is paused: 3 empty answers in a row",
        "+6.000 s its caller left",
    ]


@pytest.mark.parametrize(
    ("event", "effects", "words_of_it"),
    [
        (Submit(TICKET), [Refuse(17, "queue_full", {"depth": 9})], "refused: queue full (depth 9)"),
        (Submit(TICKET), [Refuse(17, "shut_down", {})], "refused: shut down"),
        (Unclaimed(17), [], "its caller did not take the permit in time; it keeps its place"),
        (Ready(17), [], "its caller is back"),
        (Settle(17, Receipt("unsent")), [], "given back without being sent"),
        (Settle(17, Receipt("failed", 5)), [], "over: failed, 5 + 0 tokens, estimated"),
        (Backoff(17, None, 0.5), [], "the endpoint refuses"),
    ],
)  # fmt: skip
def test_every_event_of_a_call_has_its_sentence(event, effects, words_of_it):
    assert words(journal((0.0, event, effects)).story(17))[-1] == f"+0.000 s {words_of_it}"


def test_a_call_that_the_journal_does_not_know_has_no_story():
    assert journal().story(17) == []


def test_the_ring_forgets_the_oldest(make_keeper):
    keeper = make_keeper(rules(), journal_size=6)
    first, last = None, None
    for _ in range(5):
        call = Probe(keeper, settle=True).submit()
        call.wait()
        first, last = first or call, call
    assert len(keeper.journal) == 6
    assert keeper.story(first.ticket) == []
    assert len(keeper.story(last.ticket)) == 3


def test_a_call_under_a_permit_refers_to_the_permits_story():
    made = journal((0.0, Submit(TICKET), [Admit(17, 1, 0.0)]))
    made.lend(20, 17)
    made.lend(21, 20)
    assert made.story(21)[0] == "call 21 ran under the permit of call 20:"
    assert made.story(21)[1] == "call 20 ran under the permit of call 17:"
    assert len(made.story(21)) == 4


def test_the_journal_may_be_read_while_it_is_written(make_keeper, crew):
    keeper = make_keeper(rules(concurrency=2))
    stop = threading.Event()

    def write():
        while not stop.is_set():
            Probe(keeper, settle=True).submit().wait()

    crew.start(write)
    for _ in range(200):
        list(keeper.journal)
    stop.set()
    crew.join()


def test_replaying_a_journal_gives_the_same_effects():
    dice = random.Random(7)
    policy = Policy(limits=Limits(2, queue=8, max_wait=30.0), backpressure=Backpressure(retries=2))
    clock = FakeClock()
    desk = Desk(policy, clock=clock)
    began = clock.now()
    numbers = itertools.count(1)
    running, waiting = [], []

    class Work:
        def __init__(self, number):
            self.number = number

        def admitted(self, permit):
            waiting.remove(self.number)
            running.append(self.number)

        def refused(self, error):
            waiting.remove(self.number)

    for _ in range(2000):
        clock.advance(dice.random() * 3)
        match dice.randrange(9):
            case 0 | 1 | 2 | 3:
                number = next(numbers)
                waiting.append(number)
                desk.enqueue(Work(number), Ticket(number, dice.choice("abc"), dice.randrange(3), dice.randrange(99)))
            case 4 | 5 if running:
                desk.settle(running.pop(dice.randrange(len(running))), Receipt("ok", 3, dice.randrange(50)))
            case 6 if running:
                number = running.pop()
                waiting.append(number)
                desk.backoff(number, status=429, retry_after=dice.choice([None, 0.5]))
            case 7 if waiting:
                number = waiting.pop()
                desk.leave(number)
            case 8:
                desk.tick()
                desk.feed(PolicyChanged(policy))
    lines = list(desk.journal)
    assert len(lines) > 1500
    assert {type(effect) for line in lines for effect in line.effects} == {Admit, Refuse, Held}
    for line, effects in replay(Scheduler(policy, began), lines):
        assert effects == line.effects


def test_the_keepers_own_journal_can_be_replayed(make_keeper, crew):
    clock = FakeClock()
    keeper = make_keeper(rules(concurrency=2), clock=clock)
    for _ in range(3):
        crew.start(lambda: [Probe(keeper, settle=True).submit().wait() for _ in range(50)])
    crew.join()
    lines = eventually(lambda: (found := list(keeper.journal)) and len(found) >= 300 and found)
    assert all(effects == line.effects for line, effects in replay(Scheduler(rules(concurrency=2), clock.now()), lines))


def test_the_story_tells_that_a_tenant_recovered_by_itself():
    story = journal((1.0, Submit(TICKET), []), (2.0, Tick(), [Resumed("logs")])).story(17)
    assert words(story)[1:] == ["+1.000 s logs runs again"]


def test_only_so_many_loans_are_remembered():
    made = Journal(2)
    for number in range(5):
        made.lend(number, 99)
    assert [made.story(number) != [] for number in range(5)] == [False, False, False, True, True]
