"""Who asks, when libraries ask from threads and tasks of their own; and SDKs, which know nothing of any of this."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import httpx2
import openai
import pytest
import requests
import urllib3

import fairq_ipy as fairq
from fairq_ipy.session import Session
from fairq_ipy.testing import ScriptedEndpoint, error, stream

from ..conftest import chat_body, run, settled  # noqa: TID252 - the tests of a room are no installed package


@pytest.fixture
def session(queue: Callable[..., Session]) -> Session:
    made = queue(1)
    made.guard.switch("route")
    return made


@pytest.fixture
def strict(queue: Callable[..., Session]) -> Session:
    """A session that refuses whoever does not say who asks."""
    made = queue(1, default_tenant=None)
    made.guard.switch("route")
    return made


@pytest.fixture
def ask(url: str) -> Callable[[], tuple[int, str | None]]:
    def post() -> tuple[int, str | None]:
        response = requests.post(url, json=chat_body(), timeout=30)
        return response.status_code, response.headers.get("x-fairq-reason")

    return post


def submitted(session: Session) -> dict[str, int]:
    return {name: row.submitted for name, row in settled(session).tenants.items() if row.submitted}


REFUSED = (429, "unknown_tenant")
GONE = (200, None)


def test_threads_of_an_executor_ask_as_who_carried_the_work_there(strict: Session, ask):
    with ThreadPoolExecutor(2) as pool, fairq.tenant("logs"):
        carried = [pool.submit(fairq.carry(ask)) for _ in range(3)]
        bare = pool.submit(ask)
        assert ([future.result() for future in carried], bare.result()) == ([GONE] * 3, REFUSED)
    assert submitted(strict) == {"logs": 3}


def test_so_do_those_of_a_loop_and_to_thread_needs_no_help(strict: Session, ask):
    async def main() -> list[tuple[int, str | None]]:
        loop = asyncio.get_running_loop()
        with fairq.tenant("logs"):
            return [
                await loop.run_in_executor(None, fairq.carry(ask)),
                await asyncio.to_thread(ask),
                await loop.run_in_executor(None, ask),
            ]

    assert run(main()) == [GONE, GONE, REFUSED]
    assert submitted(strict) == {"logs": 2}


def test_a_callback_on_a_thread_of_a_library_asks_as_nobody_unless_it_is_carried(strict: Session, ask):
    answers = []
    with fairq.tenant("logs"):
        for callback in (ask, fairq.carry(ask)):
            timer = threading.Timer(0, lambda callback=callback: answers.append(callback()))
            timer.start()
            timer.join()
    assert answers == [REFUSED, GONE]


def test_two_contexts_side_by_side_do_not_mix(session: Session, url: str):
    async def asking(name: str) -> None:
        with fairq.tenant(name):
            async with httpx.AsyncClient(timeout=30) as client:
                for _ in range(3):
                    await client.post(url, json=chat_body())

    async def main() -> None:
        await asyncio.gather(asking("one"), asking("two"))

    run(main())
    assert submitted(session) == {"one": 3, "two": 3}


# --------------------------------------------------------------------------------------------------------------- SDKs

HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize("module", [None, httpx2], ids=["its own", "httpx2"])
def test_an_sdk_made_before_is_routed_and_counted_once(queue: Callable[..., Session], mock: ScriptedEndpoint, module):
    client = openai.OpenAI(
        base_url=mock.base_url, api_key="key", http_client=None if module is None else module.Client(timeout=30)
    )
    session = queue(1)
    session.guard.switch("route")
    mock.hold()
    with client, ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(client.chat.completions.create, model="m", messages=HELLO) for _ in range(3)]
        mock.wait_for(held=1)
        mock.release()
        assert [future.result().choices[0].message.content for future in futures] == ["hello"] * 3
    assert (mock.arrivals, mock.max_in_flight) == (3, 1)
    assert (settled(session).submitted, sum(seen.calls for seen in session.guard.seen())) == (3, 3)


def test_so_is_its_async_side_and_its_streams(queue: Callable[..., Session], mock: ScriptedEndpoint):
    async def main() -> str:
        async with openai.AsyncOpenAI(base_url=mock.base_url, api_key="key") as client:
            session = queue(1)
            session.guard.switch("route")
            mock.reply(stream("one ", "two", usage=(11, 7)))
            events = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
            text = "".join([event.choices[0].delta.content or "" async for event in events if event.choices])
            books = settled(session)
            assert (books.completed, books.tokens) == (1, 18)
            return text

    assert asyncio.run(main()) == "one two"


def test_the_retries_of_an_sdk_do_not_multiply_ours(session: Session, mock: ScriptedEndpoint):
    mock.always(error(429))
    with (
        openai.OpenAI(base_url=mock.base_url, api_key="key", max_retries=6) as client,
        pytest.raises(openai.RateLimitError),
    ):
        client.chat.completions.create(model="m", messages=HELLO)
    assert mock.arrivals == session.settings.rules.backpressure.retries + 1


@pytest.mark.parametrize("through", ["requests", "urllib3"])
def test_the_retries_of_urllib3_do_not_either(session: Session, mock: ScriptedEndpoint, url: str, through: str):
    eager = urllib3.Retry(total=6, status_forcelist=[429, 500], allowed_methods=None, backoff_factor=0)
    mock.always(error(429))
    if through == "requests":
        with requests.Session() as client:
            client.mount("http://", requests.adapters.HTTPAdapter(max_retries=eager))
            assert client.post(url, json=chat_body(), timeout=30).status_code == 429
    else:
        with urllib3.PoolManager(retries=eager) as manager:
            assert manager.request("POST", url, body=json.dumps(chat_body()).encode()).status == 429
    assert mock.arrivals == session.settings.rules.backpressure.retries + 1
    assert settled(session).submitted == 1


def test_what_else_urllib3_retries_it_still_does_within_one_call(session: Session, mock: ScriptedEndpoint, url: str):
    eager = urllib3.Retry(total=3, status_forcelist=[500], allowed_methods=None, backoff_factor=0)
    mock.reply(error(500), error(500))
    with urllib3.PoolManager(retries=eager) as manager:
        assert manager.request("POST", url, body=json.dumps(chat_body()).encode()).status == 200
    assert (mock.arrivals, settled(session).submitted) == (3, 1)


def test_a_body_that_can_be_read_only_once_is_sent_once(session: Session, mock: ScriptedEndpoint, url: str):
    mock.reply(error(429, "busy", retry_after=30))
    response = requests.post(url, data=iter([b'{"model": ', b'"m"}']), timeout=30)
    assert (response.status_code, response.json()["error"]["message"]) == (429, "busy")
    assert (mock.arrivals, mock.requests[0].json) == (1, {"model": "m"})
    assert session.snapshot().held_until is not None, "the endpoint has its rest all the same"
    assert settled(session).submitted == 1
