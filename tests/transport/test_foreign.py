"""Transports that a user hands in: they run where their client runs, under a permit until the body is closed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import httpx2
import openai
import pytest

from fairq_ipy.core.model import Backpressure, Budget, TenantPolicy
from fairq_ipy.session import Session
from fairq_ipy.testing import Gate, ScriptedEndpoint, chat, error, stream

from .conftest import async_client, chat_body, run, settled

Queue = Callable[..., Session]
Client = Callable[..., Any]

MODULES: dict[str, Any] = {"httpx": httpx, "httpx2": httpx2}
URL = "http://custom.invalid/v1/chat/completions"
ANSWER = {
    "choices": [{"message": {"content": "custom"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1},
}


@pytest.fixture
def custom(queue: Queue) -> Callable[..., Session]:
    return lambda concurrency=1, **more: queue(concurrency, base_url="http://custom.invalid/v1", **more)


def answering(module: Any, *answers: Any) -> Any:
    """A transport with these answers, the last one again and again; it notes the threads it runs on."""
    left = list(answers)

    def handle(request: Any) -> Any:
        handle.threads.append(threading.get_ident())  # type: ignore[attr-defined]
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer(request)

    handle.threads = []  # type: ignore[attr-defined]
    return module.MockTransport(handle)


def ok(module: Any) -> Callable[[Any], Any]:
    return lambda _: module.Response(200, json=ANSWER)


def test_a_custom_transport_runs_on_the_callers_thread_under_a_permit(custom: Any, client: Client, library: str):
    module = MODULES[library]
    session = custom()
    transport = answering(module, ok(module))
    made = client(session, library=library, transport=transport)
    response = made.post(URL, json=chat_body())
    assert response.json()["choices"][0]["message"]["content"] == "custom"
    assert transport.handler.threads == [threading.get_ident()]
    books = settled(session)
    assert (books.completed, books.tokens) == (1, 4)
    account = response.extensions["fairq"]
    assert (account.attempts, account.receipt.exact) == (1, True)


def test_so_it_is_for_a_task(custom: Any, library: str):
    module = MODULES[library]
    session = custom()

    async def main() -> Any:
        transport = answering(module, ok(module))
        async with async_client(session, library=library, transport=transport) as made:
            return (await made.post(URL, json=chat_body())).json()

    assert run(main()) == ANSWER
    assert settled(session).tokens == 4


def test_what_is_no_call_of_the_endpoint_goes_straight_through(custom: Any, client: Client):
    session = custom()
    session.pause()
    made = client(session, library="httpx", transport=answering(httpx, ok(httpx)))
    assert made.get("http://custom.invalid/v1/models").status_code == 200

    async def main() -> int:
        async with async_client(session, library="httpx", transport=answering(httpx, ok(httpx))) as asynchronous:
            return int((await asynchronous.get("http://custom.invalid/v1/models")).status_code)

    assert run(main()) == 200
    assert session.snapshot().submitted == 0


def later(module: Any) -> Callable[[Any], Any]:
    return lambda _: module.Response(429, headers={"retry-after": "0.01"}, text="later")


def test_later_puts_the_call_back_into_the_queue(custom: Any, client: Client, library: str):
    module = MODULES[library]
    session = custom()
    made = client(session, library=library, transport=answering(module, later(module), later(module), ok(module)))
    assert made.post(URL, json=chat_body()).extensions["fairq"].attempts == 3
    assert settled(session).retries == 2

    async def main() -> int:
        transport = answering(module, later(module), ok(module))
        async with async_client(session, library=library, transport=transport) as asynchronous:
            return int((await asynchronous.post(URL, json=chat_body())).extensions["fairq"].attempts)

    assert run(main()) == 2


def test_an_endpoint_that_goes_on_refusing_has_the_last_word(custom: Any, client: Client, library: str):
    module = MODULES[library]
    session = custom(backpressure=Backpressure(retries=1, base=0.01, max_hold=0.02))

    async def main() -> Any:
        async with async_client(session, library=library, transport=answering(module, later(module))) as asynchronous:
            return await asynchronous.post(URL, json=chat_body())

    made = client(session, library=library, transport=answering(module, later(module)))
    for response in (made.post(URL, json=chat_body()), run(main())):
        assert (response.status_code, response.text) == (429, "later")
        assert response.headers["x-should-retry"] == "false"
        assert response.extensions["fairq"].attempts == 2


def test_an_empty_account_is_told_at_once(custom: Any, client: Client):
    session = custom()
    quota = {"error": {"code": "insufficient_quota", "message": "empty"}}

    def empty(_: Any) -> Any:
        return httpx.Response(429, json=quota)

    async def main() -> Any:
        async with async_client(session, library="httpx", transport=answering(httpx, empty)) as asynchronous:
            return await asynchronous.post(URL, json=chat_body())

    made = client(session, library="httpx", transport=answering(httpx, empty))
    for response in (made.post(URL, json=chat_body()), run(main())):
        assert response.json() == quota
        assert response.headers["x-should-retry"] == "false"
    assert settled(session).retries == 0


def test_the_queue_refuses_as_everywhere(custom: Any, client: Client):
    made = client(
        custom(defaults=TenantPolicy(budgets=(Budget("requests", 0),))),
        library="httpx",
        transport=answering(httpx, ok(httpx)),
    )
    assert made.post(URL, json=chat_body()).headers["x-fairq-reason"] == "budget"


@pytest.mark.parametrize(("problem", "failed"), [(httpx.ReadError("gone"), 1), (httpx.ConnectError("no"), 1)])
def test_what_the_transport_raises_is_raised_and_the_slot_is_free(
    custom: Any, client: Client, problem: Exception, failed: int
):
    session = custom()
    made = client(session, library="httpx", transport=answering(httpx, problem))
    with pytest.raises(type(problem)):
        made.post(URL, json=chat_body())

    async def main() -> None:
        async with async_client(session, library="httpx", transport=answering(httpx, problem)) as asynchronous:
            with pytest.raises(type(problem)):
                await asynchronous.post(URL, json=chat_body())

    run(main())
    books = settled(session)
    assert (books.failed, books.tokens) == (2 * failed, 0)


# ------------------------------------------------------------------------------------------------------------- streams


def test_a_stream_holds_its_slot_until_it_is_closed(mock: ScriptedEndpoint, queue: Queue, client: Client, library: str):
    session = queue(concurrency=1)
    gate = Gate()
    mock.reply(stream("a ", gate, "b", usage=(5, 2)), stream("a ", "b"))
    made = client(session, library=library, transport=MODULES[library].HTTPTransport())
    url = f"{mock.base_url}/chat/completions"
    with made.stream("POST", url, json=chat_body(stream=True)) as response:
        lines = response.iter_lines()
        next(lines)
        assert session.snapshot().in_flight == 1
        gate.open()
        list(lines)
    assert settled(session).tokens == 7
    with made.stream("POST", url, json=chat_body(stream=True)) as response:
        next(response.iter_lines())
    assert settled(session).in_flight == 0


def test_a_stream_that_is_left_early_is_cancelled(mock: ScriptedEndpoint, queue: Queue, client: Client, library: str):
    session = queue(concurrency=1)
    gate = Gate()
    mock.always(stream("a ", gate, "b"))
    module = MODULES[library]
    url = f"{mock.base_url}/chat/completions"
    made = client(session, library=library, transport=module.HTTPTransport())
    with made.stream("POST", url, json=chat_body(stream=True)) as response:
        next(response.iter_raw())

    async def main() -> None:
        async with (
            async_client(session, library=library, transport=module.AsyncHTTPTransport()) as asynchronous,
            asynchronous.stream("POST", url, json=chat_body(stream=True)) as late,
            contextlib.aclosing(late.aiter_raw()) as parts,
        ):
            await anext(parts)

    run(main())
    assert settled(session).cancelled == 2
    gate.open()


def test_a_stream_that_breaks_is_truncated(mock: ScriptedEndpoint, queue: Queue, client: Client, library: str):
    session = queue(concurrency=1)
    mock.always(stream("a ", "b", "c").cut(1))
    module = MODULES[library]
    url = f"{mock.base_url}/chat/completions"
    made = client(session, library=library, transport=module.HTTPTransport())
    with pytest.raises(module.RemoteProtocolError):
        made.post(url, json=chat_body(stream=True))

    async def main() -> None:
        async with async_client(session, library=library, transport=module.AsyncHTTPTransport()) as asynchronous:
            with pytest.raises(module.RemoteProtocolError):
                await asynchronous.post(url, json=chat_body(stream=True))

    run(main())
    assert settled(session).failed == 2


def test_openais_clients_work_on_a_custom_transport(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    made = client(session, library="httpx2", transport=httpx2.HTTPTransport(retries=1))
    sdk = openai.OpenAI(base_url=mock.base_url, api_key="k", http_client=made)
    mock.reply(error(429, retry_after="0.01"), chat("one two"))
    parts = sdk.chat.completions.create(model="m", messages=[], stream=True)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == "one two"


# ----------------------------------------------------------------------------------------------- one's own open streams


def events(module: Any) -> Callable[[Any], Any]:
    class Body(module.SyncByteStream):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[bytes]:
            yield from (b"data: {}\n\n", b"data: [DONE]\n\n")

    class AsyncBody(module.AsyncByteStream):  # type: ignore[misc, name-defined]
        async def __aiter__(self) -> Any:
            for part in (b"data: {}\n\n", b"data: [DONE]\n\n"):
                yield part

    kinds = {"sync": Body, "async": AsyncBody}
    return lambda request: module.Response(
        200, headers={"content-type": "text/event-stream"}, stream=kinds[request.headers["x-kind"]]()
    )


def test_a_call_that_would_wait_for_its_own_callers_stream_is_refused_at_once(custom: Any, client: Client):
    session = custom()
    made = client(session, library="httpx", transport=answering(httpx, events(httpx)), headers={"x-kind": "sync"})
    governed = client(session, library="httpx")
    with made.stream("POST", URL, json=chat_body(stream=True)) as response:
        for inner in (made, governed):
            refused = inner.post(URL, json=chat_body(stream=True))
            assert refused.headers["x-fairq-reason"] == "would_deadlock"
        assert response.read()
        assert made.post(URL, json=chat_body(stream=True)).status_code == 200
    assert settled(session).completed == 2


def test_so_is_one_of_a_task_but_not_one_of_another_task(custom: Any):
    session = custom()

    async def main() -> tuple[str, int]:
        transport = answering(httpx, events(httpx))
        async with async_client(session, library="httpx", transport=transport, headers={"x-kind": "async"}) as made:
            async with made.stream("POST", URL, json=chat_body(stream=True)) as response:
                refused = await made.post(URL, json=chat_body(stream=True))
                other = asyncio.create_task(made.post(URL, json=chat_body(stream=True)))
                await asyncio.sleep(0)
                await response.aread()
            return refused.headers["x-fairq-reason"], (await other).status_code

    assert run(main()) == ("would_deadlock", 200)


def test_with_a_slot_to_spare_it_is_not_refused(custom: Any, client: Client):
    session = custom(2)
    made = client(session, library="httpx", transport=answering(httpx, events(httpx)), headers={"x-kind": "sync"})
    with made.stream("POST", URL, json=chat_body(stream=True)):
        assert made.post(URL, json=chat_body(stream=True)).status_code == 200


def test_under_a_permit_the_block_has_one_slot(custom: Any, client: Client):
    session = custom(2)
    made = client(session, library="httpx", transport=answering(httpx, events(httpx)), headers={"x-kind": "sync"})
    with session.permit(), made.stream("POST", URL, json=chat_body(stream=True)):
        assert made.post(URL, json=chat_body(stream=True)).headers["x-fairq-reason"] == "would_deadlock"


def test_a_loop_that_is_busy_misses_its_offer_and_keeps_its_place(custom: Any, client: Client, mock: ScriptedEndpoint):
    session = custom()
    first = session.permit()
    first.take()

    async def main() -> int:
        async with async_client(session, library="httpx", transport=answering(httpx, ok(httpx))) as made:
            task = asyncio.create_task(made.post(URL, json=chat_body()))
            await asyncio.sleep(0)
            assert session.snapshot().queued == 1
            first.give_back("ok")
            blocking = client(session, library="httpx", transport=answering(httpx, ok(httpx)))
            blocking.post(URL, json=chat_body())  # blocks this loop until the offer has passed on
            return int((await task).status_code)

    assert run(main()) == 200
    assert settled(session).completed == 3
