"""The public API as its users write it. Type-checked, never run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import assert_type

import httpx
import openai

import fairq_ipy as fairq
from fairq_ipy import errors


def policies() -> None:
    assert_type(fairq.load(), fairq.Session)
    fairq.load("policies/team.yaml")
    fairq.load(Path("policies") / "team.yaml")
    assert_type(fairq.session(), fairq.Session)


def clients() -> None:
    session = fairq.session()
    openai.OpenAI(
        base_url=session.base_url(),
        api_key=session.api_key() or "none",
        http_client=fairq.http_client(tenant="logs", priority="batch", timeout=30.0),
    )
    openai.AsyncOpenAI(http_client=fairq.async_http_client(priority=3, library="httpx2"))
    plain: httpx.Client = fairq.http_client(library="httpx")
    plain.close()


def asking() -> str:
    answer = fairq.ask("Why?", tenant="logs", priority=1, max_tokens=20, temperature=0.2, timeout=30.0)
    assert_type(answer, fairq.Answer)
    assert_type(answer.text, str)
    assert_type(answer.wait_s, float)
    assert_type(answer.service_s, float)
    assert_type(answer.ticket, int)
    assert_type(answer.usage.output_tokens, int)
    assert_type(answer.usage.exact, bool)
    fairq.ask([{"role": "user", "content": "Why?"}], on_text=print)
    return f"{answer}"


async def asking_later() -> None:
    assert_type(await fairq.aask("Why?", system="Be brief."), fairq.Answer)


def summarise(path: str, *, lines: int) -> str:
    return f"{path}: {lines}"


async def fetch(number: int) -> bytes:
    return b"" * number


async def work_of_ones_own() -> None:
    assert_type(await fairq.submit(summarise, "a.log", lines=3, tenant="logs", priority=1), str)
    assert_type(await fairq.submit(fetch, 3), bytes)
    assert_type(fairq.run(summarise, "a.log", lines=3), str)
    assert_type(fairq.run(fetch, 3), bytes)
    with fairq.permit(cost=1_800, messages=12) as permit:
        print(permit.waited)
    async with fairq.permit(tenant="logs"):
        pass


@fairq.governed
def bare(number: int) -> str:
    return str(number)


@fairq.governed(tenant="logs", priority="batch")
async def named(number: int) -> str:
    return str(number)


def in_threads(pool: ThreadPoolExecutor) -> None:
    future = pool.submit(fairq.carry(summarise), "a.log", lines=3)
    assert_type(future.result(), str)
    assert_type(fairq.carry(summarise)("a.log", lines=3), str)


@fairq.tenant("logs")
def tagged(number: int) -> str:
    return str(number)


async def decorated() -> None:
    assert_type(bare(1), str)
    assert_type(await named(1), str)
    assert_type(tagged(1), str)
    with fairq.tenant("agent-c", priority="batch"):
        bare(2)


def looking() -> int:
    snapshot = fairq.snapshot()
    assert_type(snapshot, fairq.Snapshot)
    assert_type(snapshot.held_until, float | None)
    assert_type(snapshot.tenants["logs"].tokens, int)
    fairq.pause("logs")
    fairq.resume("logs")
    fairq.pause()
    fairq.resume()
    return snapshot.queued + snapshot.in_flight + snapshot.cap


def refusals() -> tuple[str, float | None]:
    try:
        fairq.ask("Why?")
    except fairq.QueueFullError as refusal:
        assert_type(refusal.depth, int | None)
        return refusal.reason, refusal.retry_after
    except fairq.PolicyError as broken:
        return "; ".join(str(finding) for finding in broken.findings), None
    except errors.Refused as refusal:
        return refusal.reason, refusal.retry_after
    return "", None
