"""Asking the endpoint's model without an SDK: a question or a conversation, and its answer as it comes.

`ask` and `aask` are a chat completion on top of `http_client`: they pass the same queue by the same way. What differs
is the language of their errors: a refusal of the queue is raised as itself, and what the endpoint does wrong is an
`EndpointError` with the provider's own words.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

from fairq_ipy.core.messages import Place
from fairq_ipy.errors import ConfigurationError, EndpointError
from fairq_ipy.transport import blame, refusals
from fairq_ipy.transport.clients import Client, async_http_client, http_client
from fairq_ipy.transport.exchange import Account
from fairq_ipy.transport.governing import EXTENSION, Wish
from fairq_ipy.transport.host import Host, Request, Response
from fairq_ipy.transport.library import load
from fairq_ipy.transport.reply import Reply

__all__ = ["Answer", "Usage", "aask", "ask"]

Prompt: TypeAlias = str | Sequence[Mapping[str, Any]]
OnText: TypeAlias = Callable[[str], object]
OnPlace: TypeAlias = Callable[[Place | None], object]

_BAD_REQUEST: Final = frozenset({400, 422})


class Usage(NamedTuple):
    """What an answer cost, in tokens; `exact` when the endpoint counted, else it is an estimate."""

    prompt_tokens: int
    output_tokens: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said. It prints as its text and shows as Markdown.

    Attributes:
        text: the answer's text.
        usage: what it cost.
        wait_s: seconds in the queue.
        service_s: seconds from sending to the last byte.
        finish_reason: how the model ended, as ``stop`` or ``length``; ``None`` when it did not say.
        model: the model that answered, as far as it says.
        ticket: number of the call, for ``%fairq story``.
        messages: the conversation, this answer included: what to pass to `ask` together with the next question.
    """

    text: str
    usage: Usage
    wait_s: float
    service_s: float
    finish_reason: str | None
    model: str
    ticket: int
    messages: tuple[Mapping[str, Any], ...]

    def __str__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return self.text


def ask(
    session: Host,
    prompt: Prompt,
    *,
    tenant: str | None = None,
    priority: int | str | None = None,
    model: str | None = None,
    system: str | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    timeout: float | None = None,
    stream: bool = True,
    on_text: OnText | None = None,
    on_place: OnPlace | None = None,
) -> Answer:
    """Ask, and return the answer when it is complete.

    Args:
        session: whose queue and endpoint.
        prompt: a text, or messages with ``role`` and ``content``.
        tenant: who asks.
        priority: level, 0 to 9 or a level's name.
        model: its name; ``None`` takes the policy's.
        system: a system message; it replaces the one in `prompt`.
        max_tokens: the most the model may write.
        temperature: as the endpoint takes it.
        timeout: seconds for everything, the wait in the queue included.
        stream: whether to read the answer as it is written.
        on_text: called on this thread with each piece of text.
        on_place: called on this thread about four times a second while the call waits, and with ``None`` when it goes.

    Raises:
        Refused: the queue says no.
        EndpointError: the endpoint is out of reach, refuses, fails, or says something that is no answer.
        StreamReclaimedError: the server fell silent.
        ConfigurationError: there is nothing to ask, or the key cannot be sent.
    """
    body = _body(
        session, prompt, model=model, system=system, max_tokens=max_tokens, temperature=temperature, stream=stream
    )
    asking = _Asking(session, body, _wish(session, tenant, priority, timeout, on_place), timeout)
    with closing(_texts(asking)) as texts:
        for text in texts:
            if text and on_text is not None:
                on_text(text)
    return asking.answer()


async def aask(
    session: Host,
    prompt: Prompt,
    *,
    tenant: str | None = None,
    priority: int | str | None = None,
    model: str | None = None,
    system: str | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    timeout: float | None = None,
    stream: bool = True,
    on_text: OnText | None = None,
    on_place: OnPlace | None = None,
) -> Answer:
    """Do as `ask`, for a coroutine; the callbacks are plain functions, called on its loop."""
    body = _body(
        session, prompt, model=model, system=system, max_tokens=max_tokens, temperature=temperature, stream=stream
    )
    asking = _Asking(session, body, _wish(session, tenant, priority, timeout, on_place), timeout)
    async with aclosing(_atexts(asking)) as texts:
        async for text in texts:
            if text and on_text is not None:
                on_text(text)
    return asking.answer()


def _texts(asking: _Asking) -> Generator[str, None, None]:
    """Yield the answer's text as it comes. What the callbacks raise stays outside of this."""
    client = asking.clients.sync
    try:
        while True:
            response = client.send(asking.request(client), stream=True)
            with closing(response):
                if response.is_error:
                    response.read()
                    asking.simplify(response)
                    continue
                reply = asking.begin(response)
                for chunk in response.iter_bytes():
                    yield reply.feed(chunk)
                yield reply.end()
                return
    except (TimeoutError, load("httpx").module.HTTPError) as error:
        raise asking.failed(error) from error


async def _atexts(asking: _Asking) -> AsyncGenerator[str, None]:
    client = asking.clients.asynchronous
    try:
        while True:
            response = await client.send(asking.request(client), stream=True)
            async with aclosing(response):
                if response.is_error:
                    await response.aread()
                    asking.simplify(response)
                    continue
                reply = asking.begin(response)
                async with aclosing(response.aiter_bytes()) as chunks:
                    async for chunk in chunks:
                        yield reply.feed(chunk)
                yield reply.end()
                return
    except (TimeoutError, load("httpx").module.HTTPError) as error:
        raise asking.failed(error) from error


