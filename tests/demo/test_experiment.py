"""Both runs over real HTTP, at a speed at which a hundred answers take a second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from fairq_ipy.demo import endpoint
from fairq_ipy.demo import experiment as experiment_module
from fairq_ipy.demo.clients import Governed, Stock, policy_text
from fairq_ipy.demo.endpoint import DemoServer
from fairq_ipy.demo.experiment import Progress, play, play_run
from fairq_ipy.demo.results import Experiment
from fairq_ipy.demo.workload import Job, workload
from fairq_ipy.policy import loads
from fairq_ipy.testing import ScriptedEndpoint, chat, cut, error, html

SPEED = 100.0


@pytest.fixture(scope="module")
def played() -> Iterator[tuple[Experiment, list[Progress]]]:
    told: list[Progress] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment_module, "SPEED", SPEED / experiment_module.FAST)
        yield play(fast=True, seed=1, progress=told.append), told


def test_through_the_queue_nothing_is_refused_and_everyone_gets_their_own_answer(
    played: tuple[Experiment, list[Progress]],
) -> None:
    run = played[0].coordinated
    assert (run.sent, run.refused_429, run.failed, run.wrong) == (100, 0, 0, 0)
    assert run.makespan_s > played[0].bound_s


def test_without_the_queue_the_same_work_is_refused_and_left_undone(
    played: tuple[Experiment, list[Progress]],
) -> None:
    run = played[0].uncoordinated
    assert run.refused_429 > 10
    assert run.sent == run.refused_429 + 100 - run.failed
    assert run.wrong == 0
    assert [trace.job for trace in run.traces] == [trace.job for trace in played[0].coordinated.traces]


def test_a_client_gives_up_after_two_retries(played: tuple[Experiment, list[Progress]]) -> None:
    run = played[0].uncoordinated
    assert {trace.sent for trace in run.traces if not trace.answered} == {3}
    assert all(len(trace.refused) == trace.sent - trace.answered for trace in run.traces)


def test_no_service_begins_before_it_is_wanted_nor_more_than_two_at_once(
    played: tuple[Experiment, list[Progress]],
) -> None:
    for run in (played[0].uncoordinated, played[0].coordinated):
        edges = []
        for trace in run.traces:
            if trace.started is None or trace.served is None:
                continue
            assert trace.job.wanted <= trace.started < trace.served <= trace.ended
            edges += [(trace.started, 1), (trace.served, -1)]
        running = most = 0
        for _, change in sorted(edges):
            running += change
            most = max(most, running)
        assert most == 2


def test_progress_is_told_from_the_first_job_to_the_last_on_one_thread(
    played: tuple[Experiment, list[Progress]],
) -> None:
    for mode in ("uncoordinated", "coordinated"):
        told = [now for now in played[1] if now.mode == mode]
        assert [now.done for now in told] == sorted(now.done for now in told)
        assert told[-1] == told[-1]._replace(done=100, total=100, over=True)
        assert [now.over for now in told].count(True) == 1


def test_nothing_is_left_behind(played: tuple[Experiment, list[Progress]]) -> None:
    assert played
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith(("demo-", "fairq-"))] == []


@pytest.mark.parametrize("make", [lambda url: Stock(url, scale=1, seed=0), lambda url: Governed(url, slots=2)])
def test_an_interrupt_ends_all_clients(make: Callable[[str], Stock | Governed]) -> None:
    def interrupt(now: Progress) -> None:
        if now.done >= 5:
            raise KeyboardInterrupt

    with endpoint.start(speed=SPEED) as server, pytest.raises(KeyboardInterrupt):
        play_run("coordinated", workload(0, speed=SPEED, slots=2), server, make(server.base_url), interrupt)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith(("demo-", "fairq-"))] == []


def test_the_policy_of_the_run_is_a_policy() -> None:
    settings = loads(policy_text("http://127.0.0.1:1/v1", 2), "the demo's policy")
    assert settings.rules.limits.concurrency == 2
    assert settings.rules.headroom_for == 0
    assert [(level.name, level.reserve) for level in settings.rules.levels] == [("interactive", 0), ("batch", 0)]


# ---------------------------------------------------------------------------------------------------- stock clients


@pytest.fixture
def jobs() -> list[Job]:
    return [Job(1, "ada", "batch", 0, "x", 0, "x"), Job(2, "ada", "interactive", 0, "y", 0, "y")]


def test_a_stock_client_tries_again_after_refusals_cuts_and_broken_servers(jobs: list[Job]) -> None:
    with ScriptedEndpoint() as mock:
        stock = Stock(mock.base_url, scale=0.001, seed=0)
        mock.reply(error(429), html(status=503), chat("at last"))
        assert stock.call(jobs[0]) == ("at last", 3)
        mock.reply(cut(), chat("two words"))
        assert stock.call(jobs[1]) == ("two words", 2)
        stock.close()


def test_a_stock_client_does_not_repeat_what_cannot_help(jobs: list[Job]) -> None:
    with ScriptedEndpoint() as mock:
        stock = Stock(mock.base_url, scale=0.001, seed=0)
        mock.reply(error(401, "Wrong key"))
        assert stock.call(jobs[0]) == (None, 1)
        stock.close()


def test_a_stock_client_waits_as_the_sdk_does() -> None:
    stock = Stock("http://127.0.0.1:1/v1", scale=1, seed=0)
    waits = [[stock._delay(sent) for _ in range(200)] for sent in (1, 2, 9)]
    stock.close()
    assert [(round(min(some), 1), round(max(some), 1)) for some in waits] == [(0.4, 0.5), (0.8, 1.0), (6.0, 8.0)]


def test_closing_ends_a_wait_before_a_retry(jobs: list[Job]) -> None:
    with ScriptedEndpoint() as mock:
        mock.always(error(429))
        stock = Stock(mock.base_url, scale=1000, seed=0)
        answers: list[tuple[str | None, int]] = []
        thread = threading.Thread(target=lambda: answers.append(stock.call(jobs[0])))
        thread.start()
        mock.wait_for(answered=1)
        stock.close()
        thread.join()
    assert answers == [(None, 1)]


def test_the_servers_own_log_is_what_waits_are_measured_by() -> None:
    with endpoint.start(speed=SPEED) as server:
        assert isinstance(server, DemoServer)
        one = workload(0, speed=SPEED, slots=2)[:1]
        run = play_run("uncoordinated", one, server, Stock(server.base_url, scale=1, seed=0), lambda _: None)
        [entry] = [entry for entry in server.stats().log if entry.mark == "[#1]"]
    [trace] = run.traces
    assert entry.started is not None
    assert entry.ended is not None
    assert trace.started is not None
    assert trace.served is not None
    assert trace.served - trace.started == pytest.approx(entry.ended - entry.started)
