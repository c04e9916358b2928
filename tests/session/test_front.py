"""The functions of the package root, and the one session they share."""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

import fairq_ipy as fairq
from fairq_ipy.errors import ConfigurationError, PolicyError
from fairq_ipy.session import front

from .conftest import OTHER_TEXT, SOON, TEXT, eventually

pytestmark = pytest.mark.usefixtures("no_session")


def test_the_first_use_makes_the_session_and_all_share_it(write):
    write()
    made, threads = set(), [threading.Thread(target=lambda: made.add(fairq.session())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert made == {fairq.session()}
    assert fairq.snapshot().cap == 2


def test_the_session_can_be_called_for_whether_or_not_its_package_was_imported():
    module = importlib.import_module("fairq_ipy.session")
    assert fairq.session() is module.session() is module()
    assert module.Session is fairq.Session


def test_loading_goes_on_with_the_session_that_is_there(write):
    first = fairq.load(write())
    assert fairq.load(write(OTHER_TEXT, "other.yaml")) is first is fairq.session()
    assert fairq.snapshot().cap == 5
    with pytest.raises(PolicyError):
        fairq.load("not-there.yaml")
    assert fairq.snapshot().cap == 5


def test_loading_without_a_path_finds_the_policy(write):
    fairq.session()
    write()
    assert fairq.load().settings.source.name == "fairq.yaml"


def test_a_found_policy_that_is_broken_is_an_error_until_it_is_mended(write):
    write(TEXT + "concurency: 2\n")
    for _ in range(2):
        with pytest.raises(PolicyError):
            fairq.snapshot()
    write()
    assert fairq.snapshot().cap == 2


def test_after_the_end_the_next_use_makes_a_new_session():
    first = fairq.session()
    front.close()
    assert first.closed
    assert fairq.session() is not first
    fairq.session().close()
    assert not fairq.session().closed


def test_permits_submit_run_and_governed_use_the_session(write):
    write()

    @fairq.governed
    def bare(value):
        return value, fairq.snapshot().in_flight

    @fairq.governed(tenant="logs", priority="batch")
    async def tagged():
        return fairq.snapshot().tenants["logs"].in_flight

    async def main():
        async with fairq.permit(cost=5):
            assert fairq.snapshot().in_flight == 1
        assert await fairq.submit(max, 1, 2, tenant="logs") == 2
        assert await fairq.submit(asyncio.sleep, 0, "slept") == "slept"
        assert fairq.run(asyncio.sleep, 0, "slept") == "slept"
        return await tagged()

    with fairq.permit(1800, 12, "logs", "batch") as permit:
        assert fairq.snapshot().tenants["logs"].in_flight == 1
    assert (
        fairq.session().keeper.story(permit.ticket)[0].endswith("logs asks at level 2, with about 1800 prompt tokens")
    )
    assert bare(1) == (1, 1)
    assert asyncio.run(main()) == 1
    assert fairq.run(sorted, [2, 1], reverse=True) == [2, 1]
    assert fairq.snapshot().in_flight == 0


def test_decorating_makes_no_session():
    @fairq.governed
    def function():
        return 1

    @fairq.tenant("a")
    def other():
        return 1

    assert front._present.session is None
    assert other() == 1
    assert front._present.session is None


def test_pause_and_resume_reach_the_queue(write):
    write()
    fairq.pause()
    assert fairq.snapshot().paused
    fairq.resume()
    fairq.pause("logs")
    assert fairq.snapshot().tenants["logs"].state == "paused"
    fairq.resume("logs")
    assert fairq.snapshot().tenants["logs"].state == "idle"


def test_a_paused_tenant_waits_and_the_others_go_on(write):
    write()
    fairq.pause("logs")
    got = threading.Event()
    thread = threading.Thread(target=lambda: fairq.run(got.set, tenant="logs"))
    thread.start()
    eventually(lambda: fairq.snapshot().queued == 1)
    assert fairq.run(got.is_set, tenant="other") is False
    fairq.resume("logs")
    thread.join(SOON)
    assert got.is_set()


def test_clients_and_questions_are_handed_to_the_transport(monkeypatch):
    from fairq_ipy.transport import chat, clients

    calls = []

    def note(name):
        def function(*args, **options):
            calls.append((name, args, options))
            return name

        return function

    async def aask(*args, **options):
        return note("aask")(*args, **options)

    monkeypatch.setattr(clients, "http_client", note("http_client"))
    monkeypatch.setattr(clients, "async_http_client", note("async_http_client"))
    monkeypatch.setattr(chat, "ask", note("ask"))
    monkeypatch.setattr(chat, "aask", aask)
    here = fairq.session()
    ask_for = front.session  # a client outlives the session it was made in, so it is told whom to ask for one
    assert fairq.http_client(tenant="logs", timeout=3) == "http_client"
    assert fairq.async_http_client(priority=1, library="httpx2") == "async_http_client"
    assert fairq.ask("why", tenant="logs") == "ask"
    assert asyncio.run(fairq.aask("why", max_tokens=5)) == "aask"
    assert calls == [
        ("http_client", (ask_for, "logs", None, "auto"), {"timeout": 3}),
        ("async_http_client", (ask_for, None, 1, "httpx2"), {}),
        ("ask", (here, "why"), {"tenant": "logs"}),
        ("aask", (here, "why"), {"max_tokens": 5}),
    ]


# ---------------------------------------------------------------------------------------------------------------- fork


def test_a_forked_child_is_told_and_may_load_a_queue_of_its_own(write):
    write()
    parent = fairq.session()
    fairq.snapshot()
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            told = b"no error"
            try:
                fairq.snapshot()
            except ConfigurationError:
                told = b"told"
            own = fairq.load()
            told += (
                b", own" if own is not parent and fairq.run(lambda: fairq.snapshot().in_flight) == 1 else b", not own"
            )
            os.write(writer, told)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "told, own"
    assert fairq.snapshot().submitted == 0


# ------------------------------------------------------------------------------------------------------------- the root


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert fairq.__version__ == project["project"]["version"]


def test_importing_the_root_brings_nothing_and_a_name_brings_what_it_needs():
    code = (
        "import sys, fairq_ipy\n"
        "ours = lambda: {name for name in sys.modules if name.startswith('fairq_ipy')}\n"
        "assert ours() == {'fairq_ipy'}, ours()\n"
        "fairq_ipy.QueueFullError\n"
        "assert ours() == {'fairq_ipy', 'fairq_ipy.errors'}, ours()\n"
        "fairq_ipy.tenant('a')\n"
        "assert not {'httpx', 'httpx2', 'IPython', 'yaml'} & set(sys.modules)\n"
        "assert fairq_ipy.session().settings.source is None\n"
        "assert not {'httpx', 'httpx2', 'IPython'} & set(sys.modules)\n"
        "fairq_ipy.session().close()\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_the_extension_is_loaded_and_unloaded_by_the_notebook(monkeypatch):
    extension = importlib.import_module("fairq_ipy.notebook.extension")
    called = []
    monkeypatch.setattr(extension, "load", lambda shell: called.append(("load", shell)))
    monkeypatch.setattr(extension, "unload", lambda shell: called.append(("unload", shell)))
    fairq.load_ipython_extension("shell")
    fairq.unload_ipython_extension("shell")
    assert called == [("load", "shell"), ("unload", "shell")]
