"""What all governed transports share: which requests are theirs, who asks, and how an answer becomes a response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from fairq_ipy.core.messages import Place
from fairq_ipy.core.model import Ticket
from fairq_ipy.errors import ConfigurationError, FairqError
from fairq_ipy.transport import headers, refusals, wire
from fairq_ipy.transport.host import Current, Host, Request, Response
from fairq_ipy.transport.library import Library
from fairq_ipy.transport.refusals import RawHeaders

__all__ = ["EXTENSION", "FOLLOW", "Call", "Caller", "Governing", "Wish", "route_of"]

EXTENSION: Final = "fairq"
"""Key of a request's extensions for a `Wish`, and of a response's for the `Account` of its call."""

FOLLOW: Final = "fairq_follow"
"""Key of a request's extensions that says whether its client follows redirects."""

# What the body of a request is read as, and the shape of an error depends on.
_ROUTES: Final = ("chat/completions", "completions", "responses", "embeddings", "messages")


class Caller(NamedTuple):
    """Who a client asks for.

    Attributes:
        current: returns the session.
        library: the client's library.
        tenant: who asks; ``None`` leaves it to the request and to the scope around the call.
        priority: level; ``None`` likewise.
    """

    current: Current
    library: Library
    tenant: str | None = None
    priority: int | str | None = None


class Wish(NamedTuple):
    """What our own front end wants of one call beyond HTTP; travels in the request's extensions.

    Attributes:
        tenant: who asks; ``None`` takes the client's.
        priority: level; ``None`` likewise.
        max_wait: seconds in the queue at the most.
        deadline: on ``time.monotonic()``, when to give up altogether.
        on_place: called on the caller's thread about four times a second while the call waits, then once with ``None``.
    """

    tenant: str | None = None
    priority: int | str | None = None
    max_wait: float | None = None
    deadline: float | None = None
    on_place: Callable[[Place | None], object] | None = None


class Call(NamedTuple):
    """One governed request.

    Attributes:
        host: the session that holds for it.
        route: which of the governed paths it goes to.
        wish: what our own front end wants of it; ``None`` for all other traffic.
        named: what its headers say to the queue.
    """

    host: Host
    route: str
    wish: Wish | None
    named: dict[bytes, str]


class Governing:
    """The base of the governed transports.

    Args:
        caller: who asks.
    """

    # Extensions that are not sent on: hooks are user code, which the keeper does not run.
    _held_back = frozenset({"trace"})

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._governed: tuple[object, ...] = ()  # the latest URL that was governed, and by whom

    def _call(self, request: Request) -> Call | None:
        """Return the call that a request is; ``None`` for what is no call of the endpoint."""
        named = headers.read(request.headers.raw)
        if request.method != "POST":
            return None
        host = self._caller.current()
        url = str(request.url)
        known = (host, host.settings, url)
        if known != self._governed:
            if not host.governs("POST", url):
                return None
            self._governed = known
        wish = request.extensions.get(EXTENSION)
        return Call(host, route_of(request.url.path), wish if isinstance(wish, Wish) else None, named)

    def _ticket(self, call: Call, request: Request) -> tuple[Ticket, wire.Asked]:
        """Return the ticket for a request whose body is in memory, and what that asks for.

        Raises:
            UnknownTenantError: the policy does not let that tenant ask.
            ConfigurationError: there is no such level.
        """
        host, route, wish, named = call
        asked_by = Wish() if wish is None else wish
        tenants = (asked_by.tenant, self._caller.tenant, named.get(headers.TENANT))
        priorities = (asked_by.priority, self._caller.priority, named.get(headers.PRIORITY))
        identity = host.identify(
            next((tenant for tenant in tenants if tenant is not None), None),
            next((priority for priority in priorities if priority is not None), None),
        )
        asked = wire.read(request.content, route)
        ticket = Ticket(
            host.keeper.next_id(),
            identity.tenant,
            identity.level,
            asked.prompt_tokens,
            asked.max_tokens,
            asked.messages,
            asked.model,
            asked_by.max_wait,
        )
        return ticket, asked

    def _stripped(self, request: Request) -> Request:
        """Return `request` as it may be sent."""
        raw, held_back = request.headers.raw, self._held_back
        ours = any(name.lower() in headers.OURS for name, _ in raw)
        if not ours and held_back.isdisjoint(request.extensions):
            return request
        return type(request)(
            request.method,
            request.url,
            headers=[(name, value) for name, value in raw if name.lower() not in headers.OURS],
            stream=request.stream,
            extensions={key: value for key, value in request.extensions.items() if key not in held_back},
        )

    def _refusal(self, error: FairqError, call: Call) -> Response:
        """Return what the caller gets for an error of the queue, or raise it."""
        if call.wish is not None or isinstance(error, ConfigurationError):
            raise error
        status, raw, body = refusals.synthetic(error, call.route)
        return self._response(status, raw, self._caller.library.module.ByteStream(body), {})

    def _response(self, status: int, raw: RawHeaders, stream: object, extensions: dict[str, Any]) -> Response:
        return self._caller.library.module.Response(status, headers=raw, stream=stream, extensions=extensions)


def route_of(path: str) -> str:
    """Return which of the known calls a governed path makes; the path itself where the policy added it."""
    path = path.rstrip("/")
    return next((route for route in _ROUTES if path.endswith("/" + route)), path)
