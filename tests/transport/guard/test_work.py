"""What the guard does for calls that are none of its business: next to nothing, told by counting it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fairq_ipy.session import Session
from fairq_ipy.testing import ScriptedEndpoint
from fairq_ipy.transport import guard

from ..conftest import chat_body  # noqa: TID252 - the tests of a room are no installed package
from .conftest import ON_THREADS, Guarded, Sender

HERE = str(Path(guard.__file__).parents[2])


def ours(function: Callable[[], Any]) -> list[str]:
    """Return the functions of ours that run while `function` does."""
    seen: list[str] = []

    def look(frame: FrameType, event: str, argument: object) -> None:
        if (
            event == "call"
            and frame.f_code.co_filename.startswith(HERE)
            and "/testing/" not in frame.f_code.co_filename
        ):
            seen.append(frame.f_code.co_name)

    sys.setprofile(look)
    try:
        function()
    finally:
        sys.setprofile(None)
    return seen


ON_THE_WAY = {
    "httpx": ["send", "handle_request"],
    "httpx2": ["send", "handle_request"],
    "requests": ["send", "send", "urlopen", "putrequest"],
    "urllib3": ["urlopen", "urlopen", "putrequest"],
    "urllib3-pool": ["urlopen", "putrequest"],
}


@pytest.mark.parametrize(("sender", "name"), [(name, name) for name in ON_THREADS], indirect=["sender"])
def test_a_call_to_another_host_asks_one_question_at_each_place(
    sender: Sender, guarded: Guarded, mock: ScriptedEndpoint, name: str
):
    guarded(base_url="http://llm.example/v1")
    url = f"{mock.base_url}/chat/completions"
    sender.post(url, chat_body())  # connects, and learns that this host is another one
    called = ours(lambda: sender.post(url, chat_body()))
    wrappers = ON_THE_WAY[name]
    assert [each for each in called if each in wrappers] == wrappers
    questions = [each for each in called if each not in wrappers]
    assert set(questions) <= {"reaches", "origins", "_met"}
    assert questions.count("reaches") <= len(wrappers) + 1
    assert questions.count("origins") <= len(wrappers) + 1


@pytest.mark.parametrize("sender", ON_THREADS, indirect=True)
def test_what_is_no_post_is_asked_nothing(sender: Sender, guarded: Guarded, mock: ScriptedEndpoint):
    guarded()
    url = f"{mock.base_url}/models"
    sender.get(url)
    assert set(ours(lambda: sender.get(url))) <= {"send", "handle_request", "urlopen", "putrequest"}


def test_hosts_are_remembered_up_to_a_bound(queue: Callable[..., Session]):
    session = queue(1)
    session.guard.switch("route")
    watch = session.guard._watch
    assert not any(watch.reaches(f"host-{number}") for number in range(3000))
    assert watch.reaches("127.0.0.1")
    assert len(watch._near[1]) <= 1000


@pytest.mark.parametrize(
    ("base_url", "host", "same"),
    [
        ("http://llm.example/v1", "LLM.Example.", True),
        ("http://llm.example/v1", "llm.example.org", False),
        ("http://[::1]:8000/v1", "0:0:0:0:0:0:0:1", True),
        ("http://[::1]:8000/v1", "[::1]", True),
        ("http://[fe80::1]:8000/v1", "fe80::1%eth0", True),
        ("http://[::1]:8000/v1", "no:address", False),
        ("http://[::1]:8000/v1", "LOCALHOST", True),
        ("http://localhost:8000/v1", "127.0.0.1", True),
        ("http://127.0.0.1:8000/v1", "127.0.0.2", False),
    ],
)
def test_a_host_is_known_in_each_of_its_spellings(queue: Callable[..., Session], base_url: str, host: str, same: bool):
    session = queue(1, base_url=base_url)
    session.guard.switch("route")
    assert session.guard._watch.reaches(host) is same


def test_the_built_in_endpoint_is_watched_once_it_runs(queue: Callable[..., Session]):
    session = queue(1, base_url="demo")
    session.guard.switch("warn")
    watch = session.guard._watch
    assert not watch.reaches("127.0.0.1")
    assert not watch.is_endpoint("http", "127.0.0.1", 80)
    session.base_url()
    assert watch.reaches("127.0.0.1")
