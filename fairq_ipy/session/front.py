"""The functions of the package root: each asks the session of this kernel, which is made at the first of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, overload

from fairq_ipy.core.messages import Snapshot
from fairq_ipy.runtime import calls
from fairq_ipy.runtime.permits import PermitBlock
from fairq_ipy.session.kernel import Session

if TYPE_CHECKING:
    from fairq_ipy.transport.chat import Answer
    from fairq_ipy.transport.library import LibraryName

__all__ = [
    "aask",
    "ask",
    "async_http_client",
    "close",
    "governed",
    "http_client",
    "load",
    "pause",
    "permit",
    "resume",
    "run",
    "session",
    "snapshot",
    "submit",
]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class _Present:
    """The one place where the session of this kernel hangs."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.forget_lock()
        os.register_at_fork(after_in_child=self.forget_lock)

    def forget_lock(self) -> None:
        """Begin with a free lock: in a forked child, whoever held it is not there."""
        self.lock = threading.RLock()

    def live(self) -> Session | None:
        """Return the session unless it was closed."""
        found = self.session
        return None if found is None or found.closed else found


_present = _Present()


def session() -> Session:
    """Return the session of this kernel; the first call makes it, with the policy that is found, or the built-in one.

    In a forked child this is the parent's, whose calls raise `ConfigurationError`; `load` makes a new one there.

    Raises:
        PolicyError: the policy that is found cannot be used.
    """
    found = _present.live()
    if found is None:
        with _present.lock:
            found = _present.live()
            if found is None:
                found = _present.session = Session.find()
    return found


def load(path: str | os.PathLike[str] | None = None) -> Session:
    """Let the policy at `path` hold, or the one that is found; a session that is there goes on with it.

    Args:
        path: a policy file. ``None`` takes the one that ``FAIRQ_POLICY`` names, else ``policies/team.yaml`` or
            ``fairq.yaml`` from the working directory upward, else the built-in policy.

    Returns:
        The session of this kernel.

    Raises:
        PolicyError: the policy cannot be used, with all that is wrong with it; a policy that holds already holds on.
    """
    with _present.lock:
        found = _present.live()
        if found is None or found.keeper.orphaned:
            if found is not None:
                found.guard.forget()
            found = _present.session = Session.find(path)
        else:
            found.load(path)
    return found


def close() -> None:
    """Close the session of this kernel, if there is one; the next call makes a new one."""
    with _present.lock:
        found, _present.session = _present.session, None
    if found is not None:
        found.close()


def snapshot() -> Snapshot:
    """Return the picture of the queue at this moment; its times are seconds since the epoch."""
    return session().snapshot()


def pause(tenant: str | None = None) -> None:
    """Let no further call of `tenant` go (``None``: of all); those under way end as they are.

    Raises:
        UnknownTenantError: the policy names all who may ask, and not this one.
    """
    session().pause(tenant)


def resume(tenant: str | None = None) -> None:
    """Let calls of `tenant` go again (``None``: of all).

    Raises:
        UnknownTenantError: the policy names all who may ask, and not this one.
    """
    session().resume(tenant)


# ------------------------------------------------------------------------------------------------- work of one's own


def permit(
    cost: int | None = None,
    messages: int | None = None,
    tenant: str | None = None,
    priority: int | str | None = None,
) -> PermitBlock:
    """Hold one slot of the endpoint for I/O of one's own: ``with fairq.permit():``, or ``async with``.

    Governed calls inside the block use its slot, one at a time; so does a permit inside.

    Args:
        cost: estimated tokens of the request; a call of unknown size counts like an ordinary answer.
        messages: messages in it, for the tenant's limits.
        tenant: who asks; ``None`` takes the ``with fairq.tenant(...)`` around it, else the policy's default.
        priority: level, 0 to 9 or a level's name; ``None`` takes the tenant's.

    Raises:
        Refused: when the block is entered and the queue says no; which one says why.
    """
    return session().permit(cost, messages, tenant, priority)


