"""What the guard costs calls that are none of its business: those that go to another host than the endpoint's.

The guard adds a few microseconds to a call of half a millisecond, less than two runs of the same call differ by. So its
part is measured by itself: each method that it puts around a library's own is called as that library calls it, with
nothing behind it. The ratio is that of a call with this part to one without, real HTTP on loopback.
"""

from __future__ import annotations

import asyncio
import importlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import fairq_ipy as fairq
from benchmarks import peers
from benchmarks.http_cost import QUESTION, endpoint
from benchmarks.measure import PROCESS_CPU, Scale, collector_at_rest, ratio
from benchmarks.rows import Line, Row, Target, micro, missing

ELSEWHERE = """
version: 1
endpoint: {base_url: "http://llm.example/v1"}
guard: off
"""

PASSES = 5_000

Methods: TypeAlias = Mapping[str, Callable[..., Any]]
"""What the guard puts around a library's methods, with nothing behind it, by ``Class.method``."""


def other_hosts(scale: Scale) -> Iterator[Line]:
    """Yield what a call to another host costs with the guard on, against the same call with the guard off."""
    calls = scale.of(100, 40)
    with endpoint() as url, tempfile.TemporaryDirectory() as folder:
        fairq.session().close()  # the endpoint of the policy is another host than the one that is called
        policy = Path(folder) / "policy.yaml"
        policy.write_text(ELSEWHERE, encoding="utf-8")
        fairq.load(policy)
        called = f"{url}/chat/completions"
        for library, plain, guards in (
            ("httpx", _httpx, _guards_of_httpx),
            ("requests", _requests, _guards_of_requests),
            ("aiohttp", _aiohttp, _guards_of_aiohttp),
        ):
            what = f"a call to another host by {library}, guard on against off"
            if not peers.installed(library):
                yield missing(what)
                continue
            taken: dict[str, list[float]] = {"plain": [], "guard": []}
            for repetition in range(scale.repetitions + 1):
                with collector_at_rest():
                    fairq.session().guard.switch("off")
                    alone = plain(called, calls)
                    fairq.session().guard.switch("route")
                    own = guards(called)
                if repetition:
                    taken["plain"].append(alone)
                    taken["guard"].append(alone + own)
            added = median(mine - other for mine, other in zip(taken["guard"], taken["plain"], strict=True))
            yield Line.of(
                what,
                ratio(taken["guard"], taken["plain"]),
                clock=PROCESS_CPU,
                target=Target(1.02),
                detail=f"{micro(added)} added to {micro(median(taken['plain']))}",
            )


# ------------------------------------------------------------------------------------------------------ whole calls


def _timed(post: Callable[[], object], calls: int) -> float:
    """Return the median CPU time of a call."""
    taken = []
    for _ in range(calls):
        began = time.process_time()
        post()
        taken.append(time.process_time() - began)
    return median(taken)


def _httpx(url: str, calls: int) -> float:
    httpx = importlib.import_module("httpx")
    with httpx.Client() as client:
        return _timed(lambda: client.post(url, json=QUESTION).raise_for_status(), calls)


def _requests(url: str, calls: int) -> float:
    requests = importlib.import_module("requests")
    with requests.Session() as client:
        return _timed(lambda: client.post(url, json=QUESTION, timeout=30).raise_for_status(), calls)


def _aiohttp(url: str, calls: int) -> float:
    aiohttp = importlib.import_module("aiohttp")

    async def main() -> float:
        taken = []
        async with aiohttp.ClientSession() as client:
            for _ in range(calls):
                began = time.process_time()
                async with client.post(url, json=QUESTION) as response:
                    await response.read()
                taken.append(time.process_time() - began)
        return median(taken)

    return asyncio.run(main())


# ----------------------------------------------------------------------------------------------------- the guard's own


def _methods(family: str, module: str) -> Methods:
    """Return the guard's methods for a library."""
    seams = importlib.import_module(f"fairq_ipy.transport.guard.{family}").seams
    watch = fairq.session().guard._watch
    found = seams(watch, importlib.import_module(module))
    return {f"{owner.__name__}.{name}": wrap(lambda *_args, **_settings: None) for owner, name, wrap in found}


def _one(passes: Callable[[], object]) -> float:
    """Return the CPU time of one pass through the guard's methods."""
    began = time.process_time()
    for _ in range(PASSES):
        passes()
    return (time.process_time() - began) / PASSES


def _guards_of_httpx(url: str) -> float:
    httpx, methods = importlib.import_module("httpx"), _methods("httpx_family", "httpx")
    send, handle = methods["Client.send"], methods["HTTPTransport.handle_request"]
    request = httpx.Request("POST", url)
    return _one(lambda: (send(None, request, stream=False), handle(None, request)))


def _guards_of_requests(url: str) -> float:
    requests, urllib3 = importlib.import_module("requests"), importlib.import_module("urllib3")
    methods = {
        **_methods("requests_adapters", "requests"),
        **_methods("urllib3_pools", "urllib3"),
        **_methods("bare", "http.client"),
    }
    session, adapter = methods["Session.send"], methods["HTTPAdapter.send"]
    pool, begin = methods["HTTPConnectionPool.urlopen"], methods["HTTPConnection.putrequest"]
    request = requests.Request("POST", url).prepare()
    connections = urllib3.connection_from_url(url)
    connection = connections.ConnectionCls(connections.host, connections.port)
    path = request.path_url
    return _one(
        lambda: (
            session(None, request, stream=False),
            adapter(None, request, stream=False),
            pool(connections, "POST", path, body=None, headers={}),
            begin(connection, "POST", path),
        )
    )


def _guards_of_aiohttp(url: str) -> float:
    aiohttp = importlib.import_module("aiohttp")

    async def main() -> float:
        request = _methods("aiohttp_sessions", "aiohttp")["ClientSession._request"]
        async with aiohttp.ClientSession() as client:
            return _one(lambda: request(client, "POST", url, json=QUESTION))

    return asyncio.run(main())


ROWS = (Row("guard", "The guard beside calls to other hosts", other_hosts),)
