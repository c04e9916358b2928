"""Loops that are busy, and loops that are closed, under calls of aiohttp that wait."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

import aiohttp
import pytest
import requests

from fairq_ipy.session import Session
from fairq_ipy.testing import ScriptedEndpoint

from ..conftest import chat_body, run, settled  # noqa: TID252 - the tests of a room are no installed package
from .conftest import in_threads


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
