"""Who asks, and under which permit: what a call inherits from the code around it.

Both live in context variables, so that two tasks or two threads never mix, and what a task starts inherits what its
parent had. Executor threads inherit nothing by themselves: `asyncio.to_thread`, `fairq.submit` and `fairq.run` copy the
context, a bare ``ThreadPoolExecutor`` does not; `fairq.carry` takes it along.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar, cast

from fairq_ipy.errors import ConfigurationError
from fairq_ipy.runtime.work import Lender

__all__ = ["Identity", "Scope", "current_lender", "current_scope", "leave_all", "set_lender", "tenant"]

F = TypeVar("F", bound=Callable[..., Any])


class Identity(NamedTuple):
    """Who a call belongs to: what the queue needs to know.

    Attributes:
        tenant: who asks.
        level: priority class, 0 to 9; lower is sooner.
    """

    tenant: str
    level: int


class Scope(NamedTuple):
    """One ``with fairq.tenant(...)`` that is open around the running code.

    Attributes:
        tenant: its name.
        priority: its level as the caller gave it; ``None`` takes the tenant's own.
        maker: the object that opened it.
        outer: the scope around it.
    """

    tenant: str
    priority: int | str | None
    maker: object
    outer: Scope | None


_scope: Final[ContextVar[Scope | None]] = ContextVar("fairq_scope", default=None)


_lender: Final[ContextVar[Lender | None]] = ContextVar("fairq_permit", default=None)

current_lender: Final = _lender.get
"""Returns the innermost permit around the running code; ``None`` outside of all."""


set_lender: Final = _lender.set
"""Sets it, for the present context."""


def current_scope() -> Scope | None:
    """Return the innermost scope around the running code; ``None`` outside of all."""
    return _scope.get()


def leave_all() -> None:
    """Leave every scope of the present context."""
    _scope.set(None)


class tenant:  # noqa: N801 - reads as a word: `with fairq.tenant("logs"):`
    """Everything inside asks as this tenant: a context manager and a decorator.

    ::

        with fairq.tenant("agent-c", priority="batch"):
            ...                                  # sync or async; `async with` works too

        @fairq.tenant("agent-c")
        async def agent(): ...                   # functions, coroutine functions, generators, async generators

    Scopes nest; the innermost one counts as a whole, its priority included. One object may be entered many times, also
    at the same time by many threads and tasks.

    Args:
        name: the tenant.
        priority: level, 0 to 9 or a level's name; ``None`` takes the tenant's own from the policy.

    Raises:
        ConfigurationError: the name is empty or no text. Whether the policy knows it is seen when a call is made.
    """

    def __init__(self, name: str, priority: int | str | None = None) -> None:
        self.name = checked_name(name)
        self.priority = priority

    def __repr__(self) -> str:
        """Return how it was made."""
        tail = "" if self.priority is None else f", priority={self.priority!r}"
        return f"tenant({self.name!r}{tail})"

    def __enter__(self) -> Self:
        outer = _scope.get()
        try:
            _scope.set(Scope(self.name, self.priority, self, outer))
        except BaseException:  # an interrupt that strikes here would leave the scope open in a notebook for ever
            _scope.set(outer)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The present scope says what to go back to, not this object: it may be open elsewhere, too. A block that is
        # left in another context than it was entered in (a generator moved between tasks) finds nothing to undo.
        try:
            _scope.set(_without(_scope.get(), self))
        except BaseException:  # an interrupt that strikes inside: once more, and then it may go on
            _scope.set(_without(_scope.get(), self))
            raise

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __call__(self, function: F) -> F:
        """Return `function`, made to run inside this scope."""
        if inspect.isasyncgenfunction(function):
            return cast("F", _wrap_async_generator(self, function))
        if inspect.isgeneratorfunction(function):
            return cast("F", _wrap_generator(self, function))
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def inside(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - what the function returns
                with self:
                    return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def inside(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - what the function returns
                with self:
                    return function(*args, **kwargs)

        return cast("F", inside)


def checked_name(name: object) -> str:
    """Return a tenant's name, or raise `ConfigurationError` when it cannot be one."""
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"a tenant's name is a text that is not empty, not {name!r}")
    return name


def _without(scope: Scope | None, maker: object) -> Scope | None:
    """Return the chain without its innermost scope of `maker`."""
    if scope is None or scope.maker is maker:
        return None if scope is None else scope.outer
    rest = _without(scope.outer, maker)
    return scope if rest is scope.outer else scope._replace(outer=rest)


def _wrap_generator(scope: tenant, function: Callable[..., Any]) -> Callable[..., Any]:
    """Run only the generator's own steps inside the scope: what consumes it between two steps stays outside."""

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with scope:
            steps = function(*args, **kwargs)
        step, value = steps.send, None
        try:
            while True:
                try:
                    with scope:
                        item = step(value)
                except StopIteration as stop:
                    return stop.value
                try:
                    value = yield item
                    step = steps.send
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in by the consumer: the generator's to handle
                    step, value = steps.throw, error
        finally:
            with scope:
                steps.close()

    return inside


def _wrap_async_generator(scope: tenant, function: Callable[..., Any]) -> Callable[..., Any]:
    """Do the same for an async generator."""

    @functools.wraps(function)
    async def inside(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with scope:
            steps = function(*args, **kwargs)
        step, value = steps.asend, None
        try:
            while True:
                try:
                    with scope:
                        item = await step(value)
                except StopAsyncIteration:
                    return
                try:
                    value = yield item
                    step = steps.asend
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in by the consumer: the generator's to handle
                    step, value = steps.athrow, error
        finally:
            with scope:
                await steps.aclose()

    return inside
