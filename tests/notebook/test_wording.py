"""Numbers, times and states in words."""

from __future__ import annotations

import pytest

from fairq_ipy.core.messages import BudgetState, Place, Snapshot, TenantSnapshot
from fairq_ipy.core.model import Budget, Level, Limits, Policy, TenantPolicy
from fairq_ipy.notebook import views
from fairq_ipy.notebook.wording import hold_words, place_words, plural, seconds
from fairq_ipy.policy import Endpoint, Settings


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0 s"),
        (0.0004, "0 s"),
        (0.04, "40 ms"),
        (0.42, "0.42 s"),
        (1.25, "1.2 s"),
        (12.4, "12 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (185, "3 min 5 s"),
        (3600, "1 h"),
        (7800, "2 h 10 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_span_of_time_reads_as_people_say_it(value: float, words: str) -> None:
    assert seconds(value) == words


def test_one_is_one_and_many_are_many() -> None:
    assert (plural(1, "call"), plural(0, "call"), plural(1200, "call")) == ("1 call", "0 calls", "1,200 calls")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (Place(0, "slot"), "waits for a free slot, next in the queue"),
        (Place(1, "slot"), "waits for a free slot, 1 call ahead"),
        (Place(2, "hold", 130.0), "waits since the endpoint asked for a rest, 30 s to go, 2 calls ahead"),
        (Place(0, "budget", 90.0), "waits for its budget, next in the queue"),
        (Place(0, "headroom"), "waits so that others keep a free slot, next in the queue"),
    ],
)
def test_a_place_says_what_it_waits_for_and_how_long(place: Place, words: str) -> None:
    assert place_words(place, now=100.0) == words


def test_a_hold_or_a_pause_of_all_is_told() -> None:
    assert hold_words(Snapshot(), 100.0) == ""
    assert hold_words(Snapshot(paused=True), 100.0).startswith("everything is paused")
    assert hold_words(Snapshot(held_until=130.0), 100.0) == "the endpoint asked for a rest: 30 s to go"
    assert hold_words(Snapshot(held_until=90.0), 100.0) == ""


# --------------------------------------------------------------------------------------------------------------- views


def settings(rules: Policy = Policy(), **endpoint: str) -> Settings:  # noqa: B008 - frozen
    return Settings(Endpoint(**{"base_url": "demo", **endpoint}), rules, "UTC", None, "")


def test_the_status_tells_everything_that_went_wrong() -> None:
    snapshot = Snapshot(
        cap=2,
        submitted=9,
        completed=5,
        failed=2,
        rejected=3,
        cancelled=1,
        refusals_by_endpoint=1,
        retries=4,
        tokens=1234,
    )
    text = str(views.status(snapshot, settings(), 0.0, ["the policy file cannot be used"]))
    assert (
        "9 calls so far, 5 done, 2 of them failed, 3 refused, 1 left, "
        "the endpoint was busy 1 time, 4 sent again, 1,234 tokens"
    ) in text
    assert "note: the policy file cannot be used" in text


def test_tenants_show_their_budgets_and_why_they_wait() -> None:
    budget = BudgetState("tokens", "day", 1000, used=300, reserved=20, resets_at=160.0)
    row = TenantSnapshot(state="stalled", why="3 empty answers", until=130.0, budgets=(budget,))
    text = str(views.tenants(Snapshot(tenants={"logs": row}), Policy(), 100.0))
    assert "320 of 1,000 tokens per day, 1 min to go" in text
    assert "3 empty answers, 30 s to go" in text
    assert str(views.tenants(Snapshot(), Policy(), 0.0)) == "nobody has asked yet, and the policy names nobody"


def test_the_policy_names_only_the_limits_there_are() -> None:
    rules = Policy(
        limits=Limits(queue=None, queue_per_tenant=3, max_wait=90.0, requests_per_minute=60, tokens_per_minute=1000),
        levels=(Level(1, "interactive", reserve=1),),
        starve_after=None,
        headroom_for=0.0,
        tenants={"logs": TenantPolicy(concurrency=1, budgets=(Budget("requests", 5, "hour"),))},
        default_tenant=None,
        unknown_tenants="refuse",
    )
    text = " ".join(str(views.policy(settings(rules, model="small"))).split())
    for line in (
        "longest wait 1 min 30 s",
        "requests per minute 60",
        "levels interactive (1, keeps 1 slot)",
        "starvation guard off",
        "headroom off",
        "without a tenant refused",
        "queue no limit",
    ):
        assert line in text
    assert "5 requests per hour" in text
    assert "longest wait" not in str(views.policy(settings()))


def test_the_line_at_loading_stays_one_line_with_many_tenants() -> None:
    names = {f"tenant number {n}": TenantPolicy() for n in range(40)}
    line = views.loaded_line(settings(Policy(tenants=names)))
    assert line.endswith("tenant number 5 and 34 more")
    assert "\n" not in line
