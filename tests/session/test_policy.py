"""The policy of a session: found, loaded, watched; nothing is lost when it changes."""

from __future__ import annotations

import threading

import pytest

from fairq_ipy import policy
from fairq_ipy.core.messages import Held, Hold, Paused, Resumed
from fairq_ipy.errors import ConfigurationError, PolicyError
from fairq_ipy.runtime.scope import current_lender
from fairq_ipy.session import PolicyBroken, PolicyLoaded, Session
from fairq_ipy.session.watch import PolicyWatch

from .conftest import SOON, TEXT, eventually

OTHER = TEXT.replace("concurrency: 2", "concurrency: 5")
BROKEN = TEXT.replace("concurrency: 2", "concurrency: many")


@pytest.fixture
def watched(write):
    """A session that watches its file closely, and what its listeners heard."""
    session = Session(policy.load(write()), watch=0.01)
    heard = []
    session.listeners.append(heard.append)
    yield session, heard
    session.close()


def test_a_session_without_a_policy_works_with_the_built_in_one():
    session = Session.find()
    assert session.settings.source is None
    assert session.settings.endpoint.base_url == "demo"
    assert "built-in policy" in repr(session)
    session.close()


def test_a_session_finds_the_policy_of_its_folder(write):
    write()
    session = Session.find()
    assert session.snapshot().cap == 2
    assert "fairq.yaml" in repr(session)
    assert "team.yaml" not in repr(session)
    session.close()


def test_the_file_that_the_environment_names_goes_first(write, monkeypatch):
    write()
    monkeypatch.setenv("FAIRQ_POLICY", str(write(OTHER, "other.yaml")))
    session = Session.find()
    assert session.snapshot().cap == 5
    session.close()


def test_a_first_policy_that_is_broken_is_an_error_and_leaves_no_thread(write):
    before = threading.active_count()
    with pytest.raises(PolicyError, match="concurrency"):
        Session.find(write(BROKEN))
    assert threading.active_count() == before


def test_a_new_policy_holds_at_once(session, write):
    heard = []
    session.listeners.append(heard.append)
    settings = session.load(write(OTHER))
    assert session.settings is settings
    assert session.snapshot().cap == 5
    assert heard == [PolicyLoaded(settings, mended=False)]


def test_a_bad_policy_never_replaces_a_good_one(session, write):
    with pytest.raises(PolicyError):
        session.load(write(BROKEN))
    assert session.snapshot().cap == 2
    with pytest.raises(PolicyError, match="no such file"):
        session.load("not-there.yaml")
    assert session.snapshot().cap == 2


def test_reload_reads_the_same_file_again(write):
    session = Session(policy.load(write()), watch=None)
    write(OTHER)
    assert session.reload().rules.limits.concurrency == 5
    assert session.snapshot().cap == 5
    write(BROKEN)
    with pytest.raises(PolicyError):
        session.reload()
    assert session.snapshot().cap == 5
    session.close()


def test_errors_name_the_policy_that_holds(session, write):
    assert session.keeper.source == "the built-in policy (`fairq init` writes one to edit)"
    session.load(write(OTHER, "mine.yaml"))
    assert session.keeper.source == "mine.yaml"


def test_who_waits_when_the_policy_changes_is_served_under_the_new_one(session, write):
    go, inside = threading.Event(), threading.Semaphore(0)

    def work():
        with session.permit():
            inside.release()
            assert go.wait(SOON)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    eventually(lambda: session.snapshot().queued == 3)
    session.load(write(OTHER))
    for _ in threads:
        assert inside.acquire(timeout=SOON)
    assert session.snapshot().in_flight == 5
    go.set()
    for thread in threads:
        thread.join(SOON)
    assert session.snapshot().completed == 5


def test_an_edited_file_is_taken_up_by_itself(watched, write):
    session, heard = watched
    write(OTHER)
    eventually(lambda: session.snapshot().cap == 5)
    assert [type(notice) for notice in heard] == [PolicyLoaded]
    assert not heard[0].mended


def test_a_file_that_breaks_is_told_once_and_once_when_it_is_mended(watched, write):
    session, heard = watched
    write(BROKEN)
    error = eventually(lambda: session.broken)
    assert session.snapshot().cap == 2
    assert "policy file broken" in repr(session)
    write(TEXT)
    eventually(lambda: session.broken is None)
    eventually(lambda: len(heard) == 2)
    assert heard == [PolicyBroken(error), PolicyLoaded(session.settings, mended=True)]


