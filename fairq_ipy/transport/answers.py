"""What the JSON of an answer says: text, tokens, an end, an error.

One `Tally` reads whole documents and single events of chat completions, completions, responses, messages and embeddings
alike: it goes by what it finds, not by what was asked, since gateways translate between these shapes.
"""

from __future__ import annotations

from typing import Any, Final

from fairq_ipy.transport.wire import count, tokens

__all__ = ["Tally"]

_THOUGHTS: Final = ("reasoning_content", "reasoning", "thinking")
_TEXTS: Final = frozenset({"text", "output_text", "refusal"})
_ENDS: Final = frozenset({"response.completed", "response.incomplete"})


class Tally:
    """The running account of one answer.

    Attributes:
        known: whether anything of a known shape was seen.
        acted: whether it calls a tool or carries reasoning, sound or vectors.
        finished: whether the model said that it is done.
        finish_reason: how it said so; ``None`` before.
        error: the endpoint's error inside the answer; ``None`` without.
        model: the model that answered; empty when it does not say.
        prompt_tokens: as the endpoint counted; ``None`` when it did not.
    """

    __slots__ = (
        "_chars",
        "_counted_at",
        "_output",
        "_visible",
        "_weight",
        "acted",
        "error",
        "finish_reason",
        "finished",
        "known",
        "model",
        "pieces",
        "prompt_tokens",
    )

    def __init__(self) -> None:
        self.known = False
        self.acted = False
        self.finished = False
        self.finish_reason: str | None = None
        self.error: Any = None
        self.model = ""
        self.prompt_tokens: int | None = None
        self.pieces = 0  # bits of text, thought or arguments so far: mostly a token each
        self._chars = 0
        self._visible = False
        self._weight = 0  # bytes of what the model wrote
        self._output: int | None = None
        self._counted_at = 0  # the piece at which the endpoint last counted

    # ---------------------------------------------------------------------------------------------------- results

    @property
    def chars(self) -> int:
        """Length of the answer's text, without thoughts and arguments; 0 when it is nothing but white space."""
        return self._chars if self._visible else 0

    @property
    def exact(self) -> bool:
        """Whether the endpoint counted all that was written so far."""
        return self._output is not None and self.prompt_tokens is not None and self._counted_at == self.pieces

    @property
    def output_tokens(self) -> int:
        """What was written so far: counted by the endpoint, else estimated from pieces and bytes."""
        if self._output is None:
            return max(self.pieces, tokens(self._weight))
        return self._output if self._counted_at == self.pieces else max(self._output, self.pieces, tokens(self._weight))

    # ---------------------------------------------------------------------------------------------------- reading

    def observe(self, content: object) -> None:
        """Take in one document or event."""
        if not isinstance(content, dict):
            return
        error = content.get("error")
        if error:
            self.error = error
        choices = content.get("choices")
        if isinstance(choices, list):
            self.known = True
            for choice in choices:
                self._choice(choice)
        elif isinstance(content.get("type"), str):
            self._typed(content["type"], content)
        elif content.get("object") == "response":
            self._response(content)
        elif isinstance(content.get("data"), list):
            self.known = self.finished = True
            self.acted = self.acted or bool(content["data"])
        if not self.model and isinstance(content.get("model"), str):
            self.model = content["model"]
        self._usage(content.get("usage"))

    def skim(self, size: int, usage: object, *, text: bool) -> None:
        """Take in a document of `size` bytes that is too big to be read: its usage, and that it says something."""
        self.known = self.finished = self.acted = True
        if text:
            self.pieces += 1
            self._weight += size
        self._usage(usage)

    def _choice(self, choice: object) -> None:
        if not isinstance(choice, dict):
            return
        part = choice.get("delta")
        if part is None:
            part = choice.get("message")
        if isinstance(part, dict):
            self._message(part)
        self._text(choice.get("text"))
        self._end(choice.get("finish_reason"))
        if choice.get("finish_reason") == "error" and not self.error:
            self.error = choice.get("error") or True

    def _message(self, part: dict[str, Any]) -> None:
        content = part.get("content")
        if isinstance(content, list):
            self._blocks(content)
        else:
            self._text(content)
        self._text(part.get("refusal"))
        for key in _THOUGHTS:
            if part.get(key):
                self._act(part[key])
                break  # some servers send one thought under two names
        calls = part.get("tool_calls")
        if calls or part.get("function_call"):
            self._act(calls or part["function_call"])
        if part.get("audio"):
            self._act(None)

    def _typed(self, kind: str, content: dict[str, Any]) -> None:
        """Take in what says its own type: Anthropic's messages, and the events of responses."""
        if kind.startswith("response."):
            self._response_event(kind, content)
            return
        if kind == "error":
            self.error = self.error or content
        elif kind == "message":
            self._blocks(content.get("content"))
            self._end(content.get("stop_reason"))
        elif kind == "message_start":
            message = content.get("message")
            if isinstance(message, dict):
                self._usage(message.get("usage"))
                self.model = message["model"] if isinstance(message.get("model"), str) else self.model
        elif kind == "content_block_start":
            self._blocks([content.get("content_block")])
        elif kind == "content_block_delta":
            self._delta(content.get("delta"))
        elif kind == "message_delta":
            delta = content.get("delta")
            self._end(delta.get("stop_reason") if isinstance(delta, dict) else None)
        elif kind == "message_stop":
            self.finished = True
        elif kind != "ping":
            return
        self.known = True

    def _delta(self, delta: object) -> None:
        if not isinstance(delta, dict):
            return
        if delta.get("type") == "text_delta":
            self._text(delta.get("text"))
        else:
            self._act(delta.get("partial_json") or delta.get("thinking"))

    def _response_event(self, kind: str, content: dict[str, Any]) -> None:
        self.known = True
        response = content.get("response")
        delta = content.get("delta")
        if isinstance(delta, str):
            if kind in {"response.output_text.delta", "response.refusal.delta"}:
                self._text(delta)
            else:
                self._act(delta)
        if not isinstance(response, dict):
            return
        if kind in _ENDS:
            self._end(response.get("status") or kind.removeprefix("response."))
        elif kind == "response.failed":
            self.finished = True
        if response.get("error"):
            self.error = response["error"]
        if isinstance(response.get("model"), str):
            self.model = response["model"]
        self._usage(response.get("usage"))

    def _response(self, content: dict[str, Any]) -> None:
        self.known = True
        for item in content.get("output") or ():
            if isinstance(item, dict) and item.get("type") == "message":
                self._blocks(item.get("content"))
            else:
                self._act(item)
        if content.get("status") in {"completed", "incomplete"}:
            self._end(content["status"])

    def _blocks(self, blocks: object) -> None:
        for block in blocks if isinstance(blocks, list) else ():
            if not isinstance(block, dict):
                continue
            if block.get("type") in _TEXTS:
                self._text(block.get("text") or block.get("refusal"))
            else:
                self._act({key: value for key, value in block.items() if key not in {"type", "id", "signature"}})

    def _end(self, reason: object) -> None:
        if reason is not None:
            self.finished = True
            self.finish_reason = str(reason)

    def _text(self, text: object) -> None:
        if isinstance(text, str) and text:
            self.pieces += 1
            self._chars += len(text)
            self._weight += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
            if not self._visible:
                self._visible = not text.isspace()

    def _act(self, value: object) -> None:
        """Count what is no text for the reader: a thought, a call with its arguments."""
        self.acted = True
        self.pieces += 1
        todo = [value]
        while todo:
            value = todo.pop()
            if isinstance(value, str):
                self._weight += len(value)
            elif isinstance(value, dict):
                todo.extend(value.values())
            elif isinstance(value, list):
                todo.extend(value)

    def _usage(self, usage: object) -> None:
        """Take in the endpoint's count. It is cumulative wherever it comes more than once, so the highest holds."""
        if not isinstance(usage, dict):
            return
        prompt = count(usage.get("prompt_tokens"))
        if prompt is None:
            prompt = count(usage.get("input_tokens"))
            if prompt is not None:  # Anthropic counts what it read from or wrote to its cache apart
                prompt += count(usage.get("cache_creation_input_tokens")) or 0
                prompt += count(usage.get("cache_read_input_tokens")) or 0
        output = count(usage.get("completion_tokens"))
        if output is None:
            output = count(usage.get("output_tokens"))
        total = count(usage.get("total_tokens"))
        if output is None and prompt is not None and total is not None:
            output = max(total - prompt, 0)
        if prompt is not None:
            self.prompt_tokens = max(prompt, self.prompt_tokens or 0)
        if output is not None:
            self._output = max(output, self._output or 0)
            self._counted_at = self.pieces
