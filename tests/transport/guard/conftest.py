"""Every library as a user uses it, behind one interface: clients that nobody told of a queue."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3

from fairq_ipy.session import Session
from fairq_ipy.testing import ScriptedEndpoint


class Got(NamedTuple):
    """An answer, as a user of the library sees it."""

    status: int
    headers: dict[str, str]
    body: bytes
    kind: type


class Opened(NamedTuple):
    """A stream: its next piece (empty at the end), the ways out."""

    status: int
    next: Callable[[], bytes]
    close: Callable[[], None]

    def rest(self) -> bytes:
        return b"".join(iter(self.next, b""))


class Sender:
    """One client of one library. `post` may be called from many threads at once."""

    library: str
    error: type[Exception]

    def post(self, url: str, body: dict[str, Any], **headers: str) -> Got:
        raise NotImplementedError

    def get(self, url: str) -> int:
        raise NotImplementedError

    def open(self, url: str, body: dict[str, Any]) -> Opened:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Httpx(Sender):
    error = httpx.TransportError

    def __init__(self, module: Any = httpx) -> None:
        self.library, self.error = module.__name__, module.TransportError
        self.client = module.Client(timeout=30, follow_redirects=True)

    def post(self, url: str, body: dict[str, Any], **headers: str) -> Got:
        response = self.client.post(url, json=body, headers=headers)
        return Got(response.status_code, dict(response.headers), response.content, type(response))

    def get(self, url: str) -> int:
        return int(self.client.get(url).status_code)

    def open(self, url: str, body: dict[str, Any]) -> Opened:
        response = self.client.send(self.client.build_request("POST", url, json=body), stream=True)
        pieces = response.iter_bytes()
        return Opened(response.status_code, lambda: next(pieces, b""), response.close)

    def close(self) -> None:
        self.client.close()


class Requests(Sender):
    library, error = "requests", requests.RequestException

    def __init__(self) -> None:
        self.session = requests.Session()

    def post(self, url: str, body: dict[str, Any], **headers: str) -> Got:
        response = self.session.post(url, json=body, headers=headers, timeout=30)
        return Got(response.status_code, _lower(response.headers), response.content, type(response))

    def get(self, url: str) -> int:
        return self.session.get(url, timeout=30).status_code

    def open(self, url: str, body: dict[str, Any]) -> Opened:
        response = self.session.post(url, json=body, stream=True, timeout=30)
        pieces = response.iter_content(None)
        return Opened(response.status_code, lambda: next(pieces, b""), response.close)

    def close(self) -> None:
        self.session.close()


class Urllib3(Sender):
    library, error = "urllib3", urllib3.exceptions.HTTPError

    def __init__(self) -> None:
        self.manager = urllib3.PoolManager(maxsize=8)

    def post(self, url: str, body: dict[str, Any], **headers: str) -> Got:
        sent = {"body": json.dumps(body).encode(), "headers": {"content-type": "application/json", **headers}}
        response = self.manager.request("POST", url, timeout=30, retries=2, **sent)
        return Got(response.status, _lower(response.headers), response.data, urllib3.HTTPResponse)

    def get(self, url: str) -> int:
        return int(self.manager.request("GET", url).status)

    def open(self, url: str, body: dict[str, Any]) -> Opened:
        sent = json.dumps(body).encode()
        response = self.manager.request("POST", url, body=sent, preload_content=False, timeout=30)
        pieces = response.stream()
        return Opened(response.status, lambda: next(pieces, b""), response.close)

    def close(self) -> None:
        self.manager.clear()


class Urllib3Pool(Urllib3):
    """The same without a manager: whoever keeps a pool for one host."""

    def __init__(self) -> None:
        self.pools: dict[str, Any] = {}

    @property
    def manager(self) -> Any:
        return self

    def request(self, method: str, url: str, **settings: Any) -> Any:
        parts = urllib3.util.parse_url(url)
        pool = self.pools.setdefault(str(parts.netloc), urllib3.connection_from_url(url, maxsize=8))
        return pool.request(method, parts.request_uri, **settings)

    def clear(self) -> None:
        for pool in self.pools.values():
            pool.close()


class OnLoop(Sender):
    """A client that awaits, on a loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.do(self.begin())

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.start(coroutine).result(30)

    def post(self, url: str, body: dict[str, Any], **headers: str) -> Got:
        got: Got = self.do(self.apost(url, body, **headers))
        return got

    def get(self, url: str) -> int:
        return int(self.do(self.aget(url)))

    def close(self) -> None:
        self.do(self.end())
        left = [task for task in asyncio.all_tasks(self.loop) if not task.done()]
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
        assert not left

    async def begin(self) -> None:
        raise NotImplementedError

    async def end(self) -> None:
        raise NotImplementedError

    async def apost(self, url: str, body: dict[str, Any], **headers: str) -> Got:
        raise NotImplementedError

    async def aget(self, url: str) -> int:
        raise NotImplementedError


