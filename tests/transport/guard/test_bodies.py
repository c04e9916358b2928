"""The ways in which each library lets its users read: all of them pass what came, count it, and end the call."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import httpx
import pytest
import requests
import urllib3

from fairq_ipy.session import Session
from fairq_ipy.testing import Gate, Reply, ScriptedEndpoint, chat, error, raw, stream

from ..conftest import chat_body, run, settled  # noqa: TID252 - the tests of a room are no installed package

TOKENS = 18
CONTENT = {
    "choices": [{"message": {"content": "x" * 3000}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 11, "completion_tokens": 7},
}
PLAIN = json.dumps(CONTENT).encode()
PACKED = gzip.compress(PLAIN)


def packed() -> Reply:
    head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length:"
    return raw(f"{head} {len(PACKED)}\r\n\r\n".encode() + PACKED)


def sent(**more: Any) -> bytes:
    return json.dumps(chat_body(**more)).encode()


def events() -> Reply:
    return stream("one ", "two ", "three", usage=(11, 7))


def text_of(reply: Reply, mock: ScriptedEndpoint) -> bytes:
    return b"".join(piece for piece in reply.make(mock.requests[0]).pieces if isinstance(piece, bytes))


@pytest.fixture
def session(queue: Callable[..., Session]) -> Session:
    made = queue(1)
    made.guard.switch("route")
    return made


def counted(session: Session, **expected: int) -> None:
    books = settled(session)
    assert {name: getattr(books, name) for name in expected} == expected


# ------------------------------------------------------------------------------------------------------------ urllib3

Urllib3 = Callable[[Any], bytes]

URLLIB3: dict[str, Urllib3] = {
    "read": lambda response: response.read(),
    "data": lambda response: response.data,
    "read in parts": lambda response: b"".join(iter(lambda: response.read(7), b"")),
    "read1": lambda response: b"".join(iter(lambda: response.read1(7), b"")),
    "stream": lambda response: b"".join(response.stream(7)),
    "iterate": b"".join,
    "readinto": lambda response: io.BufferedReader(response, 64).read(),
}


@pytest.mark.parametrize("way", URLLIB3)
@pytest.mark.parametrize("reply", [events, packed], ids=["events", "gzip"])
def test_urllib3_is_read_in_any_way(session: Session, mock: ScriptedEndpoint, url: str, way: str, reply: Any):
    mock.reply(reply())
    with urllib3.PoolManager() as manager:
        response = manager.request("POST", url, body=sent(stream=reply is events), preload_content=False)
        assert isinstance(response, urllib3.HTTPResponse)
        assert type(response).__name__ == "HTTPResponse"
        read = URLLIB3[way](response)
        assert read == (PLAIN if reply is packed else text_of(events(), mock))
        assert session.snapshot().in_flight == 0, "the end of the body is the end of the call"
        counted(session, completed=1, failed=0, tokens=TOKENS)


def test_urllib3_chunks_one_by_one(session: Session, mock: ScriptedEndpoint, url: str):
    mock.reply(events())
    with urllib3.PoolManager() as manager:
        response = manager.request("POST", url, body=sent(stream=True), preload_content=False)
        assert b"".join(response.read_chunked()) == text_of(events(), mock)
        counted(session, completed=1, tokens=TOKENS)


def test_urllib3_bytes_as_they_were_sent(session: Session, mock: ScriptedEndpoint, url: str):
    mock.reply(packed())
    with urllib3.PoolManager() as manager:
        settings = {"preload_content": False, "decode_content": False}
        response = manager.request("POST", url, body=sent(), **settings)
        assert b"".join(iter(lambda: response.read(7), b"")) == PACKED
        counted(session, completed=1, failed=0, tokens=TOKENS)


@pytest.mark.parametrize("leave", ["close", "release_conn"])
def test_urllib3_is_left_early(session: Session, mock: ScriptedEndpoint, url: str, leave: str):
    mock.reply(stream("one ", Gate(), "two"))
    with urllib3.PoolManager() as manager:
        response = manager.request("POST", url, body=sent(stream=True), preload_content=False)
        next(response.stream())
        getattr(response, leave)()
        counted(session, cancelled=1)
        response.close()


def test_urllib3_chunks_are_left_early(session: Session, mock: ScriptedEndpoint, url: str):
    mock.reply(stream("one ", Gate(), "two"))
    with urllib3.PoolManager() as manager:
        response = manager.request("POST", url, body=sent(stream=True), preload_content=False)
        for _ in response.stream():
            break
        counted(session, cancelled=1)
        mock.wait_for(disconnects=1)


def test_urllib3_takes_a_body_of_text(session: Session, mock: ScriptedEndpoint, url: str):
    with urllib3.PoolManager() as manager:
        assert manager.request("POST", url, body=json.dumps(chat_body("ä"))).status == 200
    assert mock.requests[0].prompt == "ä"
    counted(session, completed=1)


@pytest.mark.parametrize("preload", [True, False])
def test_urllib3_last_words_can_be_read(session: Session, mock: ScriptedEndpoint, url: str, preload: bool):
    mock.always(error(429, "slow down", code="insufficient_quota"))
    with urllib3.PoolManager() as manager:
        response = manager.request("POST", url, body=sent(), preload_content=preload)
        assert json.loads(response.data if preload else response.read())["error"]["message"] == "slow down"
        assert (response.status, response.headers["X-Should-Retry"]) == (429, "false")


# ----------------------------------------------------------------------------------------------------------- requests


def test_requests_reads_lines_and_leaves_early(session: Session, mock: ScriptedEndpoint, url: str):
    mock.reply(stream("one ", Gate(), "two"))
    with requests.post(url, json=chat_body(stream=True), stream=True, timeout=30) as response:
        assert next(response.iter_lines()).startswith(b"data: ")
    counted(session, cancelled=1)
    mock.wait_for(disconnects=1)


def test_requests_raw_is_read_as_it_was_sent(session: Session, mock: ScriptedEndpoint, url: str):
    mock.reply(packed())
    with requests.post(url, json=chat_body(), stream=True, timeout=30) as response:
        assert response.raw.read() == PACKED
    counted(session, completed=1, failed=0, tokens=TOKENS)


def test_requests_does_not_go_after_a_redirect_when_told_so(session: Session, mock: ScriptedEndpoint, url: str):
    mock.reply(error(307).with_headers(location="/v1/chat/completions/"))
    response = requests.post(url, json=chat_body(), timeout=30, allow_redirects=False)
    assert (response.status_code, mock.arrivals) == (307, 1)
    counted(session, submitted=1)


@pytest.mark.parametrize("status", [302, 307])
def test_requests_goes_to_another_host_by_itself(session: Session, mock: ScriptedEndpoint, url: str, status: int):
    with ScriptedEndpoint() as other:
        mock.reply(error(status).with_headers(location=f"{other.base_url}/chat/completions"))
        response = requests.post(url, json=chat_body(), timeout=30)
        assert (response.status_code, len(response.history), other.arrivals) == (200, 1, 1)
    counted(session, submitted=1)


def test_requests_last_answer_of_too_many_redirects_is_its_own_affair(
    session: Session, mock: ScriptedEndpoint, url: str
):
    mock.always(error(307).with_headers(location="/v1/chat/completions/"))
    with requests.Session() as client:
        client.max_redirects = 1
        with pytest.raises(requests.TooManyRedirects):
            client.post(url, json=chat_body(), timeout=30)
    settled(session)


class FromStock(requests.adapters.HTTPAdapter):
    """Answers without urllib3, as adapters for tests do; it calls its base all the same."""

    def build_response(self, req: Any, resp: Any) -> requests.Response:
        response = requests.Response()
        response.status_code, response.raw = 200, io.BytesIO(resp.read())
        return response


def test_requests_adapter_with_bodies_of_its_own_is_left_alone(session: Session, mock: ScriptedEndpoint, url: str):
    with requests.Session() as client:
        client.mount("http://", FromStock())
        assert json.loads(client.post(url, json=chat_body(), timeout=30).content)["choices"]
    counted(session, submitted=1)


# ------------------------------------------------------------------------------------------------------------ aiohttp

Aiohttp = Callable[[aiohttp.ClientResponse], Awaitable[bytes]]


async def _joined(pieces: Any) -> bytes:
    return b"".join([piece if isinstance(piece, bytes) else piece[0] async for piece in pieces])


async def _until_empty(take: Callable[[], Awaitable[bytes]]) -> bytes:
    taken = b""
    while piece := await take():
        taken += piece
    return taken


async def _exactly(response: aiohttp.ClientResponse) -> bytes:
    return await response.content.readexactly(len(PLAIN))


async def _nowait(response: aiohttp.ClientResponse) -> bytes:
    await response.content.wait_eof()
    return response.content.read_nowait()


AIOHTTP: dict[str, Aiohttp] = {
    "read": lambda response: response.read(),
    "content.read": lambda response: response.content.read(),
    "content.read in parts": lambda response: _until_empty(lambda: response.content.read(7)),
    "readany": lambda response: _until_empty(response.content.readany),
    "readline": lambda response: _until_empty(response.content.readline),
    "readuntil": lambda response: _until_empty(lambda: response.content.readuntil(b"}")),
    "lines": lambda response: _joined(response.content),
    "iter_any": lambda response: _joined(response.content.iter_any()),
    "iter_chunked": lambda response: _joined(response.content.iter_chunked(7)),
    "iter_chunks": lambda response: _joined(response.content.iter_chunks()),
    "readexactly": _exactly,
    "read_nowait": _nowait,
}


@pytest.mark.parametrize("way", AIOHTTP)
def test_aiohttp_is_read_in_any_way(session: Session, mock: ScriptedEndpoint, url: str, way: str):
    mock.reply(packed())

    async def main() -> None:
        async with aiohttp.ClientSession() as client:
            response = await client.post(url, json=chat_body())
            assert isinstance(response.content, aiohttp.StreamReader)
            assert await AIOHTTP[way](response) == PLAIN
            counted(session, completed=1, failed=0, tokens=TOKENS)
            assert response.content.at_eof()

    run(main())


def test_aiohttp_bytes_as_they_were_sent(session: Session, mock: ScriptedEndpoint, url: str):
    async def main() -> None:
        for of_session, of_call in ((False, None), (True, False)):
            mock.reply(packed())
            async with (
                aiohttp.ClientSession(auto_decompress=of_session) as client,
                client.post(url, json=chat_body(), auto_decompress=of_call) as response,
            ):
                assert await response.read() == PACKED
        counted(session, completed=2, failed=0, tokens=2 * TOKENS)

    run(main())


def test_aiohttp_frees_the_slot_when_the_last_byte_is_here(session: Session, mock: ScriptedEndpoint, url: str):
    mock.reply(packed(), events())

    async def main() -> None:
        for number in range(2):
            async with aiohttp.ClientSession() as client:
                response = await client.post(url, json=chat_body(stream=number == 1))
                assert len(await response.content.read(3)) == 3
                await response.content.wait_eof()
                counted(session, completed=number + 1, failed=0, tokens=TOKENS * (number + 1))
                assert len(await response.read()) > 3

    run(main())


def test_aiohttp_is_left_early(session: Session, mock: ScriptedEndpoint, url: str):
    async def main() -> None:
        async with aiohttp.ClientSession() as client:
            for _ in range(2):
                mock.reply(stream("one ", Gate(), "two"))
                async with client.post(url, json=chat_body(stream=True)) as response:
                    async for _ in response.content:
                        break
            await mock.reached(disconnects=2)
        counted(session, cancelled=2)

    run(main())


def test_aiohttp_reading_is_cancelled(session: Session, mock: ScriptedEndpoint, url: str):
    mock.reply(stream("one ", Gate(), "two"))

    async def main() -> None:
        async with aiohttp.ClientSession() as client, client.post(url, json=chat_body(stream=True)) as response:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await response.read()
        counted(session, cancelled=1)

    run(main())


@pytest.mark.parametrize(
    "settings",
    [
        {"json": chat_body("ä")},
        {"data": json.dumps(chat_body("ä"))},
        {"data": json.dumps(chat_body("ä")).encode()},
        {"data": bytearray(json.dumps(chat_body("ä")).encode())},
    ],
    ids=["json", "text", "bytes", "bytearray"],
)
def test_aiohttp_sends_each_kind_of_body_again(
    session: Session, mock: ScriptedEndpoint, url: str, settings: dict[str, Any]
):
    mock.reply(error(429), chat("at last"))

    async def main() -> None:
        async with aiohttp.ClientSession() as client, client.post(url, **settings) as response:
            assert response.status == 200

    run(main())
    assert [request.prompt for request in mock.requests] == ["ä", "ä"]
    counted(session, submitted=1, retries=1)


def test_aiohttp_form_is_sent_once(session: Session, mock: ScriptedEndpoint, url: str):
    mock.reply(error(429))

    async def main() -> None:
        form = aiohttp.FormData({"model": "m"})
        async with aiohttp.ClientSession() as client, client.post(url, data=form) as response:
            assert (response.status, (await response.json())["error"]["message"]) == (429, "Too many requests")

    run(main())
    assert mock.arrivals == 1
    counted(session, submitted=1)


def test_aiohttp_base_url_default_headers_and_serialiser_hold(session: Session, mock: ScriptedEndpoint):
    def dumps(content: Any) -> str:
        return json.dumps({**content, "model": "mine"})

    async def main() -> None:
        async with (
            aiohttp.ClientSession(
                mock.base_url.removesuffix("/v1"), headers={"x-mine": "1"}, json_serialize=dumps
            ) as client,
            client.post("/v1/chat/completions", json=chat_body()) as response,
        ):
            assert response.status == 200

    run(main())
    assert (mock.requests[0].headers["x-mine"], mock.requests[0].json["model"]) == ("1", "mine")
    counted(session, submitted=1)


async def raising(response: aiohttp.ClientResponse) -> None:
    raise LookupError(response.status)


@pytest.mark.parametrize(
    ("of_session", "of_call", "expected"),
    [
        (False, True, aiohttp.ClientResponseError),
        (True, None, aiohttp.ClientResponseError),
        (raising, None, LookupError),
        (True, False, None),
        (False, None, None),
    ],
)
@pytest.mark.parametrize("status", [400, 429])
def test_aiohttp_raises_for_a_status_as_it_was_told(  # noqa: PLR0917 - pytest hands them over by name
    session: Session, mock: ScriptedEndpoint, url: str, of_session: Any, of_call: Any, expected: Any, status: int
):
    mock.always(error(status, "no"))

    async def main() -> None:
        async with aiohttp.ClientSession(raise_for_status=of_session) as client:
            if expected is None:
                async with client.post(url, json=chat_body(), raise_for_status=of_call) as response:
                    assert response.status == status
            else:
                with pytest.raises(expected, match=str(status)):
                    await client.post(url, json=chat_body(), raise_for_status=of_call)

    run(main())
    settled(session)
    assert mock.arrivals == (1 if status == 400 else session.settings.rules.backpressure.retries + 1)


def test_aiohttp_refusal_of_the_queue_is_read_like_any_answer(queue: Callable[..., Session], url: str):
    session = queue(1, queue=0)
    session.guard.switch("route")
    session.pause()

    async def main() -> None:
        async with aiohttp.ClientSession() as client, client.post(url, json=chat_body()) as response:
            assert isinstance(response, aiohttp.ClientResponse)
            assert (response.status, response.reason, response.ok) == (429, "Too Many Requests", False)
            assert response.headers["X-Fairq-Reason"] == "queue_full"
            assert str(response.url) == url
            assert (response.method, response.request_info.method, response.history) == ("POST", "POST", ())
            assert (await response.json())["error"]["code"] == "queue_full"
            assert "queue_full" in await response.text()
            assert "429" in repr(response)
        async with aiohttp.ClientSession() as client, client.post(url, json=chat_body()) as response:
            assert b"queue_full" in await response.content.read()

    run(main())


def test_aiohttp_refuses_what_is_no_url_by_itself(session: Session):
    async def main() -> None:
        async with aiohttp.ClientSession() as client:
            with pytest.raises(aiohttp.InvalidURL):
                await client.post("http://:/", json={})
            with pytest.raises(TypeError):
                await client.post(7, json={})

    run(main())
    assert session.guard.seen() == ()


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_httpx_goes_after_so_many_redirects_and_the_next_one_is_its_clients(
    session: Session, mock: ScriptedEndpoint, url: str, library: str
):
    mock.always(error(307).with_headers(location="/v1/chat/completions/"))
    module = __import__(library)

    with module.Client() as client:
        with pytest.raises(module.TooManyRedirects):
            client.post(url, json=chat_body(), follow_redirects=True)
        sent = mock.arrivals
        assert client.post(url, json=chat_body(), follow_redirects=False).status_code == 307
        assert mock.arrivals == sent + 1

    async def main() -> None:
        async with module.AsyncClient(follow_redirects=True, max_redirects=0) as client:
            with pytest.raises(module.TooManyRedirects):
                await client.post(url, json=chat_body())

    run(main())
    assert mock.arrivals == sent + 1 + 6, "one, and five hops that count as none for the client"
    settled(session)


# -------------------------------------------------------------------------------------------------------- other loops


def test_a_loop_that_is_not_asyncios_is_counted_as_out_of_reach(session: Session, mock: ScriptedEndpoint, url: str):
    transport = httpx.AsyncHTTPTransport()
    request = httpx.Request("POST", url, json=chat_body())
    coroutine = transport.handle_async_request(request)
    with pytest.raises(Exception, match="async"):  # what httpx says where no loop runs
        coroutine.send(None)
    assert [(seen.sighting.fate, seen.calls) for seen in session.guard.seen()] == [("out of reach", 1)]
    assert session.snapshot().submitted == 0
