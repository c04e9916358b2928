"""What the demo endpoint allows and writes down, under a clock that stands still."""

from __future__ import annotations

from fairq_ipy.demo.books import Books, Entry, Refusal
from fairq_ipy.testing import FakeClock


def taken(books: Books, clock: FakeClock, mark: str | None = None) -> Entry:
    entry = books.arrive("/v1/x", mark, clock())
    assert isinstance(entry, Entry)
    return entry


def test_one_more_than_the_cap_is_refused_until_one_ends() -> None:
    clock = FakeClock()
    books = Books(1, None, clock)
    first = taken(books, clock)
    refusal = books.arrive("/v1/x", None, clock())
    assert isinstance(refusal, Refusal)
    assert refusal.wait is None
    books.end(first, "served")
    taken(books, clock)
    stats = books.stats()
    assert (stats.arrivals, stats.refused_429, stats.served) == (3, 1, 1)
    assert (stats.in_flight, stats.max_in_flight) == (1, 1)


def test_the_limit_per_minute_slides_and_says_when_to_come_back() -> None:
    clock = FakeClock()
    books = Books(None, 2, clock)
    books.end(taken(books, clock), "served")
    clock.advance(10)
    taken(books, clock)
    assert books.remaining() == 0
    clock.advance(20)
    refusal = books.arrive("/v1/x", None, clock())
    assert isinstance(refusal, Refusal)
    assert refusal.wait == 30
    clock.advance(30)
    assert books.remaining() == 1
    taken(books, clock)
    assert isinstance(books.arrive("/v1/x", None, clock()), Refusal)


def test_refused_requests_do_not_count_against_the_minute() -> None:
    clock = FakeClock()
    books = Books(None, 1, clock)
    taken(books, clock)
    for _ in range(5):
        books.arrive("/v1/x", None, clock())
    clock.advance(60)
    taken(books, clock)


def test_the_log_says_when_each_request_came_began_and_ended() -> None:
    clock = FakeClock(100)
    books = Books(1, None, clock)
    arrived = clock()
    clock.advance(1)
    entry = books.arrive("/v1/x", "[#1]", arrived)
    assert isinstance(entry, Entry)
    books.arrive("/v1/x", "[#2]", clock())
    clock.advance(2)
    books.end(entry, "disconnected")
    assert books.stats().log == (
        Entry(1, "/v1/x", "[#1]", 100, 101, 103, "disconnected"),
        Entry(2, "/v1/x", "[#2]", 101, None, 101, "refused"),
    )
    assert books.stats().disconnects == 1


def test_the_log_keeps_the_latest() -> None:
    clock = FakeClock()
    books = Books(None, None, clock, log_size=2)
    entries = [taken(books, clock, str(at)) for at in range(4)]
    books.end(entries[0], "served")
    assert [entry.mark for entry in books.stats().log] == ["2", "3"]
    assert (books.stats().served, books.stats().in_flight) == (1, 3)


def test_without_a_limit_nothing_remains_to_be_told() -> None:
    assert Books(1, None, FakeClock()).remaining() is None
