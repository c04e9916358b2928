"""The promise of the first page, against a real model behind a real limit of two connections."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import openai
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.real, pytest.mark.slow]

THREADS = 12
QUESTIONS = 3
TOKENS = 24

POLICY = """\
version: 1
endpoint: {{base_url: "{base_url}", model: smollm2}}
limits: {{concurrency: 2, queue: 40, queue_per_tenant: 40}}
levels:
  interactive: {{level: 1}}
  batch: {{level: 2}}
tenants:
  agents: {{level: batch}}
  me: {{level: interactive}}
default_tenant: me
"""

AGENTS = f"""\
import json, threading, time
import openai
import fairq_ipy as fairq

client = openai.OpenAI(base_url=BASE_URL, api_key="none", http_client=fairq.http_client(tenant="agents"))
answers, failures = {{}}, []

def agent(number):
    try:
        answers[number] = answer(number)
    except Exception as error:
        failures.append(repr(error))

def answer(number):
    asked = [{{"role": "user", "content": f"Say one thing about the number {{number}}."}}]
    options = {{"model": "smollm2", "messages": asked, "max_tokens": {TOKENS}, "temperature": 0}}
    if number % 2:
        chunks = client.chat.completions.create(**options, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return client.chat.completions.create(**options).choices[0].message.content

threads = [threading.Thread(target=agent, args=(number,)) for number in range({THREADS})]
for thread in threads:
    thread.start()
"""

OUTCOME = """\
busy = sum(thread.is_alive() for thread in threads)
for thread in threads:
    thread.join()
# A stream's caller has the last word in hand a moment before the server's last byte gives the slot back.
end = time.monotonic() + 10
while (snapshot := fairq.snapshot()).in_flight and time.monotonic() < end:
    time.sleep(0.01)
print(json.dumps({
    "answers": answers, "failures": failures, "mine": [asked0.text, asked1.text, asked2.text], "busy": busy,
    "in_flight": snapshot.in_flight, "queued": snapshot.queued,
    "agents": snapshot.tenants["agents"].completed, "me": snapshot.tenants["me"].completed,
}))
"""


class Kernels(NotebookClient):
    def create_kernel_manager(self):
        manager = super().create_kernel_manager()
        manager.kernel_spec.argv[0] = sys.executable
        return manager


def test_twelve_agents_and_three_cells_share_two_connections_without_one_refusal(gateway, tmp_path):
    (tmp_path / "fairq.yaml").write_text(POLICY.format(base_url=gateway.base_url))
    cells = [
        "%load_ext fairq_ipy",
        f"BASE_URL = {gateway.base_url!r}\n{AGENTS}",
        *(f"%%ask --out asked{n} --max-tokens {TOKENS}\nName colour number {n}." for n in range(QUESTIONS)),
        OUTCOME,
    ]
    with gateway.counting() as statuses:
        outcome = json.loads(run(cells, tmp_path))

    assert not outcome["failures"]
    assert statuses == {200: THREADS + QUESTIONS}
    assert len(outcome["answers"]) == THREADS
    assert all(text.strip() for text in [*outcome["answers"].values(), *outcome["mine"]])
    assert (outcome["in_flight"], outcome["queued"]) == (0, 0)
    assert (outcome["agents"], outcome["me"]) == (THREADS, QUESTIONS)
    # The cells were answered while agents still waited: that is what the levels are for.
    assert outcome["busy"] > 0


def run(cells: list[str], folder: Path) -> str:
    """Run the cells in a real kernel; return what the last one printed."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    where = {"metadata": {"path": str(folder)}}
    Kernels(notebook, timeout=240, kernel_name="python3", resources=where).execute()
    return "".join(output.text for output in notebook.cells[-1].outputs if output.output_type == "stream")


def test_unqueued_the_same_twelve_threads_are_refused_by_the_dozen(gateway):
    client = openai.OpenAI(base_url=gateway.base_url, api_key="none")

    def agent(number: int) -> bool:
        asked = [{"role": "user", "content": f"Say one thing about the number {number}."}]
        try:
            client.chat.completions.create(model="smollm2", messages=asked, max_tokens=TOKENS, temperature=0)
        except openai.RateLimitError:
            return False
        return True

    with gateway.counting() as statuses, ThreadPoolExecutor(THREADS) as pool:
        answered = sum(pool.map(agent, range(THREADS)))

    assert statuses[429] >= THREADS - 2
    assert answered == statuses[200] < THREADS
    print(f"without the queue: {statuses[429]} refusals, {answered} of {THREADS} answered")
