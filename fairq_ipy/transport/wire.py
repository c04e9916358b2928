"""What a request asks for, read from its bytes before it is queued.

The queue needs an idea of a call's size, not its truth: the endpoint's own count corrects it later. The rules of the
estimate: four bytes of text are a token; an image, a sound or a file is `MEDIA_TOKENS`; a number in a list of token ids
is a token; every message adds `MESSAGE_TOKENS`. A body that is no JSON object counts by its bytes. Nothing here raises:
a request that the endpoint will refuse is the endpoint's to refuse.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from fairq_ipy.core.model import CREDIBLE

__all__ = ["BYTES_PER_TOKEN", "MEDIA_TOKENS", "MESSAGE_TOKENS", "Asked", "count", "read", "tokens"]

BYTES_PER_TOKEN: Final = 4
MESSAGE_TOKENS: Final = 4
MEDIA_TOKENS: Final = 800

_MEDIA_TYPES: Final = frozenset(
    {"image_url", "input_image", "image", "input_audio", "audio", "file", "input_file", "document", "video_url"}
)
_LIMIT_KEYS: Final = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_PROMPT_KEYS: Final = ("messages", "input", "prompt", "system", "instructions", "tools", "functions", "response_format")


class Asked(NamedTuple):
    """What one request asks for.

    Attributes:
        prompt_tokens: estimated size of the prompt.
        max_tokens: the most it lets the model write, over all of its choices; 0 for embeddings; ``None`` without limit.
        messages: messages it carries; 1 for a plain prompt.
        model: the model's name; empty when it names none.
        stream: whether it asks for events.
        options: whether it says itself what it wants beside the events.
    """

    prompt_tokens: int = 0
    max_tokens: int | None = None
    messages: int = 1
    model: str = ""
    stream: bool = False
    options: bool = False


def read(body: bytes, route: str = "chat/completions") -> Asked:
    """Return what the request to `route` with this `body` asks for."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        return Asked(prompt_tokens=tokens(len(body)))
    model = content.get("model")
    messages = _messages(content)
    return Asked(
        prompt_tokens=_prompt_tokens(content) + MESSAGE_TOKENS * messages,
        max_tokens=0 if route == "embeddings" else _max_tokens(content),
        messages=messages,
        model=model if isinstance(model, str) else "",
        stream=content.get("stream") is True,
        options="stream_options" in content,
    )


def tokens(size: int) -> int:
    """Return how many tokens so many bytes of text are likely to be."""
    return -(-size // BYTES_PER_TOKEN)


def count(value: object) -> int | None:
    """Return `value` when it is a count as JSON carries it, else ``None``; ``true``, ``-1`` and 1e308 are none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= CREDIBLE else None


def _messages(content: dict[str, Any]) -> int:
    if isinstance(content.get("messages"), list):
        return len(content["messages"])
    inputs = content.get("input")
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], dict):
        return len(inputs)
    return 1


def _max_tokens(content: dict[str, Any]) -> int | None:
    for key in _LIMIT_KEYS:
        limit = count(content.get(key))
        if limit is not None:
            choices = count(content.get("n"))
            return limit if choices is None else limit * max(choices, 1)
    return None


def _prompt_tokens(content: dict[str, Any]) -> int:
    size = 0  # bytes of text
    whole = 0  # tokens that are counted as such
    todo: list[Any] = [content[key] for key in _PROMPT_KEYS if key in content]
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            if value.startswith("data:"):
                whole += MEDIA_TOKENS
            else:
                size += len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
        elif isinstance(value, dict):
            if value.get("type") in _MEDIA_TYPES:
                whole += MEDIA_TOKENS
            else:
                todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            whole += 1
    return tokens(size) + whole
