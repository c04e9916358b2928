"""The demo endpoint's HTTP side, on tornado: OpenAI's shapes, streams, and refusals.

Imported only when an endpoint is started, so that nothing else needs tornado.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import random
import time
from collections.abc import Iterable
from typing import Any, Final, Literal

from tornado.iostream import StreamClosedError
from tornado.web import Application, RequestHandler

from fairq_ipy.demo.answers import Plan, count_tokens, mark_of, plan
from fairq_ipy.demo.books import Books, Entry, Refusal

__all__ = ["MODELS", "application"]

MODELS: Final = ("demo-small", "demo-embedding")

_TURNS_FOR_HANG_UPS: Final = 4
_LEAST_GAP: Final = 0.04
_VECTOR: Final = 32


def application(books: Books, *, speed: float, seed: int, retry_after: float | None) -> Application:
    """Return the endpoint as a tornado application."""
    shared = {"books": books, "speed": speed, "seed": seed, "retry_after": retry_after}
    routes: list[Any] = [
        (r"/v1/chat/completions/?", _Chat, shared),
        (r"/v1/completions/?", _Completion, shared),
        (r"/v1/embeddings/?", _Embeddings, shared),
        (r"/v1/models/?", _Models),
    ]
    # tornado's own access log would print a warning for each 429, though that is what this endpoint is for.
    return Application(routes, default_handler_class=_Elsewhere, log_function=lambda _: None)


class _Json(RequestHandler):
    """Answers in JSON, errors included."""

    def say(self, status: int, message: str, *, kind: str, code: str | None = None) -> None:
        """Answer with an error in OpenAI's shape."""
        self.set_status(status)
        _ = self.finish({"error": {"message": message, "type": kind, "param": None, "code": code}})

    def write_error(self, status_code: int, **_kwargs: object) -> None:
        """Give tornado's own errors (a wrong method, a bug) the same shape."""
        message = f"{self.request.method} {self.request.path}: {self._reason}"
        self.say(status_code, message, kind="invalid_request_error" if status_code < 500 else "server_error")  # noqa: PLR2004 - HTTP


class _Elsewhere(_Json):
    def prepare(self) -> None:
        message = (
            f"Unknown path {self.request.method} {self.request.path}. This endpoint has /v1/chat/completions, "
            "/v1/completions, /v1/embeddings and /v1/models."
        )
        self.say(404, message, kind="invalid_request_error", code="unknown_url")


class _Models(_Json):
    def get(self) -> None:
        """List the models."""
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "fairq-demo"} for name in MODELS]
        _ = self.finish({"object": "list", "data": models})


class _Governed(_Json):
    """A request that takes a slot: read, admit or refuse, serve at the planned times, give the slot back."""

    def initialize(self, books: Books, speed: float, seed: int, retry_after: float | None) -> None:
        """Take what the application shares; tornado's stand-in for a constructor."""
        self.books = books
        self.speed = speed
        self.seed = seed
        self.retry_after = retry_after
        self.entry: Entry | None = None
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def plan(self, body: dict[str, Any]) -> Plan:
        """Return the answer to `body`.

        Raises:
            ValueError: when `body` lacks what the answer needs.
        """
        raise NotImplementedError

    async def answer(self, body: dict[str, Any], planned: Plan, started: float) -> None:
        """Send it."""
        raise NotImplementedError

    async def post(self) -> None:
        """Serve one request."""
        arrived = time.monotonic()
        try:
            body = self._body()
            planned = self.plan(body)
            mark = mark_of(self.request.body.decode("utf-8", "replace"))
        except ValueError as problem:  # a request that makes no sense; the text says why
            self.say(400, str(problem), kind="invalid_request_error")
            return
        for _ in range(_TURNS_FOR_HANG_UPS):  # whoever hung up before this request came has freed a slot: hear of it
            await asyncio.sleep(0)
        taken = self.books.arrive(self.request.path, mark, arrived)
        self._tell_limits()
        if isinstance(taken, Refusal):
            self._refuse(taken)
            return
        self.entry = taken
        try:
            await self.answer(body, planned, time.monotonic())
        except StreamClosedError:
            pass  # the client left between two writes; `on_connection_close` has told the books, or does in a moment
        finally:
            self.over("disconnected")

    def on_connection_close(self) -> None:
        """Free the slot at the moment the client hangs up."""
        self.over("disconnected")
        if not self.left.done():
            self.left.set_result(None)

    def over(self, outcome: Literal["served", "disconnected"]) -> None:
        """Close the books of this request, once."""
        entry, self.entry = self.entry, None
        if entry is not None:
            self.books.end(entry, outcome)

    async def until(self, moment: float) -> bool:
        """Wait until that time of the monotonic clock; return whether the client is still there."""
        await asyncio.wait((self.left,), timeout=max(0.0, moment - time.monotonic()))
        return not self.left.done()

    def _body(self) -> dict[str, Any]:
        try:
            body = json.loads(self.request.body)
        except ValueError as problem:
            raise ValueError(f"The body is not valid JSON: {problem}") from problem
        if not isinstance(body, dict):
            raise ValueError("The body must be a JSON object.")  # noqa: TRY004 - becomes a 400
        return body

    def _refuse(self, refusal: Refusal) -> None:
        if self.retry_after is not None:
            wait = self.retry_after if refusal.wait is None else math.ceil(refusal.wait)
            self.set_header("Retry-After", f"{wait:g}")
        self.say(429, refusal.message, kind="requests", code="rate_limit_exceeded")

    def _tell_limits(self) -> None:
        remaining = self.books.remaining()
        if remaining is not None:
            self.set_header("x-ratelimit-limit-requests", str(self.books.requests_per_minute))
            self.set_header("x-ratelimit-remaining-requests", str(remaining))


