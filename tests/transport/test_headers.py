"""Header values that no server accepts: said with the header's name, and never with its value."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import openai
import pytest

from fairq_ipy.errors import ConfigurationError
from fairq_ipy.session import Session
from fairq_ipy.testing import ScriptedEndpoint
from fairq_ipy.transport.headers import check_given, read

from .conftest import async_client, chat_body, run

Client = Callable[..., Any]

SECRET = "sk-TopSecret"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (f"Bearer {SECRET}\r\n", "ends in a line break"),
        (f"Bearer {SECRET}\n", "ends in a line break"),
        (f"Bearer {SECRET} ", "ends in a blank"),
        (f" Bearer {SECRET}", "begins with a blank"),
        ("Bearer ", "holds no key"),
        (f"Bearer {SECRET}\nx: y", "has a line break in it"),
        (f"Bearer {SECRET}\x07", "has a control character in it"),
    ],
)
def test_what_is_wrong_with_a_value_is_said_without_it(value: str, problem: str):
    for act in (lambda: read([(b"Authorization", value.encode())]), lambda: check_given({"Authorization": value})):
        with pytest.raises(ConfigurationError, match=f"'authorization' {problem}") as caught:
            act()
        assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("given", [{"x-key": "“quoted”"}, [("x-key", "naïve")], [(b"x-key", b"\xe9")]])
def test_a_value_that_is_no_ascii_is_said_before_it_is_encoded(given: Any):
    with pytest.raises(ConfigurationError, match="not ASCII"):
        check_given(given)


@pytest.mark.parametrize("given", [None, {}, {"x": "plain"}, [("x", "a\tb")], {"x": b"bytes"}, [("x", "")]])
def test_what_can_be_sent_is_left_alone(given: Any):
    check_given(given)


def test_what_is_meant_for_the_queue_is_read():
    pairs = [(b"x", b"\xe9 latin"), (b"y", b""), (b"X-Fairq-Tenant", b"a"), (b"x-fairq-priority", b"batch")]
    assert read(pairs) == {b"x-fairq-tenant": "a", b"x-fairq-priority": "batch"}


@pytest.mark.parametrize("key", [f"{SECRET}\r\n", f"{SECRET}\n", f" {SECRET} \t"])
def test_an_sdk_with_such_a_key_is_told_and_nothing_is_sent(
    mock: ScriptedEndpoint, queue: Callable[..., Session], client: Client, key: str
):
    session = queue()
    sdk = openai.OpenAI(base_url=mock.base_url, api_key=key, max_retries=2, http_client=client(session))
    with pytest.raises(ConfigurationError, match="authorization") as caught:
        sdk.chat.completions.create(model="m", messages=[])
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert (mock.arrivals, session.snapshot().submitted) == (0, 0)


def test_so_is_a_client_with_such_a_header(
    mock: ScriptedEndpoint, queue: Callable[..., Session], client: Client, library: str
):
    session = queue()
    with pytest.raises(ConfigurationError, match="x-api-key"):
        client(session, library=library, headers={"x-api-key": f"{SECRET}\n"})
    made = client(session, library=library)
    for headers in ({"x-api-key": f"{SECRET}\n"}, {"x-api-key": "schlüssel"}):
        with pytest.raises(ConfigurationError, match="x-api-key"):
            made.post(f"{mock.base_url}/chat/completions", json=chat_body(), headers=headers)

    async def main() -> None:
        async with async_client(session, library=library) as asynchronous:
            with pytest.raises(ConfigurationError, match="x-api-key"):
                await asynchronous.get(f"{mock.base_url}/models", headers={"x-api-key": f"{SECRET}\n"})

    run(main())
    assert mock.arrivals == 0
