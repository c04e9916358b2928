"""The clock, the ticket maker, and what the kit offers."""

from __future__ import annotations

import inspect

import pytest

from fairq_ipy import testing
from fairq_ipy.core.model import Ticket
from fairq_ipy.testing import FakeClock, TicketMaker, ticket


def test_the_clock_stands_until_it_is_moved() -> None:
    clock = FakeClock(start=5)
    assert [clock(), clock.now()] == [5.0, 5.0]
    assert clock.advance(2.5) == 7.5
    assert repr(clock) == "FakeClock(7.5)"


@pytest.mark.parametrize("seconds", [-0.1, float("nan")])
def test_the_clock_never_goes_back(seconds: float) -> None:
    clock = FakeClock()
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(seconds)
    assert clock() == 1000.0


def test_tickets_number_themselves() -> None:
    make = TicketMaker()
    assert make() == Ticket(id=1, tenant="a", level=1)
    assert make("b", 2, prompt_tokens=7) == Ticket(id=2, tenant="b", level=2, prompt_tokens=7)
    assert make(id=0).id == 0
    assert make().id == 3


def test_the_shared_maker_never_gives_an_id_twice() -> None:
    assert len({ticket().id for _ in range(100)}) == 100


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    assert sorted(testing.__all__) == list(testing.__all__)
    for name in testing.__all__:
        assert inspect.getdoc(getattr(testing, name)), name
