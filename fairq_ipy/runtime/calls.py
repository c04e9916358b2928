"""Functions in the queue: awaited (`submit`), blocking (`run`), or decorated (`governed`)."""
# ruff: noqa: ANN401 - whatever the user's function returns passes through here

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar

from fairq_ipy.core.model import Outcome
from fairq_ipy.errors import ConfigurationError
from fairq_ipy.runtime.gate import LoopGate, ThreadGate
from fairq_ipy.runtime.keeper import Keeper
from fairq_ipy.runtime.permits import PermitBlock

__all__ = ["governed", "run", "submit"]

F = TypeVar("F", bound=Callable[..., Any])


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calling `function` gives a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - its own coroutine-ness is asked, not whether it can be called


async def submit(block: PermitBlock, keeper: Keeper, function: Callable[[], Any], *, asynchronous: bool) -> Any:
    """Run `function` under a permit and return its result.

    A coroutine function runs on the running loop. A plain one runs in a thread of its own with the caller's context;
    when its caller is cancelled it runs to its end, since a thread cannot be stopped, and keeps its slot until then.
    """
    if asynchronous:
        async with block:
            return await function()
    await block.atake()
    gate = keeper.loop_gate()
    worker = threading.Thread(
        target=_work,
        args=(block, keeper, copy_context(), function, gate),
        name=f"fairq-call-{block.ticket}",
        daemon=True,
    )
    try:
        worker.start()
    except BaseException:
        if worker.ident is None:  # it never ran, so nobody else gives back
            block.give_back("unsent")
        raise
    return await gate


def _work(
    block: PermitBlock, keeper: Keeper, context: Context, function: Callable[[], Any], gate: LoopGate[Any]
) -> None:
    outcome: Outcome = "failed"
    try:
        context.run(block.enter)
        result = _finished(context.run(function))
        outcome = "ok"
    except BaseException as error:  # noqa: BLE001 - it is the caller's, on the other side
        block.give_back(outcome)
        keeper.post(gate.reject, error)
    else:
        block.give_back(outcome)
        keeper.post(gate.resolve, result)


def _finished(result: Any) -> Any:
    """Return `result`, unless it is work that has not been done yet, which would go on without the permit."""
    if inspect.iscoroutine(result):
        result.close()
        raise ConfigurationError(
            "the function returned a coroutine that nobody has run; hand over the coroutine function itself, with its "
            "arguments after it: fairq.submit(fetch, url) instead of fairq.submit(lambda: fetch(url))"
        )
    return result


def run(block: PermitBlock, keeper: Keeper, function: Callable[[], Any], *, asynchronous: bool) -> Any:
    """Run `function` under a permit, blocking, and return its result.

    A coroutine function gets a loop of its own; where a loop is running already (a notebook cell), in a thread of its
    own with the caller's context. An interrupt cancels it.
    """
    if not asynchronous:
        with block:
            return _finished(function())
    if asyncio._get_running_loop() is None:  # noqa: SLF001 - exported for exactly this question
        return asyncio.run(_under(block, function))
    gate = keeper.thread_gate()
    helper = _Helper(gate)
    worker = threading.Thread(
        target=copy_context().run, args=(helper.main, _under(block, function)), name="fairq-run", daemon=True
    )
    worker.start()
    try:
        return gate.wait()
    except BaseException:
        helper.cancel()
        raise


async def _under(block: PermitBlock, function: Callable[[], Any]) -> Any:
    async with block:
        return await function()


class _Helper:
    """A loop in a thread, for a coroutine that a blocked caller waits for."""

    def __init__(self, gate: ThreadGate[Any]) -> None:
        self._gate = gate
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    def main(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            self._gate.resolve(asyncio.run(self._watch(coroutine)))
        except BaseException as error:  # noqa: BLE001 - it is the caller's, on the other side
            self._gate.reject(error)

    async def _watch(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(coroutine)
        if self._cancelled:
            self._task.cancel()
        return await self._task

    def cancel(self) -> None:
        self._cancelled = True
        if self._loop is not None and self._task is not None:
            try:
                self._loop.call_soon_threadsafe(self._task.cancel)
            except RuntimeError:  # it has ended meanwhile
                return


def governed(permit: Callable[[], PermitBlock], function: F) -> F:
    """Return `function`, made to run under a permit of its own at every call.

    Raises:
        ConfigurationError: it is a generator, whose steps run when somebody else wants them to.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{function.__qualname__} is a generator, which would keep its slot while its consumer thinks; "
            "use `with fairq.permit():` around the calls inside it"
        )
    if is_async(function):

        @functools.wraps(function)
        async def inside(*args: Any, **kwargs: Any) -> Any:
            async with permit():
                return await function(*args, **kwargs)

    else:

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with permit():
                return function(*args, **kwargs)

    return inside  # type: ignore[return-value]  # same signature, as wraps() says
