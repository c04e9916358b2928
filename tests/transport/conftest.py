"""A real endpoint, a real queue in front of it, and after every test the look whether both are clean."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import pickle
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fairq_ipy import policy
from fairq_ipy.core.messages import Snapshot
from fairq_ipy.core.model import Backpressure, Limits
from fairq_ipy.errors import EndpointError
from fairq_ipy.session import Session
from fairq_ipy.testing import ScriptedEndpoint
from fairq_ipy.transport import chat, clients
from fairq_ipy.transport.chat import Answer, aask, ask

CONTEXT = ssl.create_default_context()
"""Certificates are read once for all tests: that takes longer than most of them."""

QUICK = Backpressure(base=0.02, max_hold=5.0)


def chat_body(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


def settled(session: Session, timeout: float = 5.0) -> Snapshot:
    """Return the books once nothing runs or waits. What a caller left behind is cleared up on other threads."""
    end = time.monotonic() + timeout
    while True:
        now = session.snapshot()
        if not now.in_flight and not now.queued:
            return now
        assert time.monotonic() < end, f"still {now.in_flight} in flight and {now.queued} queued"
        time.sleep(0.002)


@pytest.fixture
def mock() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint() as endpoint:
        yield endpoint


@pytest.fixture
def queue(mock: ScriptedEndpoint) -> Iterator[Callable[..., Session]]:
    """Make sessions in front of the mock; arguments are those of `Limits`, of the endpoint and of the policy."""
    made: list[tuple[Session, int]] = []

    def make(concurrency: int = 2, **options: Any) -> Session:
        settings = policy.builtin()
        of_limits = {name: options.pop(name) for name in list(options) if name in Limits.__slots__}
        of_endpoint = {name: options.pop(name) for name in list(options) if hasattr(settings.endpoint, name)}
        endpoint = replace(settings.endpoint, **{"base_url": mock.base_url, "api_key_env": None, **of_endpoint})
        limits = Limits(**{"concurrency": concurrency, "queue": None, **of_limits})
        rules = replace(settings.rules, **{"limits": limits, "backpressure": QUICK, **options})
        session = Session(replace(settings, endpoint=endpoint, rules=rules, guard="off"), watch=None)
        made.append((session, concurrency))
        return session

    yield make
    for session, concurrency in made:
        if not session.closed:
            settled(session)
            session.keeper.call(lambda core, _now: core.check())
            session.close()
        assert mock.max_in_flight <= concurrency


@pytest.fixture(params=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(queue: Callable[..., Session]) -> Iterator[Callable[..., Any]]:
    """Make sync clients that are closed in the end."""
    with contextlib.ExitStack() as stack:

        def make(session: Session | None = None, **options: Any) -> Any:
            options.setdefault("verify", CONTEXT)
            return stack.enter_context(clients.http_client(session or queue(), **options))

        yield make


@contextlib.asynccontextmanager
async def async_client(session: Session, **options: Any) -> AsyncIterator[Any]:
    async with clients.async_http_client(session, verify=CONTEXT, **options) as made:
        yield made


def run(coroutine: Any) -> Any:
    """Run a coroutine on a loop of its own; what it leaves undone is an error."""
    with asyncio.Runner() as runner:
        result = runner.run(coroutine)
        runner.run(asyncio.sleep(0))  # generators that were dropped half read are closed by the loop
        left = asyncio.all_tasks(runner.get_loop())
        assert not left
        return result


def in_a_task(session: Session, *args: Any, **options: Any) -> Answer:
    return run(aask(session, *args, **options))


@pytest.fixture(params=[ask, in_a_task], ids=["ask", "aask"])
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """Both ways to ask."""
    monkeypatch.setattr(chat, "http_client", partial(clients.http_client, verify=CONTEXT))
    monkeypatch.setattr(chat, "async_http_client", partial(clients.async_http_client, verify=CONTEXT))
    return request.param  # type: ignore[no-any-return]


def failure(asked: Callable[..., Answer], session: Session, *args: Any, **options: Any) -> EndpointError:
    """Return the error that a question ends in, once it is known to survive being copied and sent."""
    with pytest.raises(EndpointError) as caught:
        asked(session, *args or ("hello",), **options)
    problem = caught.value
    for twin in (copy.copy(problem), pickle.loads(pickle.dumps(problem))):
        assert (str(twin), vars(twin)) == (str(problem), vars(problem))
    return problem
