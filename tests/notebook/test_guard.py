"""``%fairq guard``: switching it, seeing what it saw, being told once; and coming and going with the extension."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from IPython.core.error import UsageError

import fairq_ipy as fairq
from fairq_ipy.notebook.completion import candidates
from fairq_ipy.testing import ScriptedEndpoint

from .conftest import Kernel

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def said(shell: Any, line: str) -> str:
    return str(shell.run(line))


def ask(mock: ScriptedEndpoint) -> int:
    return httpx.post(f"{mock.base_url}/chat/completions", json=BODY).status_code


def test_the_guard_says_what_it_does_and_that_it_saw_nothing(shell: Any) -> None:
    text = said(shell, "%fairq guard")
    assert text.startswith("guard: warn: calls by clients that are not ours go past the queue")
    assert text.endswith("none was seen so far")


@pytest.mark.parametrize(
    ("word", "mode"), [("on", "route"), ("route", "route"), ("warn", "warn"), ("block", "block"), ("off", "off")]
)
def test_a_word_switches_it(shell: Any, word: str, mode: str) -> None:
    assert said(shell, f"%fairq guard {word}").startswith(f"guard: {mode}: ")
    assert fairq.session().guard.mode == mode


def test_another_word_is_a_usage_error_with_the_nearest(shell: Any) -> None:
    with pytest.raises(UsageError, match=r"there is no mode 'rout'; did you mean route\?"):
        shell.run("%fairq guard rout")
    assert fairq.session().guard.mode == "warn"


def test_tab_knows_the_words(shell: Any) -> None:
    hub = shell.ip.magics_manager.registry["FairqMagics"].hub
    assert candidates("%fairq guard ", hub.values()) == ("", ["on", "route", "warn", "block", "off"])
    assert candidates("%fairq guard b", hub.values()) == ("b", ["block"])


def test_a_bypass_is_told_in_the_next_cell_once_and_counted_in_the_status(shell: Any, mock: ScriptedEndpoint) -> None:
    assert "not governed" not in said(shell, "%fairq status")
    assert [ask(mock), ask(mock)] == [200, 200]
    status = said(shell, "%fairq status")
    assert "not governed: 2 calls; %fairq guard says whose" in status
    assert shell.stdout.count("past the queue") == 1
    assert f"httpx in {__name__} called 127.0.0.1 past the queue; `%fairq guard on`" in shell.stdout.replace("\n", " ")
    ask(mock)
    assert "not governed: 3 calls" in said(shell, "%fairq status")
    assert "past the queue" not in shell.stdout
    row = said(shell, "%fairq guard").splitlines()[-1].split()
    assert (row[0], row[-3:]) == ("httpx", ["let", "go", "3"])


def test_routed_calls_are_like_all_others(shell: Any, mock: ScriptedEndpoint) -> None:
    shell.run("%fairq guard on")
    assert ask(mock) == 200
    assert "not governed" not in said(shell, "%fairq status")
    assert "1 call so far, 1 done" in said(shell, "%fairq status")
    assert said(shell, "%fairq guard").splitlines()[-1].split()[-2:] == ["queued", "1"]


def test_a_blocked_call_is_two_calm_lines(shell: Any, mock: ScriptedEndpoint) -> None:
    shell.run("%fairq guard block")
    with pytest.raises(fairq.BypassBlockedError) as caught:
        ask(mock)
    assert caught.value._render_traceback_() == [f"BypassBlockedError: {caught.value}"]
    assert mock.arrivals == 0


def test_the_policy_says_what_holds_and_so_does_a_change_of_it(
    shell: Any, policy: Path, mock: ScriptedEndpoint
) -> None:
    text = policy.read_text(encoding="utf-8")
    policy.write_text(f"{text}\nguard: block\n", encoding="utf-8")
    shell.run("%fairq reload")
    assert fairq.session().guard.mode == "block"
    shell.run("%fairq guard off")
    shell.run("%fairq reload")
    assert fairq.session().guard.mode == "off", "what a person switched holds until the policy says something else"
    policy.write_text(f"{text}\nguard: route\n", encoding="utf-8")
    shell.run("%fairq reload")
    assert fairq.session().guard.mode == "route"


def test_loading_twice_and_reloading_makes_one_entry_per_call_and_unloading_none(
    shell: Any, mock: ScriptedEndpoint
) -> None:
    before = httpx.Client()
    for line in ("%load_ext fairq_ipy", "%load_ext fairq_ipy", *["%reload_ext fairq_ipy"] * 3):
        shell.run(line)
    shell.run("%fairq guard on")
    assert before.post(f"{mock.base_url}/chat/completions", json=BODY).status_code == 200
    assert fairq.snapshot().submitted == 1
    shell.run("%unload_ext fairq_ipy")
    assert not hasattr(httpx.HTTPTransport.handle_request, "__wrapped__")
    assert before.post(f"{mock.base_url}/chat/completions", json=BODY).status_code == 200
    before.close()
    assert mock.arrivals == 2


# --------------------------------------------------------------------------------------------------------- in a kernel

SET_UP = """
import importlib.util, threading, httpx, httpx2
url = {url!r}
body = {body!r}
client, second = httpx.Client(timeout=60), httpx2.Client(timeout=60)
WAYS = [
    lambda: client.post(url, json=body).status_code,
    lambda: second.post(url, json=body).status_code,
    lambda: httpx.post(url, json=body).status_code,
]
if importlib.util.find_spec("requests"):  # not in the environment of the other generation of kernels
    import requests, urllib3
    pool = urllib3.PoolManager()
    WAYS += [
        lambda: requests.post(url, json=body, timeout=60).status_code,
        lambda: pool.request("POST", url, json=body).status,
    ]
