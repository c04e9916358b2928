"""How the five developers call the endpoint: each by itself with retries, or all through one queue.

Both sides run the same code up to the client that they hand a request to. A stock client retries as the OpenAI SDK
does: twice, after 0.5 s and 1 s, each shortened by up to a quarter at random. A governed one sends once, and waits.
"""

from __future__ import annotations

import json
import random
import threading
from typing import Final, NamedTuple, Protocol, get_args

import httpx

from fairq_ipy import policy
from fairq_ipy.demo.workload import DEVELOPERS, Job, Kind
from fairq_ipy.session import Session
from fairq_ipy.transport.clients import http_client

__all__ = ["Answer", "Calls", "Governed", "Stock", "ask", "policy_text"]

TIMEOUT: Final = 60.0
_RETRIES: Final = 2
_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 8.0
_JITTER: Final = 0.25
_RETRIED: Final = frozenset({408, 409, 429})


class Answer(NamedTuple):
    """What a client has in the end: the text, or ``None`` when it gave up, and how often it sent."""

    text: str | None
    sent: int


class Calls(Protocol):
    """The clients of one run."""

    def greet(self) -> None:
        """Send one small question through each client, one after the other.

        The first call of a process loads code and opens connections; neither is what a run measures.
        """

    def call(self, job: Job) -> Answer:
        """Do `job`; called on many threads at once."""

    def close(self) -> None:
        """Let go of everything; whoever is in `call` gives up soon."""


class Stock:
    """Five clients that know nothing of each other, and retry as a stock SDK does.

    Args:
        base_url: of the endpoint.
        scale: factor on the waits before a retry; 1 is the SDK's own.
        seed: of the waits' jitter.
    """

    def __init__(self, base_url: str, *, scale: float, seed: int) -> None:
        self._base_url = base_url
        self._scale = scale
        self._chance = random.Random(seed)
        self._stop = threading.Event()
        self._clients = {name: httpx.Client(timeout=TIMEOUT, trust_env=False) for name in DEVELOPERS}

    def greet(self) -> None:
        """Open the connections."""
        for client in self._clients.values():
            _greet(client, self._base_url)

    def call(self, job: Job) -> Answer:
        """Send, and on a refusal send again up to two times."""
        client = self._clients[job.developer]
        for sent in range(1, _RETRIES + 2):
            status, text = ask(client, self._base_url, job)
            if text is not None:
                return Answer(text, sent)
            retriable = status is None or status in _RETRIED or status >= 500  # noqa: PLR2004 - HTTP
            if not retriable or sent > _RETRIES or self._stop.wait(self._delay(sent)):
                return Answer(None, sent)
        raise AssertionError("unreachable: the last round returns")

    def close(self) -> None:
        """Close the clients, and end the waits before a retry."""
        self._stop.set()
        for client in self._clients.values():
            client.close()

    def _delay(self, sent: int) -> float:
        delay: float = min(_FIRST_DELAY * 2 ** (sent - 1), _LONGEST_DELAY)
        return delay * (1 - _JITTER * self._chance.random()) * self._scale


class Governed:
    """The same five clients, each made by ``fairq.http_client(tenant=..., priority=...)``, on one queue.

    The queue is the run's own: a notebook that plays the demo keeps its policy, and its calls.

    Args:
        base_url: of the endpoint.
        slots: what the policy says the endpoint takes at once.
    """

    def __init__(self, base_url: str, *, slots: int) -> None:
        self._base_url = base_url
        self._session = Session(policy.loads(policy_text(base_url, slots), "the demo's policy"), watch=None)
        kinds: tuple[Kind, ...] = get_args(Kind)
        self._clients = {
            (name, kind): http_client(self._session, name, kind, "httpx", timeout=TIMEOUT, trust_env=False)
            for name in DEVELOPERS
            for kind in kinds
        }

    def greet(self) -> None:
        """Open the connections, and have the queue and its transports loaded."""
        for client in self._clients.values():
            _greet(client, self._base_url)

    def call(self, job: Job) -> Answer:
        """Send once; the queue says when."""
        _, text = ask(self._clients[job.developer, job.kind], self._base_url, job)
        return Answer(text, 1)

    def close(self) -> None:
        """Close the session, which refuses whoever still waits, and the clients."""
        self._session.close()
        for client in self._clients.values():
            client.close()


def policy_text(base_url: str, slots: int) -> str:
    """Return the policy of the governed run.

    Neither a reserve nor headroom: both keep a slot idle for somebody who may come, which is right beside a runaway or
    for a person who waits, and costs makespan. This run is about doing the work in the least time with nobody refused;
    that reviews go first costs nothing.
    """
    return f"""\
version: 1
endpoint:
  base_url: {base_url}
limits:
  concurrency: {slots}
  queue: 200
levels:
  interactive: {{level: 1}}
  batch: {{level: 2}}
headroom_for: 0s
"""


def ask(client: httpx.Client, base_url: str, job: Job) -> tuple[int | None, str | None]:
    """Send `job` once: a review as a stream, since somebody reads along, a refactoring whole.

    Returns:
        The status, ``None`` when the connection failed, and the answer's text, ``None`` when there is none.
    """
    body = {"model": "demo-small", "messages": [{"role": "user", "content": job.prompt}]}
    url = f"{base_url}/chat/completions"
    try:
        if job.kind == "batch":
            answer = client.post(url, json=body)
            return answer.status_code, _whole(answer) if answer.is_success else None
        with client.stream("POST", url, json={**body, "stream": True}) as answer:
            return answer.status_code, _streamed(answer) if answer.is_success else None
    except httpx.HTTPError:
        return None, None


def _greet(client: httpx.Client, base_url: str) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    client.post(f"{base_url}/chat/completions", json=body).raise_for_status()


def _whole(answer: httpx.Response) -> str:
    content = answer.json()
    text: str = content["choices"][0]["message"]["content"]
    return text


def _streamed(answer: httpx.Response) -> str:
    texts: list[str] = []
    for line in answer.read().decode().split("\n"):
        name, _, data = line.partition(": ")
        if name == "data" and data != "[DONE]":
            texts += [choice["delta"].get("content") or "" for choice in json.loads(data)["choices"]]
    return "".join(texts)
