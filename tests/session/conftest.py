"""Policies on disk, and sessions that are closed after the test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairq_ipy import policy
from fairq_ipy.session import Session, front

SOON = 20.0
"""Seconds that anything may take before a test calls it hung; nothing is measured against it."""

TEXT = """\
version: 1
endpoint: {base_url: "http://127.0.0.1:9/v1", api_key_env: TEAM_KEY}
limits: {concurrency: 2}
levels:
  interactive: {level: 1}
  batch: {level: 2}
tenants:
  logs: {level: batch}
  release-notes: {level: interactive}
"""


OTHER_TEXT = TEXT.replace("concurrency: 2", "concurrency: 5")


def eventually(condition: Callable[[], Any]) -> Any:
    """Return what `condition` returns once it is true; fail when it never is."""
    end = time.monotonic() + SOON
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)
    return found


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory in which no policy of this repository is found."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(elsewhere: Path) -> Callable[..., Path]:
    """Writes a policy file."""

    def write(text: str = TEXT, name: str = "fairq.yaml") -> Path:
        path = elsewhere / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def make_session() -> Iterator[Callable[..., Session]]:
    made: list[Session] = []

    def make(text: str = TEXT, **options: Any) -> Session:
        session = Session(policy.loads(text, "team.yaml"), **{"watch": None, **options})
        made.append(session)
        return session

    yield make
    for session in made:
        session.close()


@pytest.fixture
def session(make_session: Callable[..., Session]) -> Session:
    return make_session()


@pytest.fixture
def no_session() -> Iterator[None]:
    """The kernel's session is made by this test alone, and closed after it."""
    front.close()
    yield
    front.close()
