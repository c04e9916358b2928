"""Loops that are busy, loops that are closed, and threads that are interrupted, under calls that wait."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from collections.abc import Callable

import aiohttp
import httpx
import pytest
import requests

from fairq_ipy.session import Session
from fairq_ipy.testing import ScriptedEndpoint

from ..conftest import chat_body, run, settled  # noqa: TID252 - the tests of a room are no installed package
from .conftest import ON_THREADS, Guarded, Sender, in_threads


@pytest.fixture
def session(queue: Callable[..., Session]) -> Session:
    made = queue(1)
    made.guard.switch("route")
    return made


def test_a_loop_that_is_busy_when_its_turn_comes_keeps_its_place(session: Session, mock: ScriptedEndpoint, url: str):
    mock.hold()

    async def main() -> int:
        async with aiohttp.ClientSession() as client:
            with in_threads(lambda: requests.post(url, json=chat_body(), timeout=30), 1):
                await mock.reached(held=1)
                waiting = asyncio.ensure_future(client.post(url, json=chat_body()))
                while session.snapshot().queued < 1:  # noqa: ASYNC110 - the queue tells nobody who waits in it
                    await asyncio.sleep(0)
                mock.release()
                while session.snapshot().completed < 1:
                    pass
                time.sleep(0.2)  # noqa: ASYNC251 - longer than an offer may lie there
            async with await waiting as response:
                await response.read()
                return response.status

    assert run(main()) == 200
    assert settled(session).completed == 2
    assert mock.max_in_flight == 1


@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_loop_that_is_closed_under_its_waiter_swallows_no_slot(session: Session, mock: ScriptedEndpoint, url: str):
    mock.hold()
    loop = asyncio.new_event_loop()
    client: list[aiohttp.ClientSession] = []

    async def begin() -> None:
        client.append(aiohttp.ClientSession())

    loop.run_until_complete(begin())
    with in_threads(lambda: requests.post(url, json=chat_body(), timeout=30), 1) as calls:
        mock.wait_for(held=1)
        waiting = loop.create_task(client[0].post(url, json=chat_body())._coro)
        loop.run_until_complete(asyncio.sleep(0))
        assert any(session.snapshot().queued == 1 for _ in range(5000))
        loop.run_until_complete(client[0].close())
        loop.close()
        mock.release()
    assert calls[0].result().status_code == 200
    assert requests.post(url, json=chat_body(), timeout=30).status_code == 200
    waiting._log_destroy_pending = False
    del waiting
    gc.collect()
    settled(session)
    assert mock.arrivals == 2


@pytest.mark.parametrize("sender", ON_THREADS, indirect=True)
def test_an_interrupt_ends_the_wait_at_once_and_leaves_nothing_behind(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, url: str
):
    session = guarded()
    mock.hold()
    with in_threads(lambda: httpx.post(url, json=chat_body(), timeout=30), 1) as calls:
        mock.wait_for(held=1)

        def strike() -> None:
            assert any(session.snapshot().queued == 1 for _ in range(5000))
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        striking = threading.Thread(target=strike)
        striking.start()
        with pytest.raises(KeyboardInterrupt):
            sender.post(url, chat_body())
        striking.join()
        assert any(session.snapshot().queued == 0 for _ in range(5000))
        mock.release()
    assert calls[0].result().status_code == 200
    assert mock.arrivals == 1
    assert sender.post(url, chat_body()).status == 200
    settled(session)
