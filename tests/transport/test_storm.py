"""Callers who come and leave at random moments, by every way there is: nothing is left behind, and the cap holds."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from typing import Any

import httpx
import httpx2
import pytest

from fairq_ipy.session import Session
from fairq_ipy.testing import Recorded, Reply, ScriptedEndpoint, chat, error, stream

from .conftest import async_client, chat_body, run, settled

Queue = Callable[..., Session]


def moody(seed: int) -> Callable[[Recorded], Reply]:
    """An endpoint that answers, streams, refuses, fails and hangs up, each as it likes."""
    chance = random.Random(seed)
    words = [f"w{number} " for number in range(30)]

    def answer(_: Recorded) -> Reply:
        return chance.choice(
            [
                chat("fine"),
                stream(*words).after(0.002),
                stream(*words).dripped(40),
                stream(*words).cut(5),
                error(429, retry_after="0.01"),
                error(500),
                chat("late").after(0.01),
            ]
        )

    return answer


async def visit(made: Any, url: str, chance: random.Random) -> None:
    """Ask, and leave at some moment in some way."""
    patience = chance.choice([0.001, 0.01, 0.1, 10.0])
    body = chat_body(stream=chance.random() < 0.7)
    async with asyncio.timeout(patience), made.stream("POST", url, json=body) as response:
        async for _ in response.aiter_raw():
            if chance.random() < 0.2:
                return


async def storm(session: Session, url: str, library: str, chance: random.Random) -> None:
    async with async_client(session, library=library) as made:
        tasks = [asyncio.create_task(visit(made, url, chance)) for _ in range(60)]
        for task in tasks:
            await asyncio.sleep(chance.choice([0, 0, 0.002]))
            if chance.random() < 0.4:
                chance.choice(tasks).cancel()
            if chance.random() < 0.1:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def in_a_thread(made: Any, url: str, chance: random.Random) -> None:
    for _ in range(15):
        with (
            contextlib.suppress(httpx.HTTPError, httpx2.HTTPError),
            made.stream("POST", url, json=chat_body(stream=chance.random() < 0.7)) as response,
        ):
            for _ in response.iter_raw():
                if chance.random() < 0.2:
                    break


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_leaves_nothing_behind(mock: ScriptedEndpoint, queue: Queue, client: Any, library: str, seed: int):
    session = queue(concurrency=3)
    mock.always(moody(seed))
    url = f"{mock.base_url}/chat/completions"
    sync = client(session, library=library)
    threads = [threading.Thread(target=in_a_thread, args=(sync, url, random.Random(seed + at))) for at in range(3)]
    for thread in threads:
        thread.start()
    run(storm(session, url, library, random.Random(seed)))
    for thread in threads:
        thread.join()
    mock.always(chat("calm"))
    assert sync.post(url, json=chat_body()).json()["choices"][0]["message"]["content"] == "calm"
    books = settled(session)
    assert books.submitted == books.completed + books.rejected + books.cancelled
    mock.wait_for(in_flight=0)
