"""What a transport needs of the session it belongs to, and of the HTTP library it is made for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from fairq_ipy.policy import Settings
from fairq_ipy.runtime.keeper import Keeper
from fairq_ipy.runtime.scope import Identity

__all__ = ["AsyncInner", "Current", "Host", "Request", "Response", "Transport"]

Request: TypeAlias = Any
"""A request of httpx or of httpx2, which share an interface and no base."""

Response: TypeAlias = Any
"""A response of either."""

Transport: TypeAlias = Any
"""A transport of either, or whatever quacks like one."""


class Host(Protocol):
    """The session, as far as transports see it.

    Attributes:
        chat: a place for the clients of its own questions.
    """

    chat: Any

    @property
    def settings(self) -> Settings:
        """The policy that holds now."""

    @property
    def keeper(self) -> Keeper:
        """Whoever owns the queue."""

    def base_url(self) -> str:
        """Return the endpoint's URL, starting the built-in endpoint where the policy names that."""

    def api_key(self) -> str | None:
        """Return the endpoint's key; ``None`` when the policy names none."""

    def governs(self, method: str, url: str) -> bool:
        """Return whether that request is a call of the endpoint, which passes the queue."""

    def identify(self, tenant: str | None = None, priority: int | str | None = None) -> Identity:
        """Return who asks: the argument, else the scope around the caller, else the policy's default."""


Current: TypeAlias = Callable[[], Host]
"""Returns the session that holds now: a client outlives the session that it was made in."""


class AsyncInner(Protocol):
    """What does the I/O on the keeper's loop: an async transport of httpx or httpx2."""

    async def handle_async_request(self, request: Request) -> Response:
        """Send `request` and return its response."""

    async def aclose(self) -> None:
        """Close all connections."""
