"""Clients to hand to an SDK: real clients of httpx or httpx2, with every setting of theirs in force.

A client of either library makes its transports in two places, `_init_transport` and `_init_proxy_transport`, the same
in all their versions. Overriding these, instead of handing in a transport, keeps what a handed-in transport switches
off: proxies of the environment, ``verify``, ``cert``, ``http2``, ``limits``.
"""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple, TypeAlias

from fairq_ipy.transport import headers
from fairq_ipy.transport.foreign import AsyncForeignTransport, ForeignTransport
from fairq_ipy.transport.governing import FOLLOW, Caller
from fairq_ipy.transport.host import AsyncInner, Current, Host, Request, Response, Transport
from fairq_ipy.transport.httpx_transport import AsyncGovernedTransport, GovernedTransport
from fairq_ipy.transport.library import Library, LibraryName, choose
from fairq_ipy.transport.network import settle_in
from fairq_ipy.transport.pools import Pool

__all__ = ["Client", "async_http_client", "http_client"]

Client: TypeAlias = Any
"""A client of httpx or of httpx2."""

TIMEOUT: Final = 600.0
"""Seconds that an answer may take by default, as in the SDKs; a model that writes for long is no network failure."""

CONNECT: Final = 5.0
"""Seconds that a connection may take by default."""


def http_client(
    session: Host | Current,
    tenant: str | None = None,
    priority: int | str | None = None,
    library: LibraryName = "auto",
    **client_kwargs: Any,
) -> Client:
    """Return a sync client whose calls of the endpoint pass the queue.

    Args:
        session: whose queue; a function is asked for it at every call.
        tenant: who asks.
        priority: level, 0 to 9 or a level's name.
        library: ``httpx``, ``httpx2``, or ``auto`` for the one that the installed SDKs take.
        client_kwargs: what the client class itself takes. Without a ``timeout`` an answer has 600 s and a connection
            5 s; time in the queue never counts. Redirects are followed unless told otherwise.

    Raises:
        ConfigurationError: the library is not installed, there is no such level, or a header cannot be sent.
        UnknownTenantError: the policy does not let that tenant ask.
    """
    caller = _caller(session, tenant, priority, choose(library))
    return _kinds(caller.library).sync(caller, **_completed(caller.library, client_kwargs))


def async_http_client(
    session: Host | Current,
    tenant: str | None = None,
    priority: int | str | None = None,
    library: LibraryName = "auto",
    **client_kwargs: Any,
) -> Client:
    """Return an async client likewise; it may serve several loops, also one after the other."""
    caller = _caller(session, tenant, priority, choose(library))
    return _kinds(caller.library).asynchronous(caller, **_completed(caller.library, client_kwargs))


def _caller(session: Host | Current, tenant: str | None, priority: int | str | None, library: Library) -> Caller:
    current: Current = session if callable(session) else lambda: session
    if tenant is not None or priority is not None:
        current().identify(tenant, priority)  # a wrong name is told where it was written
    return Caller(current, library, tenant, priority)


def _completed(library: Library, settings: dict[str, Any]) -> dict[str, Any]:
    headers.check_given(settings.get("headers"))
    defaults = {"timeout": library.module.Timeout(TIMEOUT, connect=CONNECT), "follow_redirects": True}
    return {**defaults, **settings}


class _Governing:
    """The overrides that both kinds of client share; it stands before the library's class."""

    _governed: Any
    _foreign: Any

    def __init__(self, caller: Caller, **settings: Any) -> None:
        self._caller = caller
        self._mounts: dict[Any, Transport] = {}
        super().__init__(**settings)
        # Mounts that the user gave were put in without asking us.
        self._mounts = {pattern: self._wrapped(transport) for pattern, transport in self._mounts.items()}

    def _wrapped(self, transport: Transport) -> Transport:
        if transport is None or isinstance(transport, (self._governed, self._foreign)):
            return transport
        return self._foreign(self._caller, transport)

    def _init_transport(self, transport: Transport = None, **settings: Any) -> Transport:
        if transport is not None:
            return self._wrapped(transport)
        return self._made(super()._init_transport, settings)  # type: ignore[misc]  # the library's

    def _init_proxy_transport(self, proxy: object, **settings: Any) -> Transport:
        make = functools.partial(super()._init_proxy_transport, proxy)  # type: ignore[misc]  # the library's
        return self._made(make, settings, proxy=proxy)

    def _made(self, make_plain: Any, settings: dict[str, Any], **more: Any) -> Transport:  # noqa: ANN401 - a hook of httpx
        """Return a governed transport with the client's settings on both of its sides."""
        module = self._caller.library.module
        settings.pop("app", None)  # httpx before 0.28
        # Certificates are read once for both, and a wrong path to them is told here and now.
        cert, trust_env = settings.pop("cert", None), settings.get("trust_env", True)
        settings["verify"] = module.create_ssl_context(
            verify=settings.get("verify", True), cert=cert, trust_env=trust_env
        )
        pool = Pool(functools.partial(_inner, self._caller.library, **settings, **more))
        return self._governed(self._caller, pool, make_plain(**settings))

    def build_request(self, method: str, url: Any, **settings: Any) -> Request:  # noqa: ANN401 - a URL or its text
        """Do as the library does, once the headers are known to be sendable."""
        headers.check_given(settings.get("headers"))
        return super().build_request(method, url, **settings)  # type: ignore[misc]  # the library's


def _inner(library: Library, **settings: Any) -> AsyncInner:
    """Return what sends on the keeper's loop. It knows no client: who is forgotten is not kept by its connections."""
    return settle_in(library.module.AsyncHTTPTransport(**settings), library.name)


class _Kinds(NamedTuple):
    sync: Any
    asynchronous: Any


@functools.cache
def _kinds(library: Library) -> _Kinds:
    """Return the governed client classes of a library, the same ones each time."""
    module = library.module

    # The bases are only known at run time.
    class GovernedClient(_Governing, module.Client):  # type: ignore[name-defined, misc] # see above
        """A client whose model calls pass the queue."""

        _governed, _foreign = GovernedTransport, ForeignTransport

        def _send_handling_redirects(self, request: Request, *args: Any, **kwargs: Any) -> Response:
            _say_whether_to_follow(request, *args, **kwargs)
            return super()._send_handling_redirects(request, *args, **kwargs)

    class GovernedAsyncClient(_Governing, module.AsyncClient):  # type: ignore[name-defined, misc] # see above
        """An async client whose model calls pass the queue."""

        _governed, _foreign = AsyncGovernedTransport, AsyncForeignTransport

        async def _send_handling_redirects(self, request: Request, *args: Any, **kwargs: Any) -> Response:
            _say_whether_to_follow(request, *args, **kwargs)
            return await super()._send_handling_redirects(request, *args, **kwargs)

    return _Kinds(GovernedClient, GovernedAsyncClient)


def _say_whether_to_follow(request: Request, follow_redirects: bool, history: list[Response]) -> None:  # noqa: FBT001 - httpx's
    """Tell the transport what only the client knows: whether a redirect is gone after."""
    del history
    request.extensions = {**request.extensions, FOLLOW: follow_redirects}
