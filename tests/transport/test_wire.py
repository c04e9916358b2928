"""What a request asks for, read from its bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairq_ipy.transport.wire import MEDIA_TOKENS, MESSAGE_TOKENS, Asked, read


def asked(route: str = "chat/completions", **content: Any) -> Asked:
    return read(json.dumps(content).encode(), route)


def test_a_chat_is_its_messages_four_bytes_to_a_token() -> None:
    messages = [{"role": "system", "content": "x" * 40}, {"role": "user", "content": "y" * 38}]
    found = asked(messages=messages, model="m", max_tokens=7, stream=True)
    # the roles are text as well: 6 + 4 bytes
    assert found == Asked((40 + 38 + 10) // 4 + 2 * MESSAGE_TOKENS, 7, 2, "m", stream=True)


def test_text_counts_by_its_bytes_and_not_by_its_characters() -> None:
    assert asked(prompt="日本").prompt_tokens == 2 + MESSAGE_TOKENS
    assert asked(prompt="\ud800").prompt_tokens == 1 + MESSAGE_TOKENS


def test_an_image_is_a_constant_however_long_its_data() -> None:
    parts = [
        {"type": "text", "text": "what"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9999}},
    ]
    found = asked(messages=[{"role": "user", "content": parts}])
    assert MEDIA_TOKENS < found.prompt_tokens < MEDIA_TOKENS + 20
    assert asked(prompt="data:image/png;base64," + "A" * 9999).prompt_tokens == MEDIA_TOKENS + MESSAGE_TOKENS


def test_token_ids_are_counted_one_by_one() -> None:
    assert asked(prompt=[[1, 2, 3], [4]]).prompt_tokens == 4 + MESSAGE_TOKENS


def test_tools_are_part_of_the_prompt() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "d" * 400}}]
    assert asked(messages=[], tools=tools).prompt_tokens >= 100


def test_the_system_text_of_messages_and_the_instructions_of_responses_are_counted() -> None:
    assert asked("messages", system="s" * 400, messages=[]).prompt_tokens == 100
    assert asked("responses", instructions="s" * 400, input="i" * 4).prompt_tokens == 101 + MESSAGE_TOKENS


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_tokens": 0}, 0),
        ({"max_completion_tokens": 5, "max_tokens": 9}, 5),
        ({"max_output_tokens": 5}, 5),
        ({"max_tokens": 5, "n": 3}, 15),
        ({"max_tokens": 5, "n": 0}, 5),
        ({"max_tokens": None}, None),
        ({"max_tokens": "5"}, None),
        ({"max_tokens": True}, None),
        ({"max_tokens": -1}, None),
        ({"max_tokens": 5.0}, 5),
        ({"max_tokens": 5.5}, None),
        ({}, None),
    ],
)
def test_the_request_may_limit_its_output(content: dict[str, Any], limit: int | None) -> None:
    assert asked(**content).max_tokens == limit


def test_embeddings_have_no_output() -> None:
    found = asked("embeddings", input=["a" * 40, "b" * 40])
    assert (found.max_tokens, found.messages) == (0, 1)


def test_the_input_of_responses_may_be_messages() -> None:
    assert asked("responses", input=[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]).messages == 2


@pytest.mark.parametrize(
    "body", [b"", b"\x00\xff" * 20, b"[1, 2]", b"null", b'"x"', b"{" * 100_000, b"[" * 100_000, b"--boundary"]
)
def test_a_body_that_is_no_json_object_counts_by_its_bytes(body: bytes) -> None:
    assert read(body) == Asked(prompt_tokens=-(-len(body) // 4))


@pytest.mark.parametrize(
    "content", [{"messages": "no list"}, {"messages": [None, 3, "x"]}, {"model": 7}, {"stream": "yes"}]
)
def test_odd_values_are_the_endpoints_to_refuse(content: dict[str, Any]) -> None:
    found = asked(**content)
    assert (found.model, found.stream) == ("", False)
