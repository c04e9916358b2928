"""Ten thousand calls at once, from threads and tasks: each gets its own answer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from fairq_ipy.session import Session
from fairq_ipy.testing import ScriptedEndpoint
from fairq_ipy.transport.governing import Caller
from fairq_ipy.transport.httpx_transport import AsyncGovernedTransport, GovernedTransport
from fairq_ipy.transport.library import load
from fairq_ipy.transport.pools import Pool

from .conftest import chat_body, run, settled

Queue = Callable[..., Session]

TASKS, THREADS, EACH = 7_000, 30, 100


class Echo:
    """An endpoint in memory, on the keeper's loop; counts what runs at the same time."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def handle_async_request(self, request: Any) -> Any:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
        finally:
            self.now -= 1
        text = json.loads(request.content)["messages"][0]["content"]
        return httpx.Response(200, json={"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.mark.slow
def test_ten_thousand_callers_at_once_each_get_their_own_answer(mock: ScriptedEndpoint, queue: Queue):
    session = queue(concurrency=8)
    echo = Echo()
    caller, pool = Caller(lambda: session, load("httpx")), Pool(lambda: echo)
    url = f"{mock.base_url}/chat/completions"
    wrong: list[str] = []

    def check(response: Any, text: str) -> None:
        if response.json()["choices"][0]["message"]["content"] != text:
            wrong.append(text)

    def in_a_thread(client: httpx.Client, number: int) -> None:
        for turn in range(EACH):
            text = f"thread {number} turn {turn}"
            check(client.post(url, json=chat_body(text)), text)

    async def in_tasks() -> None:
        plain = httpx.AsyncHTTPTransport()
        async with httpx.AsyncClient(transport=AsyncGovernedTransport(caller, pool, plain)) as client:

            async def one(number: int) -> None:
                text = f"task {number}"
                check(await client.post(url, json=chat_body(text)), text)

            await asyncio.gather(*(one(number) for number in range(TASKS)))

    with httpx.Client(transport=GovernedTransport(caller, pool, httpx.HTTPTransport())) as client:
        threads = [threading.Thread(target=in_a_thread, args=(client, number)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        run(in_tasks())
        for thread in threads:
            thread.join()
    assert wrong == []
    books = settled(session)
    assert books.completed == TASKS + THREADS * EACH
    assert echo.most <= 8


def test_many_callers_of_a_real_endpoint_each_get_their_own_answer(
    mock: ScriptedEndpoint, queue: Queue, client: Callable[..., Any]
):
    session = queue(concurrency=4)
    made = client(session)
    url = f"{mock.base_url}/chat/completions"
    wrong: list[str] = []

    def ask(number: int) -> None:
        for turn in range(10):
            text = f"{number} {turn}"
            streaming = bool((number + turn) % 2)
            with made.stream("POST", url, json=chat_body(text, stream=streaming)) as response:
                said = response.read().decode()
            if not all(f'"{word}' in said for word in text.split(" ")) and f'"{text}"' not in said:
                wrong.append(text)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert session.snapshot().completed == mock.arrivals == 300
