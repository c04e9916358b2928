"""A scripted endpoint, and clients of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from fairq_ipy.testing import (
    ScriptedEndpoint,
)


@pytest.fixture
def mock() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint() as endpoint:
        yield endpoint
        endpoint.release()


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client() as client:
        yield client


@pytest.fixture
def post(mock: ScriptedEndpoint, client: httpx.Client) -> Callable[..., httpx.Response]:
    def send(text: str = "hello", **more: Any) -> httpx.Response:
        body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
        return client.post(f"{mock.base_url}/chat/completions", json=body)

    return send