def test_the_watch_follows_the_session_to_another_file(watched, write):
    session, _heard = watched
    other = write(OTHER, "other.yaml")
    session.load(other)
    write(TEXT.replace("concurrency: 2", "concurrency: 9"))  # the file before: nobody cares
    other.write_text(OTHER.replace("concurrency: 5", "concurrency: 7"), encoding="utf-8")
    eventually(lambda: session.snapshot().cap == 7)


def test_a_file_system_that_hangs_holds_up_nobody_but_the_watch(write):
    settings = policy.load(write())
    hangs, go = threading.Event(), threading.Event()

    class Slow:
        def check(self):
            hangs.set()
            go.wait(SOON)

    session = Session(settings, watch=None)
    session._watch = watch = PolicyWatch(Slow(), session._seen, 0.001)
    assert hangs.wait(SOON)
    with session.permit():
        assert session.snapshot().in_flight == 1
    session.load(write(OTHER))
    session.close()
    assert watch.stopped
    go.set()
    watch._thread.join(SOON)


def test_what_a_stopped_watch_still_finds_is_nobodys(watched, write):
    session, heard = watched
    before = session._watch
    session.reload()
    eventually(lambda: len(heard) == 1)
    session._seen(before, policy.load(write(OTHER, "stale.yaml")))
    assert session.snapshot().cap == 2


def test_a_look_that_fails_does_not_end_the_watch(write, caplog):
    looks, again = [], threading.Event()

    class Failing:
        def check(self):
            looks.append(1)
            if len(looks) == 1:
                raise MemoryError("of one look")
            again.set()

    watch = PolicyWatch(Failing(), lambda watch, found: None, 0.001)
    assert again.wait(SOON)
    watch.stop()
    watch._thread.join(SOON)
    assert "of one look" in caplog.text


def test_an_unknown_time_zone_is_an_error_before_anything_changes(session, write, monkeypatch):
    from dataclasses import replace

    settings = replace(session.settings, time_zone="Mars/Olympus")
    with pytest.raises(ConfigurationError, match="tzdata"):
        Session(settings)
    with pytest.raises(ConfigurationError, match="Mars/Olympus"):
        session._adopt(settings, by_hand=True)
    assert session.settings.time_zone != "Mars/Olympus"


def test_the_windows_of_a_new_policys_budgets_are_watched(session, write):
    session.load(write(TEXT + "defaults: {budgets: [{requests: 5, per: day}]}\n"))
    with session.permit():
        (budget,) = session.snapshot().tenants["notebook"].budgets
    assert budget.resets_at is not None
    assert budget.resets_at > 1_700_000_000  # seconds since the epoch


# ------------------------------------------------------------------------------------------------------- its listeners


def test_listeners_hear_what_concerns_no_single_call(session):
    heard = []
    session.listeners.append(heard.append)
    session.pause("logs")
    session.resume("logs")
    session.keeper.call(lambda _core, now: session.keeper.feed(Hold(now + 5)))
    session.snapshot()
    assert [type(notice) for notice in heard] == [Paused, Resumed, Held]
    assert heard[2].until > 1_700_000_000  # seconds since the epoch


def test_a_listener_that_fails_keeps_no_other_from_hearing(session, caplog):
    heard = []

    def fails(_notice):
        raise ValueError("listener")

    session.listeners.extend([fails, heard.append])
    session.pause()
    session.resume()
    session.snapshot()
    assert len(heard) == 2
    assert "listener" in caplog.text


# -------------------------------------------------------------------------------------------------------------- its end


def test_a_closed_session_has_no_threads_and_can_be_closed_again(watched):
    session, _heard = watched
    watch = session._watch
    session.close()
    session.close()
    assert session.closed
    watch._thread.join(SOON)
    assert not watch._thread.is_alive()
    assert not session.keeper._thread.is_alive()
    assert "closed" in repr(session)
    assert current_lender() is None


def test_a_closed_session_takes_no_policy(session, write):
    before = session.settings
    session.close()
    session.load(write(OTHER))
    assert session.settings is before
