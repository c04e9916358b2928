"""What a governed request costs beside a plain one: real HTTP to an endpoint in a process of its own, on loopback."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx

import fairq_ipy as fairq
from benchmarks.measure import PROCESS_CPU, WALL, Scale, collector_at_rest, interleaved, ratio, spread
from benchmarks.rows import Line, Row, Target

SERVER = """
import sys
from fairq_ipy.testing import ScriptedEndpoint
with ScriptedEndpoint() as endpoint:
    print(endpoint.base_url, flush=True)
    sys.stdin.read()
"""

POLICY = """
version: 1
endpoint: {{base_url: "{url}", model: m}}
limits: {{concurrency: 2}}
"""

QUESTION = {"model": "m", "messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 64}
STREAMED = QUESTION | {"stream": True}

Clock = Callable[[], float]


@contextmanager
def endpoint() -> Iterator[str]:
    """Serve in another process, load a policy for it, and yield its address."""
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if server.stdout is None:
            raise RuntimeError("the endpoint's output is not a pipe")
        url = server.stdout.readline().strip()
        with tempfile.TemporaryDirectory() as folder:
            policy = Path(folder) / "policy.yaml"
            policy.write_text(POLICY.format(url=url), encoding="utf-8")
            fairq.load(policy)
            try:
                yield url
            finally:
                fairq.session().close()
    finally:
        server.communicate()


def requests(scale: Scale) -> Iterator[Line]:
    """Yield what a request takes, and what it costs the process."""
    count = scale.of(200, 60)
    with endpoint() as url:
        governed, plain = fairq.http_client(tenant="bench"), httpx.Client()
        with governed, plain:
            for body, what in ((QUESTION, "blocking request"), (STREAMED, "blocking stream, read to its end")):
                yield from _compared(
                    what,
                    {
                        name: lambda clock, client=client, body=body: _blocking(client, url, body, count, clock)  # type: ignore[misc]
                        for name, client in (("governed", governed), ("plain", plain))
                    },
                    scale,
                    targets=body is QUESTION,
                )
        yield from _compared(
            "awaited request",
            {
                "governed": lambda clock: asyncio.run(
                    _awaiting(lambda: fairq.async_http_client(tenant="bench"), url, count, clock)
                ),
                "plain": lambda clock: asyncio.run(_awaiting(httpx.AsyncClient, url, count, clock)),
            },
            scale,
            targets=True,
        )


def _compared(what: str, sides: dict[str, Callable[[Clock], float]], scale: Scale, *, targets: bool) -> Iterator[Line]:
    for clock, name in ((time.perf_counter, WALL), (time.process_time, PROCESS_CPU)):
        timed = {side: lambda measure=measure, clock=clock: measure(clock) for side, measure in sides.items()}
        taken = interleaved(timed, scale.repetitions)
        governed, plain = taken["governed"], taken["plain"]
        yield Line.of(
            f"a governed {what} against a plain one",
            ratio(governed, plain),
            clock=name,
            target=Target(1.3) if targets and name == WALL else None,
            detail=f"{median(governed) * 1e3:.2f} ms / {median(plain) * 1e3:.2f} ms",
        )
        if name == WALL:
            added = [(mine - other) * 1e3 for mine, other in zip(governed, plain, strict=True)]
            target = Target(1.0) if targets else None
            yield Line.of(f"added to a {what}", spread(added), unit="ms", clock=WALL, target=target)


def _blocking(client: httpx.Client, url: str, body: dict[str, Any], count: int, clock: Clock) -> float:
    with collector_at_rest():
        began = clock()
        for _ in range(count):
            client.post(f"{url}/chat/completions", json=body).raise_for_status()
        return (clock() - began) / count


async def _awaiting(make: Callable[[], httpx.AsyncClient], url: str, count: int, clock: Clock) -> float:
    async with make() as client:
        for _ in range(3):
            await client.post(f"{url}/chat/completions", json=QUESTION)
        with collector_at_rest():
            began = clock()
            for _ in range(count):
                (await client.post(f"{url}/chat/completions", json=QUESTION)).raise_for_status()
            return (clock() - began) / count


ROWS = (Row("http", "A governed HTTP request", requests),)