class _Chat(_Governed):
    """Chat completions, whole or as a stream."""

    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def plan(self, body: dict[str, Any]) -> Plan:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise ValueError("Missing required parameter: 'messages', a list with at least one message.")
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        return plan([_text(message) for message in messages], max_tokens=_limit(limit), seed=self.seed)

    async def answer(self, body: dict[str, Any], planned: Plan, started: float) -> None:
        if body.get("stream"):
            await self._stream(body, planned, started)
        elif await self.until(started + planned.total_s / self.speed):
            content = self._frame(body, self.object_name, [self.choice(planned.text, planned.finish_reason)])
            self.over("served")
            await self.finish({**content, "usage": _usage(planned)})

    async def _stream(self, body: dict[str, Any], planned: Plan, started: float) -> None:
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.set_header("Cache-Control", "no-cache")
        for moment, text in _bursts(planned, self.speed):
            if not await self.until(started + moment):
                return
            self.write(self._event(body, [self.delta(text, None)]))
            await self.flush()
        if not await self.until(started + planned.total_s / self.speed):
            return
        last = self._event(body, [self.delta(None, planned.finish_reason)])
        options = body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            last += self._event(body, [], usage=_usage(planned))
        self.over("served")
        await self.finish(last + "data: [DONE]\n\n")

    def choice(self, text: str, finish_reason: str) -> dict[str, Any]:
        """Return the one choice of a whole answer."""
        return {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}

    def delta(self, text: str | None, finish_reason: str | None) -> dict[str, Any]:
        """Return the one choice of a chunk."""
        delta = {} if text is None else {"role": "assistant", "content": text}
        return {"index": 0, "delta": delta, "finish_reason": finish_reason}

    def _event(self, body: dict[str, Any], choices: list[dict[str, Any]], **more: object) -> str:
        return f"data: {json.dumps({**self._frame(body, self.chunk_name, choices), **more})}\n\n"

    def _frame(self, body: dict[str, Any], name: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        digest = hashlib.blake2b(self.request.body, digest_size=9).hexdigest()
        model = body.get("model")
        return {
            "id": f"chatcmpl-{digest}",
            "object": name,
            "created": int(time.time()),
            "model": model if isinstance(model, str) and model else MODELS[0],
            "choices": choices,
        }


class _Completion(_Chat):
    """Text completions, the older form."""

    object_name = "text_completion"
    chunk_name = "text_completion"

    def plan(self, body: dict[str, Any]) -> Plan:
        prompt = body.get("prompt")
        if not isinstance(prompt, str):
            raise ValueError("Missing required parameter: 'prompt', a string.")  # noqa: TRY004 - becomes a 400
        return plan([prompt], max_tokens=_limit(body.get("max_tokens")), seed=self.seed)

    def choice(self, text: str, finish_reason: str) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}

    def delta(self, text: str | None, finish_reason: str | None) -> dict[str, Any]:
        return {"index": 0, "text": text or "", "logprobs": None, "finish_reason": finish_reason}


class _Embeddings(_Governed):
    """One vector of length 1 for each input."""

    def plan(self, body: dict[str, Any]) -> Plan:
        given = body.get("input")
        inputs = [given] if isinstance(given, str) else given
        if not isinstance(inputs, list) or not inputs or not all(isinstance(text, str) for text in inputs):
            raise ValueError("Missing required parameter: 'input', a string or a list of strings.")
        tokens = count_tokens(inputs)
        return Plan(tuple(inputs), tokens, 0.0, 0.05 + tokens / 2000, "stop")

    async def answer(self, body: dict[str, Any], planned: Plan, started: float) -> None:
        if not await self.until(started + planned.total_s / self.speed):
            return
        data = [
            {"object": "embedding", "index": at, "embedding": _vector(text, self.seed)}
            for at, text in enumerate(planned.pieces)
        ]
        usage = {"prompt_tokens": planned.prompt_tokens, "total_tokens": planned.prompt_tokens}
        self.over("served")
        await self.finish({"object": "list", "model": body.get("model") or MODELS[1], "data": data, "usage": usage})


def _bursts(planned: Plan, speed: float) -> Iterable[tuple[float, str]]:
    """Yield (seconds after the start, text) for each write of a stream.

    A fast endpoint sends several tokens at a time: more than 25 writes a second look the same and only cost time.
    """
    pieces = planned.pieces
    gap = (planned.total_s - planned.first_token_s) / speed / max(1, len(pieces))
    at_once = max(1, math.ceil(_LEAST_GAP / gap)) if gap > 0 else max(1, len(pieces))
    for start in range(0, len(pieces), at_once):
        yield planned.first_token_s / speed + gap * start, "".join(pieces[start : start + at_once])


def _text(message: object) -> str:
    """Return the text of one message, whether its content is a string or a list of parts."""
    if not isinstance(message, dict):
        raise ValueError("Each of 'messages' must be an object with 'role' and 'content'.")  # noqa: TRY004 - a 400
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _limit(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"'max_tokens' must be a whole number of at least 1, not {value!r}.")
    return value


def _usage(planned: Plan) -> dict[str, int]:
    output = len(planned.pieces)
    return {
        "prompt_tokens": planned.prompt_tokens,
        "completion_tokens": output,
        "total_tokens": planned.prompt_tokens + output,
    }


def _vector(text: str, seed: int) -> list[float]:
    """Return a vector of length 1 that depends on nothing but the text's words: texts that share words are near."""
    total = [0.0] * _VECTOR
    for word in text.lower().split() or [""]:
        chance = random.Random(f"{seed} {word}")
        total = [value + chance.gauss(0.0, 1.0) for value in total]
    length = math.sqrt(sum(value * value for value in total)) or 1.0
    return [value / length for value in total]
