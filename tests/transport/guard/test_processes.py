"""Forked children: they do not hang, they say what they are, and the parent's books stay."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fairq_ipy.testing import ScriptedEndpoint

from .test_switching import run

BEGIN = """
import multiprocessing, os, sys, threading
import aiohttp, asyncio, httpx, httpx2, requests, urllib3
import fairq_ipy as fairq

policy, url = sys.argv[1:]
session = fairq.load(policy)
waiting = threading.Thread(target=lambda: httpx.post(url, json={}, timeout=30))

async def asked():
    async with aiohttp.ClientSession() as client, client.post(url, json={}) as response:
        return response.status

WAYS = {
    "httpx": lambda: httpx.post(url, json={}).status_code,
    "httpx2": lambda: httpx2.post(url, json={}).status_code,
    "requests": lambda: requests.post(url, json={}, timeout=9).status_code,
    "urllib3": lambda: urllib3.request("POST", url, json={}).status,
    "aiohttp": lambda: asyncio.run(asked()),
}

def ask(name):
    try:
        return f"{name} {WAYS[name]()}"
    except fairq.ConfigurationError as error:
        return f"{name}: {error}"
"""

END = """
session.snapshot()
books = session.snapshot()
print("parent", books.submitted, books.in_flight, books.queued, flush=True)
"""


@pytest.fixture
def policy(tmp_path: Path, mock: ScriptedEndpoint) -> Path:
    return written(tmp_path / "team.yaml", mock, "route")


def written(path: Path, mock: ScriptedEndpoint, guard: str) -> Path:
    limits = "limits: {concurrency: 1}"
    path.write_text(f"version: 1\nendpoint: {{base_url: '{mock.base_url}'}}\n{limits}\nguard: {guard}\n")
    return path


def play(code: str, policy: Path, mock: ScriptedEndpoint) -> list[str]:
    return run(
        f"{BEGIN}\n{textwrap.dedent(code)}\n{END}", str(policy), f"{mock.base_url}/chat/completions"
    ).splitlines()


NOT_HERE = "this process was forked from one with a queue, and has none of its own"


def test_a_forked_child_is_told_that_it_has_no_queue(policy: Path, mock: ScriptedEndpoint):
    lines = play(
        """
        waiting.start()
        waiting.join()
        child = os.fork()
        if not child:
            for name in WAYS:
                print(ask(name), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        """,
        policy,
        mock,
    )
    assert [line.partition(",")[0].partition(": ") for line in lines[:-1]] == [
        (name, ": ", NOT_HERE.partition(",")[0]) for name in ("httpx", "httpx2", "requests", "urllib3", "aiohttp")
    ]
    assert lines[-1] == "parent 1 0 0"
    assert mock.arrivals == 1


def test_a_pool_of_processes_does_not_hang_while_calls_run(policy: Path, mock: ScriptedEndpoint):
    mock.hold()
    lines = play(
        """
        waiting.start()
        while not session.snapshot().in_flight:
            pass
        with multiprocessing.get_context("fork").Pool(4) as pool:
            for told in pool.map(ask, [*WAYS] * 2):
                print(told)
        books = session.snapshot()
        print("meanwhile", books.submitted, books.in_flight, flush=True)
        os._exit(0)  # the call that runs is never answered
        """,
        policy,
        mock,
    )
    assert len([line for line in lines if NOT_HERE in line]) == 10
    assert lines[-1] == "meanwhile 1 1"
    assert mock.arrivals == 1


def test_a_child_that_loads_a_policy_has_a_queue_of_its_own(policy: Path, mock: ScriptedEndpoint):
    lines = play(
        """
        child = os.fork()
        if not child:
            own = fairq.load(policy)
            for name in WAYS:
                print(ask(name), flush=True)
            print("child", own.snapshot().submitted, [seen.calls for seen in own.guard.seen()], flush=True)
            own.guard.switch("off")
            print(ask("requests"), own.snapshot().submitted, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        """,
        policy,
        mock,
    )
    assert lines == [
        *(f"{name} 200" for name in ("httpx", "httpx2", "requests", "urllib3", "aiohttp")),
        "child 5 [1, 1, 1, 1, 1]",
        "requests 200 5",
        "parent 0 0 0",
    ]


def test_where_the_guard_only_warns_a_childs_calls_go_by(tmp_path: Path, mock: ScriptedEndpoint):
    lines = play(
        """
        child = os.fork()
        if not child:
            for name in WAYS:
                print(ask(name), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        """,
        written(tmp_path / "warn.yaml", mock, "warn"),
        mock,
    )
    assert lines == [
        *(f"{name} 200" for name in ("httpx", "httpx2", "requests", "urllib3", "aiohttp")),
        "parent 0 0 0",
    ]
