"""Letters: in order, none lost, none left lying."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

import pytest

from fairq_ipy.runtime import mailbox
from fairq_ipy.runtime.mailbox import Mailbox


class Box:
    """A mailbox on a loop that the test turns by hand."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.turns = []
        self.buried = []
        self.mailbox = Mailbox(self.loop, lambda: self.turns.append(1), self.buried.append)

    def turn(self):
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()


@pytest.fixture
def box():
    made = Box()
    yield made
    made.loop.close()


def test_letters_are_run_in_order(box):
    got = []
    for number in range(10):
        box.mailbox.post(got.append, number)
    box.turn()
    assert got == list(range(10))


def test_one_ring_is_enough_for_all_that_comes_before_the_owner_wakes(box, monkeypatch):
    rings = []
    ring = box.loop.call_soon_threadsafe
    monkeypatch.setattr(box.loop, "call_soon_threadsafe", lambda *args: (rings.append(1), ring(*args)))
    for _ in range(5):
        box.mailbox.post(int)
    assert len(rings) == 1
    box.turn()
    box.mailbox.post(int)
    assert len(rings) == 2


def test_the_owner_is_not_rung_while_it_reads(box, monkeypatch):
    rings = []

    def letter():
        monkeypatch.setattr(box.loop, "call_soon_threadsafe", lambda *args: rings.append(1))
        box.mailbox.post(got.append, "from inside")

    got = []
    box.mailbox.post(letter)
    box.turn()
    assert got == ["from inside"]
    assert not rings


def test_a_letter_that_comes_just_before_the_owner_sleeps_is_read(box):
    got = []

    class Late(deque):
        """Looks empty to the owner once, while a letter arrives."""

        def __bool__(self):
            if len(self) == 0 and not got:
                got.append("posted")
                threads[0].start()
                threads[0].join()
                return False
            return len(self) > 0

    threads = [threading.Thread(target=box.mailbox.post, args=(got.append, "read"))]
    box.mailbox._letters = Late()
    box.mailbox.post(int)
    box.turn()
    box.turn()
    assert got == ["posted", "read"]


def test_a_letter_whose_poster_was_interrupted_before_it_rang_is_read_with_the_next(box):
    got = []
    box.mailbox._letters.append((got.append, ("first",)))
    box.turn()
    assert not got
    box.mailbox.post(got.append, "second")
    box.turn()
    assert got == ["first", "second"]


def test_a_poster_interrupted_while_it_rings_leaves_the_bell_working(box, monkeypatch):
    ring = box.loop.call_soon_threadsafe

    def interrupted(*args):
        monkeypatch.setattr(box.loop, "call_soon_threadsafe", ring)
        raise KeyboardInterrupt

    monkeypatch.setattr(box.loop, "call_soon_threadsafe", interrupted)
    got = []
    with pytest.raises(KeyboardInterrupt):
        box.mailbox.post(got.append, "first")
    box.mailbox.post(got.append, "second")
    box.turn()
    assert got == ["first", "second"]


def test_a_note_of_a_ring_that_is_written_late_does_not_silence_the_next_one(box, monkeypatch):
    ring = box.loop.call_soon_threadsafe

    def slow(*args):
        ring(*args)
        monkeypatch.setattr(box.loop, "call_soon_threadsafe", ring)
        box.turn()  # the owner reads and sleeps again, all before the poster goes on

    monkeypatch.setattr(box.loop, "call_soon_threadsafe", slow)
    got = []
    box.mailbox.post(got.append, "first")
    assert got == ["first"]
    box.mailbox.post(got.append, "second")
    box.turn()
    assert got == ["first", "second"]


def test_a_letter_that_fails_does_not_keep_the_others(box, caplog):
    got = []

    def fails():
        raise ValueError("of this letter")

    def quits():
        raise KeyboardInterrupt

    box.mailbox.post(fails)
    box.mailbox.post(quits)
    box.mailbox.post(got.append, "after")
    box.turn()
    assert got == ["after"]
    assert "fails failed" in caplog.text
    assert "of this letter" in caplog.text


def test_a_long_pile_leaves_the_loops_own_work_its_turns(box, monkeypatch):
    monkeypatch.setattr(mailbox, "TURN", 4)
    order = []
    for number in range(10):
        box.mailbox.post(order.append, number)
    box.loop.call_soon(order.append, "work of the loop")
    box.turn()
    box.turn()
    box.turn()
    assert order == [0, 1, 2, 3, "work of the loop", 4, 5, 6, 7, 8, 9]


def test_the_end_of_every_turn_is_told(box):
    box.mailbox.post(int)
    box.mailbox.post(int)
    box.turn()
    assert len(box.turns) == 1


def test_letters_that_come_too_late_are_buried(box):
    box.mailbox._letters.append(("there", ()))
    box.mailbox.close()
    box.mailbox.post("late")
    assert box.buried == [("there", ()), ("late", ())]


def test_a_letter_to_a_closed_loop_is_buried(box):
    box.loop.close()
    box.mailbox.post("late")
    assert box.buried == [("late", ())]


def test_what_is_forgotten_is_neither_run_nor_buried(box):
    got = []
    box.mailbox.post(got.append, 1)
    box.mailbox.forget()
    box.turn()
    assert not got
    assert not box.buried


def test_no_letter_of_many_threads_is_lost():
    got = []
    loop = asyncio.new_event_loop()
    box = Mailbox(loop, lambda: None, lambda letter: None)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    posters = [threading.Thread(target=lambda: [box.post(got.append, 1) for _ in range(5000)]) for _ in range(4)]
    for poster in posters:
        poster.start()
    for poster in posters:
        poster.join()
    box.post(loop.stop)
    thread.join()
    loop.close()
    assert len(got) == 20_000
