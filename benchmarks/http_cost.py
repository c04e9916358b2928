"""What a governed request costs beside a plain one: real HTTP to an endpoint in a process of its own, on loopback."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx

import fairq_ipy as fairq
from benchmarks.measure import PROCESS_CPU, WALL, Scale, Turns, collector_at_rest, ratio, spread
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
guard: off
"""

QUESTION = {"model": "m", "messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 64}
STREAMED = QUESTION | {"stream": True}


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
    count = scale.of(60, 25)
    with endpoint() as url:
        blocking = {"governed": fairq.http_client(tenant="bench", library="httpx"), "plain": httpx.Client()}
        yield from _compared("request", _blocking(blocking, url, QUESTION, count, scale), targets=True)
        yield from _compared("stream, read to its end", _blocking(blocking, url, STREAMED, count, scale), targets=False)
        for client in blocking.values():
            client.close()
        yield from _compared("awaited request", asyncio.run(_awaiting(url, count, scale)), targets=True)


def _compared(what: str, turns: Turns, *, targets: bool) -> Iterator[Line]:
    governed, plain = turns.wall["governed"], turns.wall["plain"]
    yield Line.of(
        f"a governed {what} against a plain one",
        ratio(governed, plain),
        clock=WALL,
        target=Target(1.3) if targets else None,
        detail=f"{median(governed) * 1e3:.2f} ms / {median(plain) * 1e3:.2f} ms",
    )
    added = [(mine - other) * 1e3 for mine, other in zip(governed, plain, strict=True)]
    yield Line.of(f"added to a {what}", spread(added), unit="ms", clock=WALL, target=Target(1.0) if targets else None)
    governed, plain = turns.cpu["governed"], turns.cpu["plain"]
    yield Line.of(
        f"the same in CPU, {what}",
        ratio(governed, plain),
        clock=PROCESS_CPU,
        detail=f"{median(governed) * 1e3:.2f} ms / {median(plain) * 1e3:.2f} ms",
    )


def _blocking(clients: dict[str, httpx.Client], url: str, body: dict[str, Any], count: int, scale: Scale) -> Turns:
    turns = Turns(clients)
    for repetition in range(scale.repetitions + 1):
        with collector_at_rest():
            for _ in range(count):
                for name, client in clients.items():
                    with turns.call(name):
                        client.post(f"{url}/chat/completions", json=body).raise_for_status()
        turns.repeated() if repetition else turns.forget()
    return turns


async def _awaiting(url: str, count: int, scale: Scale) -> Turns:
    clients = {"governed": fairq.async_http_client(tenant="bench", library="httpx"), "plain": httpx.AsyncClient()}
    turns = Turns(clients)
    for repetition in range(scale.repetitions + 1):
        with collector_at_rest():
            for _ in range(count):
                for name, client in clients.items():
                    with turns.call(name):
                        (await client.post(f"{url}/chat/completions", json=QUESTION)).raise_for_status()
        turns.repeated() if repetition else turns.forget()
    for client in clients.values():
        await client.aclose()
    return turns


ROWS = (Row("http", "A governed HTTP request", requests),)