class AsyncHttpx(OnLoop):
    def __init__(self, module: Any = httpx) -> None:
        self.module, self.library, self.error = module, module.__name__, module.TransportError
        super().__init__()

    async def begin(self) -> None:
        self.client = self.module.AsyncClient(timeout=30, follow_redirects=True)

    async def end(self) -> None:
        await self.client.aclose()

    async def apost(self, url: str, body: dict[str, Any], **headers: str) -> Got:
        response = await self.client.post(url, json=body, headers=headers)
        return Got(response.status_code, dict(response.headers), response.content, type(response))

    async def aget(self, url: str) -> int:
        return int((await self.client.get(url)).status_code)

    def open(self, url: str, body: dict[str, Any]) -> Opened:
        request = self.client.build_request("POST", url, json=body)
        response = self.do(self.client.send(request, stream=True))
        pieces = response.aiter_bytes()
        return Opened(response.status_code, lambda: self.do(_next(pieces)), lambda: self.do(response.aclose()))


class Aiohttp(OnLoop):
    library, error = "aiohttp", aiohttp.ClientError

    async def begin(self) -> None:
        self.session = aiohttp.ClientSession()

    async def end(self) -> None:
        await self.session.close()

    async def apost(self, url: str, body: dict[str, Any], **headers: str) -> Got:
        async with self.session.post(url, json=body, headers=headers) as response:
            return Got(response.status, _lower(response.headers), await response.read(), type(response))

    async def aget(self, url: str) -> int:
        async with self.session.get(url) as response:
            return response.status

    def open(self, url: str, body: dict[str, Any]) -> Opened:
        async def begin() -> Any:
            return await self.session.post(url, json=body)

        response = self.do(begin())
        pieces = aiter(response.content.iter_any())

        async def close() -> None:
            response.close()

        return Opened(response.status, lambda: self.do(_next(pieces)), lambda: self.do(close()))


async def _next(pieces: Any) -> bytes:
    return bytes(await anext(pieces, b""))


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


SENDERS: dict[str, Callable[[], Sender]] = {
    "httpx": Httpx,
    "httpx2": lambda: Httpx(httpx2),
    "requests": Requests,
    "urllib3": Urllib3,
    "urllib3-pool": Urllib3Pool,
    "httpx-async": AsyncHttpx,
    "httpx2-async": lambda: AsyncHttpx(httpx2),
    "aiohttp": Aiohttp,
}
ON_LOOPS = ("httpx-async", "httpx2-async", "aiohttp")
ON_THREADS = tuple(name for name in SENDERS if name not in ON_LOOPS)


Guarded = Callable[..., Session]


@pytest.fixture(params=SENDERS)
def sender(request: pytest.FixtureRequest) -> Iterator[Sender]:
    """A client that was made before there was a queue."""
    made = SENDERS[request.param]()
    yield made
    made.close()


@pytest.fixture
def guarded(sender: Sender, queue: Callable[..., Session]) -> Guarded:
    """Make a session that guards, after the client."""

    def make(concurrency: int = 1, guard: Any = "route", **options: Any) -> Session:
        session = queue(concurrency, **options)
        session.guard.switch(guard)
        return session

    return make


@pytest.fixture
def url(mock: ScriptedEndpoint) -> str:
    return f"{mock.base_url}/chat/completions"


@contextlib.contextmanager
def in_threads(function: Callable[[], Any], count: int) -> Iterator[list[Future[Any]]]:
    """Call `function` in so many threads at once, and wait for them in the end."""
    futures: list[Future[Any]] = [Future() for _ in range(count)]

    def work(future: Future[Any]) -> None:
        try:
            future.set_result(function())
        except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)

    threads = [threading.Thread(target=work, args=(future,), daemon=True) for future in futures]
    for thread in threads:
        thread.start()
    yield futures
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
