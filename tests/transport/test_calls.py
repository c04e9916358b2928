"""One call: who asks, what is governed, and that the answer is the endpoint's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import httpx2
import pytest

from fairq_ipy.errors import ConfigurationError, UnknownTenantError
from fairq_ipy.runtime.scope import tenant
from fairq_ipy.session import Session
from fairq_ipy.testing import ScriptedEndpoint, chat, embeddings, json_reply, plain, raw
from fairq_ipy.transport import clients
from fairq_ipy.transport.redirects import MAX_HOPS

from .conftest import async_client, chat_body, run, settled

Queue = Callable[..., Session]
Client = Callable[..., Any]


def post(client: Any, url: str, **options: Any) -> Any:
    return client.post(f"{url}/chat/completions", json=chat_body(), **options)


# ------------------------------------------------------------------------------------------------- the way of one call


def test_a_call_passes_the_queue_once_and_is_answered(
    mock: ScriptedEndpoint, queue: Queue, client: Client, library: str
):
    session = queue()
    mock.reply(chat("all right", usage=(11, 3)))
    response = post(client(session, library=library), mock.base_url)
    assert response.json()["choices"][0]["message"]["content"] == "all right"
    books = session.snapshot()
    assert (books.submitted, books.completed, books.in_flight, books.tokens) == (1, 1, 0, 14)
    assert mock.arrivals == 1


def test_so_does_a_call_of_an_async_client(mock: ScriptedEndpoint, queue: Queue, library: str):
    session = queue()
    mock.reply(chat("all right", usage=(11, 3)))

    async def main() -> Any:
        async with async_client(session, library=library) as client:
            return await client.post(f"{mock.base_url}/chat/completions", json=chat_body())

    assert run(main()).json()["choices"][0]["message"]["content"] == "all right"
    books = session.snapshot()
    assert (books.submitted, books.completed, books.in_flight, books.tokens) == (1, 1, 0, 14)


def test_the_endpoint_gets_exactly_the_bytes_and_headers_of_the_caller(
    mock: ScriptedEndpoint, queue: Queue, client: Client, library: str
):
    module = {"httpx": httpx, "httpx2": httpx2}[library]
    body = b'{ "messages" : [],\t"x": "\xc3\xa9\\u2028" }'
    headers = {"authorization": "Bearer sk-1", "x-own": "7", "content-type": "application/json"}
    with module.Client() as plain_client:
        plain_client.post(f"{mock.base_url}/chat/completions", content=body, headers=headers)
    client(queue(), library=library).post(f"{mock.base_url}/chat/completions", content=body, headers=headers)
    ours, theirs = mock.requests[1], mock.requests[0]
    assert ours.body == theirs.body == body
    assert ours.raw_headers == theirs.raw_headers


def test_the_caller_gets_exactly_the_bytes_and_headers_of_the_endpoint(
    mock: ScriptedEndpoint, queue: Queue, client: Client, library: str
):
    body = b'{"choices": [ ]}\n\n '
    mock.reply(raw(b"HTTP/1.1 200 Fine\r\nContent-Length: 19\r\nX-Twice: a\r\nX-Twice: b\r\nX-Own: \xe9\r\n\r\n", body))
    response = post(client(queue(), library=library), mock.base_url)
    assert response.content == body
    assert response.reason_phrase == "Fine"
    assert response.headers.get_list("x-twice") == ["a", "b"]
    assert [value for name, value in response.headers.raw if name == b"X-Own"] == [b"\xe9"]


def test_a_body_that_is_made_bit_by_bit_is_read_on_the_callers_side(
    mock: ScriptedEndpoint, queue: Queue, client: Client
):
    session = queue()
    text = json.dumps(chat_body("bit by bit")).encode()
    url = f"{mock.base_url}/chat/completions"

    async def bits() -> Any:
        for byte in text:
            yield bytes([byte])

    async def main() -> Any:
        async with async_client(session) as made:
            return await made.post(url, content=bits())

    made = client(session).post(url, content=(bytes([byte]) for byte in text))
    for response in (made, run(main())):
        assert response.json()["choices"][0]["message"]["content"] == "bit by bit"


def test_a_large_answer_arrives_whole(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue()
    mock.reply(plain("x" * 3_000_000, usage=(1, 2)))
    response = post(client(session), mock.base_url)
    assert len(response.json()["choices"][0]["message"]["content"]) == 3_000_000
    assert settled(session).tokens == 3


def test_every_answer_says_what_its_call_was(mock: ScriptedEndpoint, queue: Queue, client: Client):
    mock.reply(chat("hi", usage=(4, 1)))
    account = post(client(queue(), tenant="logs"), mock.base_url).extensions["fairq"]
    assert (account.tenant, account.attempts, account.receipt.output_tokens, account.finish_reason) == (
        "logs",
        1,
        1,
        "stop",
    )
    assert account.wait_s >= 0
    assert account.service_s > 0


# ------------------------------------------------------------------------------------------------------------ who asks


def test_the_client_comes_before_the_header_and_the_header_before_the_scope(
    mock: ScriptedEndpoint, queue: Queue, client: Client
):
    session = queue(default_tenant="nobody")
    named, unnamed = client(session, tenant="of-client"), client(session)
    headers = {"X-Fairq-Tenant": "of-header"}
    with tenant("of-scope"):
        for made, extra in ((named, headers), (unnamed, headers), (unnamed, {})):
            post(made, mock.base_url, headers=extra)
    post(unnamed, mock.base_url)
    asked = {name for name, row in session.snapshot().tenants.items() if row.submitted}
    assert asked == {"of-client", "of-header", "of-scope", "nobody"}


def test_what_is_meant_for_the_queue_is_not_sent_on(mock: ScriptedEndpoint, queue: Queue, client: Client):
    made = client(queue())
    headers = {"X-Fairq-Tenant": "a", "x-fairq-priority": "batch", "x-own": "1"}
    post(made, mock.base_url, headers=headers)
    made.get(f"{mock.base_url}/models", headers=headers)
    for request in mock.requests:
        assert not [name for name in request.headers if name.startswith("x-fairq")]
        assert request.headers["x-own"] == "1"


@pytest.mark.parametrize(("given", "level"), [("batch", 2), ("5", 5), (7, 7), (0, 0)])
def test_a_priority_is_a_level_or_its_name(
    mock: ScriptedEndpoint, queue: Queue, client: Client, given: int | str, level: int
):
    session = queue(concurrency=1)
    story = session.keeper.journal
    post(client(session, tenant="a", priority=given), mock.base_url)
    post(client(session, tenant="a"), mock.base_url, headers={"X-Fairq-Priority": str(given)})
    tickets = [
        line.event.ticket for line in session.keeper.call(lambda *_: list(story)) if hasattr(line.event, "ticket")
    ]
    assert [ticket.level for ticket in tickets] == [level, level]


def test_a_wrong_priority_or_an_unknown_tenant_is_told_where_it_is_written(queue: Queue):
    session = queue(unknown_tenants="refuse")
    for make in (clients.http_client, clients.async_http_client):
        with pytest.raises(ConfigurationError, match="50"):
            make(session, priority=50)
        with pytest.raises(UnknownTenantError):
            make(session, tenant="stranger")


# ----------------------------------------------------------------------------------------------------- what is governed


@pytest.mark.parametrize(
    "path",
    ["chat/completions", "completions", "responses", "embeddings", "messages", "chat/completions/", "audio/speech"],
)
def test_posts_to_the_endpoints_paths_are_governed(mock: ScriptedEndpoint, queue: Queue, client: Client, path: str):
    session = queue(paths=("audio/speech",))
    mock.always(embeddings())
    client(session).post(f"{mock.base_url}/{path}", json={"input": "a"})
    assert session.snapshot().submitted == 1


@pytest.mark.parametrize("what", [("GET", "models"), ("GET", "chat/completions"), ("POST", "files")])
def test_other_requests_go_straight_through(
    mock: ScriptedEndpoint, queue: Queue, client: Client, library: str, what: tuple[str, str]
):
    method, path = what
    session = queue(concurrency=1)
    session.pause()
    assert client(session, library=library).request(method, f"{mock.base_url}/{path}").status_code == 200

    async def main() -> Any:
        async with async_client(session, library=library) as made:
            return await made.request(method, f"{mock.base_url}/{path}")

    assert run(main()).status_code == 200
    assert session.snapshot().submitted == 0


def test_another_origin_goes_straight_through(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue(base_url="http://127.0.0.1:9/v1")
    session.pause()
    assert post(client(session), mock.base_url).status_code == 200
    assert session.snapshot().submitted == 0


@pytest.mark.parametrize("spelling", ["{base}/", "{base}", "http://127.0.0.1:{port}", "HTTP://127.0.0.1:{port}/v1"])
def test_every_spelling_of_the_endpoint_is_the_endpoint(
    mock: ScriptedEndpoint, queue: Queue, client: Client, spelling: str
):
    session = queue(base_url=spelling.format(base=mock.base_url, port=mock.port))
    post(client(session), mock.base_url)
    post(client(session, base_url=mock.base_url.upper().replace("V1", "v1")), "")
    assert session.snapshot().submitted == 2


def test_a_prefix_and_an_ipv6_host_are_kept_apart_from_others(queue: Queue, client: Client):
    session = queue(base_url="http://[::1]:9/team/v1")
    made = client(session, timeout=1.0)
    session.pause()
    for url in ("http://[::1]:9/v1/chat/completions", "http://[::1]:9/other/v1/chat/completions"):
        with pytest.raises(Exception, match=r"(?i)connect"):
            made.post(url, json=chat_body())
    assert session.snapshot().submitted == 0
    session.resume()
    with pytest.raises(Exception, match=r"(?i)connect"):
        made.post("http://[0:0:0:0:0:0:0:1]:9/team/v1/chat/completions", json=chat_body())
    assert settled(session).submitted == 1


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_within_the_endpoint_is_one_call_with_one_slot(
    mock: ScriptedEndpoint, queue: Queue, client: Client, library: str, status: int
):
    session = queue(concurrency=1)
    mock.reply(json_reply({}, status=status, headers={"location": "/v1/chat/completions/"}), chat("there"))
    response = post(client(session, library=library), mock.base_url)
    assert response.json()["choices"][0]["message"]["content"] == "there"
    assert [request.path for request in mock.requests] == ["/v1/chat/completions", "/v1/chat/completions/"]
    assert session.snapshot().submitted == 1


def test_redirects_without_end_are_one_call_with_a_bound(
    mock: ScriptedEndpoint, queue: Queue, client: Client, library: str
):
    session = queue()
    mock.always(json_reply({}, status=307, headers={"location": "/v1/chat/completions"}))
    with pytest.raises(Exception, match=r"(?i)redirect") as raised:
        post(client(session, library=library), mock.base_url)
    assert type(raised.value).__name__ == "TooManyRedirects"
    assert type(raised.value).__module__.split(".")[0] == library
    assert mock.arrivals == MAX_HOPS + 1
    assert settled(session).submitted == 1


@pytest.mark.parametrize("absurd", [b"1" + 400 * b"0", b"1e308", b"-1", b"1e17"])
def test_an_answer_with_an_absurd_usage_is_estimated_and_gives_its_slot_back(
    mock: ScriptedEndpoint, queue: Queue, client: Client, absurd: bytes
):
    session = queue(concurrency=1)
    body = b'{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":1,"completion_tokens":'
    mock.always(raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + body + absurd + b"}}"))
    for _ in range(3):
        assert post(client(session), mock.base_url).status_code == 200
    found = settled(session)
    assert (found.in_flight, found.completed) == (0, 3)
    assert found.tokens < 100


def test_a_redirect_is_left_to_a_client_that_follows_none(mock: ScriptedEndpoint, queue: Queue, client: Client):
    mock.reply(json_reply({}, status=307, headers={"location": "/v1/chat/completions/"}))
    assert post(client(queue(), follow_redirects=False), mock.base_url).status_code == 307
    assert mock.arrivals == 1


def test_a_redirect_that_becomes_a_get_is_no_second_call(mock: ScriptedEndpoint, queue: Queue, client: Client):
    session = queue()
    mock.reply(json_reply({}, status=303, headers={"location": f"{mock.base_url}/result"}), json_reply({"ok": 1}))
    assert post(client(session), mock.base_url).json() == {"ok": 1}
    assert session.snapshot().submitted == 1