class _Clients:
    """The clients of one session's questions, each made when it is first needed; they keep its connections."""

    def __init__(self, session: Host) -> None:
        self._session = session

    @cached_property
    def sync(self) -> Client:
        return http_client(self._session, library="httpx")

    @cached_property
    def asynchronous(self) -> Client:
        return async_http_client(self._session, library="httpx")


class _Asking:
    """One question under way.

    Args:
        session: whose.
        body: what to send.
        wish: what it wants of the queue.
        timeout: seconds for everything.
    """

    def __init__(self, session: Host, body: dict[str, Any], wish: Wish, timeout: float | None) -> None:
        key = session.api_key()
        self._session = session
        self._url = f"{session.base_url().rstrip('/')}/chat/completions"
        self._headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._body = body
        self._wish = wish
        self._timeout = timeout
        self._account: Account | None = None
        self._reply: Reply | None = None
        self._type = ""

    @property
    def clients(self) -> _Clients:
        """The session's own clients."""
        session = self._session
        if session.chat is None:
            session.chat = _Clients(session)
        found: _Clients = session.chat
        return found

    def request(self, client: Client) -> Request:
        """Return the request."""
        return client.build_request(
            "POST", self._url, json=self._body, headers=self._headers, extensions={EXTENSION: self._wish}
        )

    def simplify(self, response: Response) -> None:
        """Ask for less where the endpoint does not know what it was asked for, else raise what it said."""
        self._account = response.extensions.get(EXTENSION)
        if response.status_code in _BAD_REQUEST:
            said = response.text
            if self._body.pop("stream_options", None) is not None and "stream_options" in said:
                return
            if self._body["stream"] and "stream" in said:
                self._body["stream"] = False
                return
        raise blame.refused(self._call, response)

    def begin(self, response: Response) -> Reply:
        """Return the reader for an answer."""
        self._account = response.extensions.get(EXTENSION)
        self._type = response.headers.get("content-type", "")
        self._reply = Reply(self._type)
        return self._reply

    def failed(self, error: BaseException) -> EndpointError:
        """Return what the caller gets for an error of the network, or of time."""
        partial = "" if self._reply is None else self._reply.text
        if isinstance(error, TimeoutError):
            return blame.too_late(self._call, self._timeout or 0.0, partial)
        if self._reply is None:
            return blame.out_of_reach(self._call, error)
        return blame.broke_off(self._call, partial, error)

    def answer(self) -> Answer:
        """Return the answer, or raise what is wrong with it."""
        reply, account = self._reply, self._account
        if reply is None or account is None or account.receipt is None:
            raise EndpointError(f"{self._url} gave no answer")
        if reply.error is not None:
            raise blame.said_error(self._call, reply.error, reply.text)
        if not reply.readable:
            raise blame.no_answer(self._call, refusals.provider_text(reply.raw, self._type), self._type)
        if not reply.finished:
            raise blame.broke_off(self._call, reply.text)
        receipt = account.receipt
        said = {"role": "assistant", "content": reply.text}
        return Answer(
            text=reply.text,
            usage=Usage(receipt.prompt_tokens, receipt.output_tokens, receipt.exact),
            wait_s=account.wait_s,
            service_s=account.service_s or 0.0,
            finish_reason=account.finish_reason,
            model=account.model or self._body.get("model", ""),
            ticket=account.ticket,
            messages=(*self._body["messages"], said),
        )

    @property
    def _call(self) -> blame.Call:
        account = self._account
        call = blame.Call(self._url, self._session.settings.endpoint.api_key_env, bool(self._headers))
        if account is None:
            return call
        return call._replace(tenant=account.tenant, ticket=account.ticket, attempts=max(account.attempts, 1))


def _wish(
    session: Host, tenant: str | None, priority: int | str | None, timeout: float | None, on_place: OnPlace | None
) -> Wish:
    bound = session.settings.rules.limits.max_wait
    waits = [wait for wait in (bound, timeout) if wait is not None]
    return Wish(
        tenant=tenant,
        priority=priority,
        max_wait=min(waits, default=None),
        deadline=None if timeout is None else time.monotonic() + timeout,
        on_place=on_place,
    )


def _body(
    session: Host, prompt: Prompt, *, model: str | None, system: str | None, stream: bool, **more: Any
) -> dict[str, Any]:
    """Return the JSON of a chat completion."""
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(each) for each in prompt]
    if not messages or (isinstance(prompt, str) and not prompt.strip()):
        raise ConfigurationError("there is nothing to ask: the prompt is empty")
    if system is not None:
        rest = [message for message in messages if message.get("role") != "system"]
        messages = [{"role": "system", "content": system}, *rest]
    body: dict[str, Any] = {"messages": messages, "stream": stream}
    endpoint = session.settings.endpoint
    name = endpoint.model if model is None else model
    if name is not None:
        body["model"] = name
    body.update({key: value for key, value in more.items() if value is not None})
    if stream and endpoint.stream_usage:
        body["stream_options"] = {"include_usage": True}
    return body