@overload
async def submit(
    function: Callable[..., Coroutine[Any, Any, T]],
    *args: Any,
    tenant: str | None = ...,
    priority: int | str | None = ...,
    **kwargs: Any,
) -> T: ...
@overload
async def submit(
    function: Callable[..., T],
    *args: Any,
    tenant: str | None = ...,
    priority: int | str | None = ...,
    **kwargs: Any,
) -> T: ...
async def submit(
    function: Callable[..., Any],
    *args: Any,
    tenant: str | None = None,
    priority: int | str | None = None,
    **kwargs: Any,
) -> Any:
    """Run ``function(*args, **kwargs)`` when its turn has come, and return its result.

    A coroutine function runs on the running loop, a plain one in a thread of its own with the caller's context.

    Args:
        function: what to run.
        *args: its own arguments.
        **kwargs: its own keyword arguments, as far as they are called neither ``tenant`` nor ``priority``.
        tenant: who asks.
        priority: level, 0 to 9 or a level's name.

    Raises:
        Refused: the queue says no; which one says why. Besides, whatever the function raises.
    """
    return await session().submit(function, *args, tenant=tenant, priority=priority, **kwargs)


@overload
def run(
    function: Callable[..., Coroutine[Any, Any, T]],
    *args: Any,
    tenant: str | None = ...,
    priority: int | str | None = ...,
    **kwargs: Any,
) -> T: ...
@overload
def run(
    function: Callable[..., T],
    *args: Any,
    tenant: str | None = ...,
    priority: int | str | None = ...,
    **kwargs: Any,
) -> T: ...
def run(
    function: Callable[..., Any],
    *args: Any,
    tenant: str | None = None,
    priority: int | str | None = None,
    **kwargs: Any,
) -> Any:
    """Do as `submit`, blocking; also where a loop is running, as in a notebook's cell, and for coroutine functions."""
    return session().run(function, *args, tenant=tenant, priority=priority, **kwargs)


@overload
def governed(tenant: F) -> F: ...
@overload
def governed(tenant: str | None = None, priority: int | str | None = None) -> Callable[[F], F]: ...
def governed(tenant: str | Callable[..., Any] | None = None, priority: int | str | None = None) -> Callable[..., Any]:
    """Have every call of a function wait for its turn: ``@fairq.governed(tenant="logs")``, or bare ``@fairq.governed``.

    Args:
        tenant: who asks.
        priority: level, 0 to 9 or a level's name.

    Raises:
        ConfigurationError: the function is a generator.
    """
    if callable(tenant):
        return calls.governed(permit, tenant)
    return lambda function: calls.governed(lambda: permit(tenant=tenant, priority=priority), function)


# ----------------------------------------------------------------------------------------------------------- transport


def http_client(
    tenant: str | None = None, priority: int | str | None = None, library: LibraryName = "auto", **client_kwargs: Any
) -> Any:  # noqa: ANN401 - httpx.Client or httpx2.Client, whichever is asked for
    """Return a client to hand to an SDK, whose calls of the endpoint pass the queue.

    Args:
        tenant: who asks.
        priority: level, 0 to 9 or a level's name.
        library: ``httpx``, ``httpx2``, or ``auto`` for the one that the installed SDK takes.
        client_kwargs: what the client class itself takes, such as ``timeout``.
    """
    from fairq_ipy.transport import clients

    return clients.http_client(session, tenant, priority, library, **client_kwargs)


def async_http_client(
    tenant: str | None = None, priority: int | str | None = None, library: LibraryName = "auto", **client_kwargs: Any
) -> Any:  # noqa: ANN401 - httpx.AsyncClient or httpx2.AsyncClient, whichever is asked for
    """Do as `http_client`, for an SDK's asynchronous side."""
    from fairq_ipy.transport import clients

    return clients.async_http_client(session, tenant, priority, library, **client_kwargs)


def ask(prompt: Any, **options: Any) -> Answer:  # noqa: ANN401 - a text or a list of messages
    """Ask the endpoint's model, and return its answer when it is complete.

    Args:
        prompt: a text, or a list of messages.
        options: ``tenant``, ``priority``, ``model``, ``system``, ``max_tokens``, ``temperature``, ``timeout``,
            ``stream``, ``on_text`` (called with each piece), ``on_place`` (called with the place in the queue).

    Raises:
        Refused: the queue says no.
        EndpointError: the endpoint refuses or fails.
    """
    from fairq_ipy.transport import chat

    return chat.ask(session(), prompt, **options)


async def aask(prompt: Any, **options: Any) -> Answer:  # noqa: ANN401 - a text or a list of messages
    """Do as `ask`, for a coroutine."""
    from fairq_ipy.transport import chat

    return await chat.aask(session(), prompt, **options)
