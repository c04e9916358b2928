"""When budgets begin anew, where the team lives."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairq_ipy.core.model import Budget, Policy, TenantPolicy
from fairq_ipy.runtime.calendar import LOOK, Calendar, used, window


def at(zone, *local, fold=0):
    return datetime(*local, tzinfo=ZoneInfo(zone), fold=fold).timestamp()


@pytest.mark.parametrize(
    ("per", "start", "end"),
    [
        ("minute", (2026, 3, 10, 14, 25), (2026, 3, 10, 14, 26)),
        ("hour", (2026, 3, 10, 14), (2026, 3, 10, 15)),
        ("day", (2026, 3, 10), (2026, 3, 11)),
        ("month", (2026, 3, 1), (2026, 4, 1)),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata", "Pacific/Auckland", "America/St_Johns"])
def test_windows_are_those_of_the_zone(per, start, end, zone):
    found = window(per, ZoneInfo(zone), at(zone, 2026, 3, 10, 14, 25, 36))
    assert found == (at(zone, *pad(start)), at(zone, *pad(end)))


def pad(local):
    return (*local, *(1, 1)[len(local) - 1 :]) if len(local) < 3 else local


def test_a_year_ends_with_its_december():
    assert window("month", ZoneInfo("UTC"), at("UTC", 2026, 12, 31, 23, 59)) == (
        at("UTC", 2026, 12, 1),
        at("UTC", 2027, 1, 1),
    )


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", (2026, 3, 29), 23),
        ("Europe/Berlin", (2026, 10, 25), 25),
        ("America/New_York", (2026, 11, 1), 25),
        ("Australia/Lord_Howe", (2026, 4, 5), 24.5),  # half an hour of summer time
        ("Africa/Cairo", (2026, 4, 24), 23),  # midnight does not exist
        ("America/Havana", (2026, 11, 1), 25),  # midnight comes twice
    ],
)
def test_a_day_has_as_many_hours_as_the_clock_on_the_wall_shows(zone, day, hours):
    start, end = window("day", ZoneInfo(zone), at(zone, *day, 12))
    assert (end - start) / 3600 == hours
    assert window("day", ZoneInfo(zone), start) == (start, end)
    assert window("day", ZoneInfo(zone), end - 1) == (start, end)


def test_an_hour_that_is_lived_twice_is_two_windows():
    zone = "Europe/Berlin"
    first = window("hour", ZoneInfo(zone), at(zone, 2026, 10, 25, 2, 30, fold=0))
    second = window("hour", ZoneInfo(zone), at(zone, 2026, 10, 25, 2, 30, fold=1))
    assert first.end == second.start
    assert first.end - first.start == second.end - second.start == 3600


@given(
    st.sampled_from(
        ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu", "Africa/Cairo"]
    ),
    st.sampled_from(["minute", "hour", "day", "month"]),
    st.integers(at("UTC", 2020, 1, 1), at("UTC", 2035, 1, 1)),
)
def test_windows_follow_each_other_without_gap_or_overlap(zone, per, instant):
    info = ZoneInfo(zone)
    here = window(per, info, instant)
    assert here.start <= instant < here.end
    following = window(per, info, here.end)
    # An hour may be cut by a shift of half an hour; then the second window still knows the first one's beginning.
    assert following.start in {here.end, here.start}
    assert following.end > here.end


def test_a_whole_year_of_hours_turns_once_an_hour_in_berlin():
    info = ZoneInfo("Europe/Berlin")
    ends, instant = [], at("Europe/Berlin", 2026, 1, 1)
    while instant < at("Europe/Berlin", 2027, 1, 1):
        instant = window("hour", info, instant).end
        ends.append(instant)
    assert len(ends) == 8760
    assert {b - a for a, b in pairwise(ends)} == {3600.0}


def test_a_sessions_budget_has_no_windows():
    with pytest.raises(ValueError, match="no windows"):
        window("session", ZoneInfo("UTC"), 0.0)


def test_only_windows_that_a_budget_counts_in_are_watched():
    policy = Policy(
        defaults=TenantPolicy(budgets=(Budget("tokens", 5, "day"), Budget("requests", 5))),
        tenants={"a": TenantPolicy(budgets=(Budget("requests", 5, "minute"),))},
    )
    assert used(policy) == {"day", "minute"}
    assert used(Policy()) == frozenset()


# ---------------------------------------------------------------------------------------------------- told as it turns


class Loop:
    def __init__(self):
        self.timers = []

    def call_later(self, delay, function):
        self.timers.append((delay, function))
        return self

    def cancel(self):
        self.timers.pop()


class Scene:
    """A calendar on a wall's clock that the test turns."""

    def __init__(self, zone="UTC", pers=("day",), start=(2026, 3, 10, 12)):
        self.wall = at(zone, *start)
        self.steady = 1000.0
        self.loop = Loop()
        self.events = []
        self.calendar = Calendar(self, lambda: self.wall)
        self.calendar.follow(ZoneInfo(zone), pers)

    def feed(self, event):
        self.events.append((event.per, event.ends))

    def now(self):
        return self.steady

    def later(self, seconds, steady=None):
        self.wall += seconds
        self.steady += seconds if steady is None else steady
        self.loop.timers[-1][1]()


