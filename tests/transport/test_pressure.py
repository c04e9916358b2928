"""When the endpoint says later, when it says no, and when the queue does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest

from fairq_ipy.core.model import Backpressure, Budget, Context, TenantPolicy
from fairq_ipy.errors import ConfigurationError
from fairq_ipy.session import Session
from fairq_ipy.testing import ScriptedEndpoint, chat, error, html, json_reply, plain

from .conftest import QUICK, async_client, chat_body, run, settled

Queue = Callable[..., Session]
Client = Callable[..., Any]


def post(client: Any, mock: ScriptedEndpoint, **more: Any) -> Any:
    return client.post(f"{mock.base_url}/chat/completions", json=chat_body(**more))


BUSY = [
    error(429, "slow down"),
    html("<html><h1>429 Too Many Requests</h1></html>", status=429),
    html("<html><h1>503 Service Temporarily Unavailable</h1></html>", status=503),
    error(503, "server busy, maximum pending requests exceeded"),
    error(529, "Overloaded", type="overloaded_error"),
    json_reply({"error": {"message": "Provider returned error", "code": 429}}),
]


@pytest.mark.parametrize("busy", BUSY)
def test_later_is_answered_by_waiting_and_the_caller_sees_none_of_it(
    mock: ScriptedEndpoint, queue: Queue, client: Client, library: str, busy: Any
):
    session = queue(concurrency=1)
    mock.reply(busy, busy, chat("at last"))
    response = post(client(session, library=library), mock)
    assert response.json()["choices"][0]["message"]["content"] == "at last"
    assert response.extensions["fairq"].attempts == 3
    books = session.snapshot()
    assert (books.completed, books.retries, books.refusals_by_endpoint) == (1, 2, 2)
    assert len({request.body for request in mock.requests}) == 1


def test_a_refusing_endpoint_is_left_alone_for_as_long_as_it_asks(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=2)
    mock.reply(error(429, retry_after="0.3"), chat("a"))
    made = client(session)
    threads = [threading.Thread(target=post, args=(made, mock)) for _ in range(3)]
    threads[0].start()
    while session.snapshot().held_until is None:
        time.sleep(0.002)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = mock.requests[0], mock.requests[1]
    assert second.arrived - first.arrived > 0.29


def test_an_endpoint_that_goes_on_refusing_has_the_last_word_once(
    mock: ScriptedEndpoint, queue: Queue, client: Client, library: str
):
    session = queue(concurrency=1, backpressure=Backpressure(retries=2, base=0.01, max_hold=0.02))
    mock.always(error(429, "come back tomorrow", headers={"x-ratelimit": "9", "x-should-retry": "true"}))
    response = post(client(session, library=library), mock)
    assert response.status_code == 429
    assert response.json()["error"]["message"] == "come back tomorrow"
    assert response.headers["x-ratelimit"] == "9"
    assert response.headers.get_list("x-should-retry") == ["false"]
    assert mock.arrivals == 3
    assert settled(session).rejected == 1


def test_an_sdk_that_retries_by_itself_does_not_multiply(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1, backpressure=Backpressure(retries=2, base=0.01, max_hold=0.02))
    mock.always(error(429))
    sdk = openai.OpenAI(base_url=mock.base_url, api_key="k", max_retries=5, http_client=client(session))
    with pytest.raises(openai.RateLimitError):
        sdk.chat.completions.create(model="m", messages=[])
    assert mock.arrivals == 3


def test_an_empty_account_is_told_at_once_and_holds_nobody(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    mock.reply(error(429, "You exceeded your current quota", code="insufficient_quota"))
    sdk = openai.OpenAI(base_url=mock.base_url, api_key="k", http_client=client(session))
    with pytest.raises(openai.RateLimitError, match="current quota"):
        sdk.chat.completions.create(model="m", messages=[])
    books = session.snapshot()
    assert (mock.arrivals, books.retries, books.held_until, books.tokens) == (1, 0, None, 0)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_what_no_wait_will_mend_is_handed_on_untouched(
    mock: ScriptedEndpoint, queue: Queue, client: Client, status: int
):
    session = queue(concurrency=1)
    mock.reply(error(status, "no"))
    response = post(client(session), mock)
    assert (response.status_code, response.json()["error"]["message"]) == (status, "no")
    assert "x-should-retry" not in response.headers
    books = session.snapshot()
    assert (mock.arrivals, books.failed, books.tokens, books.held_until) == (1, 1, 0, None)


def test_a_503_that_is_no_matter_of_load_is_handed_on(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    mock.reply(json_reply({"error": "no healthy upstream"}, status=503))
    response = post(client(session), mock)
    assert (response.status_code, mock.arrivals) == (503, 1)
    assert response.headers["x-should-retry"] == "false"


def test_an_endpoint_that_is_not_there_is_the_librarys_own_error(queue: Queue, client: Client, library: str):
    session = queue(base_url="http://127.0.0.1:9/v1")
    with pytest.raises(Exception, match=r"(?i)connect") as caught:
        client(session, library=library).post("http://127.0.0.1:9/v1/chat/completions", json=chat_body())
    assert (type(caught.value).__name__, type(caught.value).__module__) == ("ConnectError", library)
    assert str(caught.value.request.url).endswith("/chat/completions")
    books = settled(session)
    assert (books.completed, books.tokens) == (1, 0)


def test_so_it_is_in_a_task(queue: Queue, library: str):
    session = queue(base_url="http://127.0.0.1:9/v1")

    async def main() -> None:
        async with async_client(session, library=library) as made:
            with pytest.raises(Exception, match=r"(?i)connect") as caught:
                await made.post("http://127.0.0.1:9/v1/chat/completions", json=chat_body())
            assert type(caught.value).__module__ == library

    run(main())


# -------------------------------------------------------------------------------------------------- the queue says no


def refused(response: Any, reason: str) -> None:
    assert response.status_code == 429
    assert response.headers["x-fairq-reason"] == reason
    assert response.headers["x-should-retry"] == "false"
    assert response.json()["error"]["code"] == reason


def test_a_full_queue_refuses_at_once_with_an_answer_that_sdks_do_not_repeat(
    mock: ScriptedEndpoint, queue: Queue, client: Client
):
    session = queue(concurrency=1, queue=1)
    made = client(session)
    mock.hold()
    threads = [threading.Thread(target=post, args=(made, mock)) for _ in range(2)]
    for thread in threads:
        thread.start()
    mock.wait_for(held=1)
    while session.snapshot().queued < 1:
        time.sleep(0.002)
    refused(post(made, mock), "queue_full")
    sdk = openai.OpenAI(base_url=mock.base_url, api_key="k", max_retries=5, http_client=made)
    with pytest.raises(openai.RateLimitError, match="queue"):
        sdk.chat.completions.create(model="m", messages=[])
    assert session.snapshot().rejected == 2
    mock.release()
    for thread in threads:
        thread.join()
    assert mock.arrivals == 2


def test_a_budget_that_is_used_up_refuses(mock: ScriptedEndpoint, queue: Queue, client: Client):
    rules = TenantPolicy(budgets=(Budget("requests", 1),))
    made = client(queue(concurrency=1, defaults=rules))
    assert post(made, mock).status_code == 200
    refused(post(made, mock), "budget")
    assert mock.arrivals == 1


def test_a_request_that_carries_too_much_is_refused(mock: ScriptedEndpoint, queue: Queue, client: Client):
    rules = TenantPolicy(context=Context(messages=2))
    made = client(queue(concurrency=1, defaults=rules))
    messages = [{"role": "user", "content": "x"}] * 3
    refused(made.post(f"{mock.base_url}/chat/completions", json={"messages": messages}), "context")
    assert mock.arrivals == 0


def test_a_tenant_that_nobody_knows_is_refused(mock: ScriptedEndpoint, queue: Queue, client: Client):
    made = client(queue(unknown_tenants="refuse"))
    response = made.post(f"{mock.base_url}/chat/completions", json=chat_body(), headers={"x-fairq-tenant": "stranger"})
    refused(response, "unknown_tenant")
    assert mock.arrivals == 0


def test_a_priority_that_is_none_is_an_error_of_the_set_up(mock: ScriptedEndpoint, queue: Queue, client: Client):
    made = client(queue())
    with pytest.raises(ConfigurationError, match="99"):
        made.post(f"{mock.base_url}/chat/completions", json=chat_body(), headers={"x-fairq-priority": "99"})


def test_a_paused_tenant_is_refused_where_the_policy_says_so(mock: ScriptedEndpoint, queue: Queue, library: str):
    session = queue(concurrency=1, defaults=TenantPolicy(on_paused="refuse"))
    session.pause("a")

    async def main() -> Any:
        async with async_client(session, tenant="a", library=library) as made:
            return await made.post(f"{mock.base_url}/chat/completions", json=chat_body())

    refused(run(main()), "paused")
    assert mock.arrivals == 0


def test_a_refusal_has_the_shape_of_the_api(mock: ScriptedEndpoint, queue: Queue, client: Client):
    rules = TenantPolicy(budgets=(Budget("requests", 0),))
    made = client(queue(concurrency=1, defaults=rules))
    response = made.post(f"{mock.base_url}/messages", json={"messages": []})
    assert response.json()["type"] == "error"
    assert response.json()["error"]["type"] == "rate_limit_error"


# -------------------------------------------------------------------------------------------------------------- times


def test_time_in_the_queue_is_no_time_of_the_request(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1)
    sdk = openai.OpenAI(base_url=mock.base_url, api_key="k", timeout=0.5, max_retries=0, http_client=client(session))
    mock.always(plain().after(0.2))
    errors: list[Exception] = []

    def ask() -> None:
        try:
            sdk.chat.completions.create(model="m", messages=[])
        except openai.OpenAIError as problem:
            errors.append(problem)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert session.snapshot().completed == 5


def test_a_server_that_takes_too_long_is_the_librarys_timeout(
    mock: ScriptedEndpoint, queue: Queue, client: Client, library: str
):
    session = queue(concurrency=1)
    mock.hold()
    with pytest.raises(Exception) as caught:  # noqa: PT011 - ReadTimeout has no text
        post(client(session, library=library, timeout=0.1), mock)
    assert (type(caught.value).__name__, type(caught.value).__module__) == ("ReadTimeout", library)
    mock.wait_for(disconnects=1)
    assert settled(session).failed == 1
    mock.release()


def test_who_waits_longer_than_it_may_is_refused_and_never_sent(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1, max_wait=0.2)
    made = client(session)
    mock.hold()
    first = threading.Thread(target=post, args=(made, mock))
    first.start()
    mock.wait_for(held=1)
    refused(post(made, mock), "queue_timeout")
    mock.release()
    first.join()
    assert mock.arrivals == 1


def test_a_task_that_gives_up_in_the_queue_is_never_sent(mock: ScriptedEndpoint, queue: Queue, library: str):
    session = queue(concurrency=1)
    mock.hold()
    url = f"{mock.base_url}/chat/completions"

    async def main() -> None:
        async with async_client(session, library=library) as made:
            first = asyncio.create_task(made.post(url, json=chat_body()))
            await mock.reached(held=1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await made.post(url, json=chat_body())
            mock.release()
            assert (await first).status_code == 200

    run(main())
    books = settled(session)
    assert (books.cancelled, books.completed, mock.arrivals) == (1, 1, 1)


def test_a_policy_without_retries_hands_the_first_refusal_out(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(concurrency=1, backpressure=Backpressure(retries=0, base=QUICK.base))
    mock.reply(error(429, retry_after="0.01"))
    assert post(client(session), mock).status_code == 429
    assert mock.arrivals == 1