"""


@pytest.fixture
def client_before(bare_kernel: Kernel, policy: Path, mock: ScriptedEndpoint) -> Iterator[Kernel]:
    """A kernel with clients that were made before the extension is loaded."""
    url = f"{mock.base_url}/chat/completions"
    assert bare_kernel.run(SET_UP.format(url=url, body=BODY)).error is None
    bare_kernel.run(f"import os; os.environ['FAIRQ_POLICY'] = {str(policy)!r}")
    yield bare_kernel
    assert mock.max_in_flight <= 2


def test_clients_made_before_the_load_are_routed_once_however_often_it_is_loaded(
    client_before: Kernel, mock: ScriptedEndpoint
) -> None:
    kernel = client_before
    kernel.run("%load_ext fairq_ipy\n%load_ext fairq_ipy\n%reload_ext fairq_ipy\n%reload_ext fairq_ipy")
    assert kernel.run("%reload_ext fairq_ipy\n%fairq guard on").error is None
    kernel.run("import fairq_ipy as fairq")
    assert set(kernel.value("[way() for way in WAYS]")) == {200}
    assert kernel.value("fairq.snapshot().submitted - len(WAYS)") == 0
    assert mock.arrivals == kernel.value("len(WAYS)")


def test_after_the_unload_the_old_behaviour_is_back_and_nobody_who_waited_hangs(
    client_before: Kernel, mock: ScriptedEndpoint
) -> None:
    kernel = client_before
    assert kernel.run("%load_ext fairq_ipy\n%fairq guard on\nimport fairq_ipy as fairq").error is None
    mock.hold()
    kernel.run("answers = []\nthreads = [threading.Thread(target=lambda: answers.append(WAYS[0]())) for _ in range(4)]")
    kernel.run("for thread in threads: thread.start()")
    mock.wait_for(held=2)
    kernel.run("while fairq.snapshot().queued < 2: pass")
    kernel.run("%unload_ext fairq_ipy")
    kernel.run("while len(answers) < 2: pass")
    assert kernel.value("answers") == [429, 429]
    mock.release()
    kernel.run("for thread in threads: thread.join()")
    assert kernel.value("answers") == [429, 429, 200, 200]
    assert set(kernel.value("[way() for way in WAYS]")) == {200}
    assert kernel.value("hasattr(httpx.HTTPTransport.handle_request, '__wrapped__')") is False
    assert mock.arrivals == 2 + kernel.value("len(WAYS)")