def test_the_window_that_is_on_is_told_at_once_with_its_end_on_the_keepers_clock():
    scene = Scene(pers=("day", "hour"))
    assert scene.events == [("day", 1000.0 + 12 * 3600), ("hour", 1000.0 + 3600)]


def test_a_window_is_told_when_it_turns_and_once():
    scene = Scene()
    scene.later(12 * 3600 - 1)
    assert len(scene.events) == 1
    scene.later(1)
    assert scene.events[1:] == [("day", scene.steady + 24 * 3600)]
    scene.later(30)
    assert len(scene.events) == 2


def test_it_looks_at_the_turn_and_at_least_twice_a_minute():
    scene = Scene()
    assert scene.loop.timers[0][0] == LOOK
    scene.wall += 12 * 3600 - 10
    scene.calendar.look()
    assert [delay for delay, _ in scene.loop.timers] == [10.0]


def test_a_machine_that_slept_over_the_turn_tells_it_when_it_wakes():
    scene = Scene()
    scene.later(20 * 3600, steady=30)
    assert scene.events[1] == ("day", 1030.0 + 16 * 3600)


def test_a_clock_that_is_set_back_a_little_gives_no_budget_twice():
    scene = Scene()
    scene.later(12 * 3600 + 5)
    scene.later(-60, steady=1)
    scene.later(60)
    assert len(scene.events) == 2


def test_a_clock_that_was_far_ahead_does_not_freeze_the_windows():
    scene = Scene()
    scene.later(400 * 24 * 3600, steady=30)
    scene.later(-400 * 24 * 3600, steady=30)
    assert len(scene.events) == 3


def test_nothing_is_watched_where_nothing_counts():
    scene = Scene(pers=())
    assert scene.events == []
    assert scene.loop.timers == []


def test_a_new_policy_keeps_the_windows_that_are_on():
    scene = Scene()
    scene.calendar.follow(ZoneInfo("UTC"), ("day", "minute"))
    assert [per for per, _ in scene.events] == ["day", "minute"]
    scene.calendar.follow(ZoneInfo("Asia/Tokyo"), ("day",))
    assert len(scene.events) == 2
    scene.wall = at("Asia/Tokyo", 2026, 3, 11)
    scene.calendar.look()
    assert [per for per, _ in scene.events] == ["day", "minute", "day"]
    scene.calendar.follow(ZoneInfo("UTC"), ())
    assert scene.loop.timers == []


def test_a_budget_of_a_minute_comes_back_in_a_real_keeper(make_keeper):
    from fairq_ipy.core.model import Limits, Receipt
    from fairq_ipy.errors import BudgetExceededError

    from .conftest import Probe

    policy = Policy(limits=Limits(1), defaults=TenantPolicy(budgets=(Budget("requests", 1, "minute"),)))
    keeper = make_keeper(policy)
    wall = [at("UTC", 2026, 3, 10, 12)]
    calendar = Calendar(keeper, lambda: wall[0])
    keeper.call(lambda _core, _now: calendar.follow(ZoneInfo("UTC"), used(policy)))
    first = Probe(keeper).submit()
    first.wait()
    first.end(Receipt("ok"))
    with pytest.raises(BudgetExceededError) as refused:
        Probe(keeper).submit().wait()
    assert refused.value.resets_at is not None
    wall[0] += 60
    keeper.call(lambda _core, _now: calendar.look())
    again = Probe(keeper).submit()
    again.wait()
    again.end()
    keeper.call(lambda _core, _now: calendar.follow(ZoneInfo("UTC"), ()))
