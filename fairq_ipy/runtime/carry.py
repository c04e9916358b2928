"""Taking along who asks to where Python does not: into threads of an executor, into callbacks of other libraries."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import copy_context
from typing import ParamSpec, TypeVar

from fairq_ipy.errors import ConfigurationError

__all__ = ["carry"]

P = ParamSpec("P")
R = TypeVar("R")


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function`, made to ask as the code that called ``carry``, wherever it runs.

    ::

        with fairq.tenant("logs"):
            pool.map(fairq.carry(summarise), files)                     # a ThreadPoolExecutor
            await loop.run_in_executor(None, fairq.carry(summarise), file)

    The whole context is taken along, as by `asyncio.to_thread`: the ``with fairq.tenant(...)`` around it, a permit,
    and whatever other libraries keep there. Each call gets a copy of its own, so many may run at once. Tasks, and what
    is handed to `fairq.submit`, `fairq.run` and `asyncio.to_thread`, inherit by themselves.

    Args:
        function: a plain function.

    Raises:
        ConfigurationError: it is a coroutine function or a generator, whose steps run in whatever context drives them.
    """
    if any(
        kind(function)
        for kind in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    ):
        name = getattr(function, "__qualname__", repr(function))
        raise ConfigurationError(
            f"{name} runs step by step, in whatever context drives it: tasks inherit who asks by themselves, and "
            f"@fairq.tenant(...) tags a generator"
        )
    context = copy_context()

    @functools.wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        return context.copy().run(function, *args, **kwargs)

    return carried
