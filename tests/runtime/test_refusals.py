"""What a refused caller reads."""

from __future__ import annotations

import pickle
import time
from types import MappingProxyType

import pytest

from fairq_ipy import errors
from fairq_ipy.core.messages import BudgetState, Held, Paused, Place, Resumed, Snapshot, TenantSnapshot
from fairq_ipy.core.model import Limits, Policy, TenantPolicy, Ticket
from fairq_ipy.runtime.refusals import nearest, refusal, unknown_tenant, untagged
from fairq_ipy.runtime.wall import Wall

POLICY = Policy(
    limits=Limits(2, queue=20, queue_per_tenant=10),
    tenants={"logs": TenantPolicy(queue=5), "Release-Notes": TenantPolicy(), "reviews": TenantPolicy()},
    unknown_tenants="refuse",
)


def made(reason, tenant="a", max_wait=None, **facts):
    return refusal(reason, Ticket(7, tenant, 1, max_wait=max_wait), facts, POLICY, "policies/team.yaml")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (
            made("queue_full", depth=20, bound=20, retry_after=4.2),
            errors.QueueFullError,
            "queue full: 20 of 20 waiting; try again in about 4.2 s, or raise limits.queue in policies/team.yaml",
        ),
        (
            made("queue_full", depth=10, bound=10, retry_after=None),
            errors.QueueFullError,
            ("queue of a full: 10 of 10 waiting; try again in a few seconds, "
            "or raise limits.queue_per_tenant in policies/team.yaml"),
        ),
        (
            made("queue_full", "logs", depth=5, bound=5, retry_after=120.0),
            errors.QueueFullError,
            ("queue of logs full: 5 of 5 waiting; try again in about 2 min, "
            "or raise tenants.logs.queue in policies/team.yaml"),
        ),
        (
            made("budget", used=900, limit=1000, budget="tokens per session", resets_at=None),
            errors.BudgetExceededError,
            ("a has used 900 of 1000 tokens per session, which leaves no room; it lasts for the session; "
            "policies/team.yaml sets its size"),
        ),
        (
            made("context", unit="messages", size=34, limit=20),
            errors.ContextTooLargeError,
            ("the request carries 34 messages, and a may send 20 at once; shorten it, or raise context.messages in "
            "policies/team.yaml"),
        ),
        (
            made("paused", why="by hand", resumes_at=None),
            errors.TenantPausedError,
            "a is paused: by hand; fairq.resume('a') lets it run again",
        ),
        (
            made("evicted", why="3 empty answers in a row"),
            errors.TenantEvictedError,
            ("a was paused and what it had queued was dropped: 3 empty answers in a row; mend the caller, "
            "then fairq.resume('a')"),
        ),
        (
            made("queue_timeout", waited=300.0),
            errors.QueueTimeoutError,
            ("waited 5 min in the queue and was not sent; try again when less is queued, or raise limits.max_wait in "
            "policies/team.yaml"),
        ),
        (
            made("queue_timeout", waited=4.0, max_wait=4.0),
            errors.QueueTimeoutError,
            "waited 4 s in the queue and was not sent; try again when less is queued, or allow it more time",
        ),
        (
            made("would_deadlock", outer=3),
            errors.WouldDeadlockError,
            ("call 7 waits for the slot of call 3, which its own caller holds; leave the inner permit() block first, "
            "or make the call inside it"),
        ),
        (
            made("shut_down"),
            errors.ShutDownError,
            "the session was closed while the call waited; it was not sent",
        ),
        (
            made("endpoint", status=429, attempts=1, retry_after=2.0),
            errors.EndpointError,
            ("the endpoint answered 429 once, which is as often as backpressure.retries in policies/team.yaml allows; "
            "try again later"),
        ),
        (
            made("endpoint", status=None, attempts=4),
            errors.EndpointError,
            ("the endpoint refused 4 times, which is as often as backpressure.retries in policies/team.yaml allows; "
            "try again later"),
        ),
    ],
    ids=lambda value: value.reason if isinstance(value, errors.FairqError) else "",
)  # fmt: skip
def test_every_refusal_says_what_happened_and_what_to_do(error, kind, text):
    assert type(error) is kind
    assert str(error) == text
    assert (error.ticket, error.reason) == (7, kind.reason)
    twin = pickle.loads(pickle.dumps(error))
    assert twin.__dict__ == error.__dict__


def test_times_of_day_are_said_as_people_say_them():
    soon, later = time.time() + 1, time.time() + 40 * 24 * 3600
    assert f"until {time.strftime('%H:%M', time.localtime(soon))}" in str(made("paused", why="", resumes_at=soon))
    text = str(made("budget", used=1, limit=1, budget="requests per month", resets_at=later))
    assert f"it resets at {time.strftime('%Y-%m-%d %H:%M', time.localtime(later))}" in text


def test_a_stranger_is_told_the_names_that_look_like_the_one_it_used():
    error = unknown_tenant("release_notes", POLICY, "team.yaml", ticket=3)
    assert error.nearest == ("Release-Notes",)
    assert str(error) == (
        "'release_notes' is no tenant of team.yaml, which lets only named tenants ask; did you mean Release-Notes?"
    )
    assert unknown_tenant("zzz", POLICY, "team.yaml").nearest == ()
    assert "add it under tenants" in str(unknown_tenant("zzz", POLICY, "team.yaml"))
    assert made("unknown_tenant", "log").nearest[0] == "logs"


def test_a_call_of_nobody_is_told_how_to_say_who_asks():
    assert "team.yaml has no default_tenant" in str(untagged("team.yaml"))


def test_the_nearest_names_come_first():
    assert nearest("revews", ["reviews", "review", "previews", "logs"])[0] == "reviews"


# ---------------------------------------------------------------------------------------------------------- the clocks


@pytest.fixture
def wall():
    return Wall(lambda: 100.0, lambda: 5000.0)


def test_times_become_seconds_since_the_epoch_and_nothing_else_changes(wall):
    assert wall.facts({"resets_at": 130.0, "used": 3}) == {"resets_at": 5030.0, "used": 3}
    assert wall.facts({"resumes_at": None, "limit": 0}) == {"resumes_at": None, "limit": 0}
    assert wall.facts(MappingProxyType({"depth": 0})) == {"depth": 0}
    assert wall.effect(Held(101.0)) == Held(5001.0)
    assert wall.effect(Paused("a", "why", 101.0)) == Paused("a", "why", 5001.0)
    assert wall.effect(Paused("a", "why", None)) == Paused("a", "why", None)
    assert wall.effect(Resumed("a")) == Resumed("a")
    assert wall.place(Place(3, "hold", 101.0)) == Place(3, "hold", 5001.0)
    assert wall.place(None) is None


def test_a_snapshot_is_converted_in_all_its_parts(wall):
    still = TenantSnapshot(queued=1)
    timed = TenantSnapshot(
        until=110.0,
        budgets=(BudgetState("tokens", "day", 5, 1, 0, 120.0), BudgetState("tokens", "session", 5, 1, 0, None)),
    )
    shown = wall.snapshot(Snapshot(held_until=105.0, queued=2, tenants={"still": still, "timed": timed}))
    assert (shown.held_until, shown.queued) == (5005.0, 2)
    assert shown.tenants["still"] is still
    assert shown.tenants["timed"].until == 5010.0
    assert [budget.resets_at for budget in shown.tenants["timed"].budgets] == [5020.0, None]
    assert wall.snapshot(Snapshot()).held_until is None
