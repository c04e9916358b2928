"""``%%ask`` beside other calls of the same kernel, on its own loop and in open streams (C06, C07)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairq_ipy.testing import Gate, ScriptedEndpoint, stream


@pytest.fixture
def one_slot(kernel: Any, policy: Path) -> Any:
    policy.write_text(policy.read_text(encoding="utf-8").replace("concurrency: 2", "concurrency: 1"), encoding="utf-8")
    assert "1 call at once" in kernel.run("%fairq reload").shown[0]
    return kernel


def test_a_task_of_the_kernels_loop_does_not_keep_the_slot_from_a_blocking_cell(
    one_slot: Any, mock: ScriptedEndpoint
) -> None:
    half = Gate()
    mock.reply(stream("one ", half, "two"))
    one_slot.run(
        "import asyncio, fairq_ipy as fairq\n"
        "task = asyncio.create_task(fairq.aask('first'))\n"
        "while fairq.snapshot().in_flight == 0: await asyncio.sleep(0.01)"
    )
    mock.wait_for(in_flight=1)
    cell = one_slot.send("%%ask\nsecond")
    one_slot.shows(cell, "waits for a free slot")
    half.open()
    assert one_slot.finish(cell).shown[0] == "second"
    assert one_slot.run("print((await task).text)").stream == "one two\n"


def test_a_stream_that_is_opened_and_never_read_keeps_no_slot(one_slot: Any) -> None:
    forgotten = (
        "import httpx, json, fairq_ipy as fairq\n"
        "client = fairq.http_client(library='httpx')\n"
        "def open_stream(n):\n"
        "    body = {'model': 'm', 'stream': True, 'messages': [{'role': 'user', 'content': f'forgotten {n}'}]}\n"
        "    url = fairq.session().base_url() + '/chat/completions'\n"
        "    return client.send(client.build_request('POST', url, json=body), stream=True)\n"
    )
    assert one_slot.run(f"{forgotten}open_stream(1)").result is not None
    assert one_slot.run("open_stream(2)").error is None
    assert one_slot.run("%%ask\nhello").shown[0] == "hello"


def test_agents_on_loops_of_their_own_and_a_cell_share_the_slots(kernel: Any, mock: ScriptedEndpoint) -> None:
    seen = kernel.run(
        "import asyncio, threading, fairq_ipy as fairq\n"
        "wrong = []\n"
        "async def agent(name):\n"
        "    for n in range(5):\n"
        "        answer = await fairq.aask(f'{name} {n}', tenant=name)\n"
        "        if answer.text != f'{name} {n}': wrong.append(answer.text)\n"
        "agents = [threading.Thread(target=asyncio.run, args=(agent(name),)) for name in ('logs', 'no')]\n"
        "for each in agents: each.start()\n"
        "for n in range(5):\n"
        "    %ask mine {n}\n"
        "for each in agents: each.join()"
    )
    assert seen.error is None, seen
    assert seen.shown[::2] == [f"mine {n}" for n in range(5)]
    assert kernel.value("wrong") == []
    assert mock.arrivals == 15
