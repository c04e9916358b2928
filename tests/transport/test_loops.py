"""Calls inside calls, several loops in one kernel, blocked loops, dead loops, and interrupts."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from typing import Any

import openai
import pytest

from fairq_ipy.session import Session
from fairq_ipy.testing import Gate, ScriptedEndpoint, chat, stream
from fairq_ipy.transport import clients

from .conftest import async_client, chat_body, run, settled

Queue = Callable[..., Session]
Client = Callable[..., Any]


def ask(client: Any, mock: ScriptedEndpoint, text: str = "hello") -> str:
    response = client.post(f"{mock.base_url}/chat/completions", json=chat_body(text))
    return str(response.json()["choices"][0]["message"]["content"])


async def aask(client: Any, mock: ScriptedEndpoint, text: str = "hello") -> str:
    response = await client.post(f"{mock.base_url}/chat/completions", json=chat_body(text))
    return str(response.json()["choices"][0]["message"]["content"])


# ----------------------------------------------------------------------------------------------- calls inside of calls


@pytest.mark.parametrize("depth", [1, 3])
def test_a_call_inside_the_loop_over_a_stream_is_answered(
    mock: ScriptedEndpoint, queue: Queue, client: Client, depth: int
):
    sdk = openai.OpenAI(base_url=mock.base_url, api_key="k", http_client=client(queue(concurrency=1)))

    def descend(left: int) -> str:
        said = ""
        for part in sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "a b"}], stream=True):
            if part.choices[0].delta.content and left:
                said += descend(left - 1)
            said += part.choices[0].delta.content or ""
        return said

    assert descend(depth).count("a") == 2 ** (depth + 1) - 1


def test_so_it_is_in_a_task(mock: ScriptedEndpoint, queue: Queue, library: str):
    session = queue(concurrency=1)

    async def main() -> list[str]:
        async with async_client(session, library=library) as made:
            url = f"{mock.base_url}/chat/completions"
            async with made.stream("POST", url, json=chat_body("a b", stream=True)) as response:
                return [await aask(made, mock, "inner") async for _ in response.aiter_lines()]

    assert set(run(main())) == {"inner"}


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_call_inside_a_permit_uses_its_slot(mock: ScriptedEndpoint, queue: Queue, client: Client, concurrency: int):
    session = queue(concurrency=concurrency)
    made = client(session)
    with session.permit():
        assert [ask(made, mock, "one"), ask(made, mock, "two")] == ["one", "two"]
        assert session.snapshot().in_flight == 1
    assert session.snapshot().submitted == 1


def test_a_task_that_calls_under_a_permit_uses_its_slot(mock: ScriptedEndpoint, queue: Queue):
    session = queue(concurrency=1)

    async def main() -> str:
        async with async_client(session) as made, session.permit():
            return await aask(made, mock)

    assert run(main()) == "hello"
    assert session.snapshot().submitted == 1


def test_a_call_that_blocks_the_loop_of_a_running_call_is_answered(
    mock: ScriptedEndpoint, queue: Queue, client: Client
):
    session = queue(concurrency=1)
    made = client(session)
    gate = Gate()
    mock.reply(chat("slow").behind(gate))

    async def main() -> tuple[str, str]:
        async with async_client(session) as other:
            task = asyncio.create_task(aask(other, mock))
            await mock.reached(in_flight=1)
            threading.Timer(0.05, gate.open).start()
            return ask(made, mock, "blocking"), await task

    assert run(main()) == ("blocking", "slow")


# -------------------------------------------------------------------------------------------------------- many loops


def test_one_async_client_serves_one_loop_after_the_other(mock: ScriptedEndpoint, queue: Queue, library: str):
    made = clients.async_http_client(queue(concurrency=1), library=library)
    assert [run(aask(made, mock, str(number))) for number in range(3)] == ["0", "1", "2"]
    run(made.aclose())


def test_threads_with_and_without_loops_share_the_slots(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    shared, sync = clients.async_http_client(session), client(session)
    answers: list[str] = []

    def on_a_loop() -> None:
        answers.extend(run(aask(shared, mock, f"loop {number}")) for number in range(2))

    threads = [threading.Thread(target=on_a_loop) for _ in range(2)]
    threads += [threading.Thread(target=lambda: answers.append(ask(sync, mock, "sync"))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["loop 0"] * 2 + ["loop 1"] * 2 + ["sync"] * 5
    run(shared.aclose())


def test_a_loop_that_is_closed_under_its_waiter_swallows_no_slot(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    made = clients.async_http_client(session)
    mock.hold()
    first = threading.Thread(target=ask, args=(client(session), mock))
    first.start()
    mock.wait_for(held=1)
    loop = asyncio.new_event_loop()
    task = loop.create_task(aask(made, mock, "nobody"))
    while session.snapshot().queued < 1:
        loop.run_until_complete(asyncio.sleep(0.001))
    loop.close()
    mock.release()
    first.join()
    assert ask(client(session), mock, "next") == "next"
    assert settled(session).in_flight == 0
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is the test's point that it never ends


# --------------------------------------------------------------------------------------------------------- interrupts


def interrupted(action: Callable[[], object], *, when: Callable[[], object]) -> None:
    """Run `action` on the main thread and interrupt it as soon as `when` returns."""

    def strike() -> None:
        when()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    striking = threading.Thread(target=strike)
    striking.start()
    with pytest.raises(KeyboardInterrupt):
        action()
    striking.join()


def test_an_interrupt_in_the_queue_takes_the_call_out_of_it(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    made = client(session)
    mock.hold()
    first = threading.Thread(target=ask, args=(made, mock))
    first.start()
    mock.wait_for(held=1)

    def queued() -> None:
        while session.snapshot().queued < 1:
            pass

    interrupted(lambda: ask(made, mock), when=queued)
    mock.release()
    first.join()
    books = settled(session)
    assert (books.cancelled, books.completed, mock.arrivals) == (1, 1, 1)


def test_an_interrupt_under_way_hangs_up(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    made = client(session)
    mock.hold()
    interrupted(lambda: ask(made, mock), when=lambda: mock.wait_for(held=1))
    mock.wait_for(disconnects=1)
    assert settled(session).cancelled == 1
    mock.release()


def test_an_interrupt_in_a_stream_hangs_up(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    made = client(session)
    gate = Gate()
    reading = threading.Event()
    mock.reply(stream("a ", gate, "b"))

    def read() -> None:
        with made.stream("POST", f"{mock.base_url}/chat/completions", json=chat_body(stream=True)) as response:
            for _ in response.iter_raw():
                reading.set()

    interrupted(read, when=reading.wait)
    mock.wait_for(disconnects=1)
    assert settled(session).cancelled == 1
    gate.open()
