"""A mark on the running code: this call of the endpoint has passed whoever watches such calls.

Libraries sit on each other, and a call passes several patched places on its way down (`fairq_ipy.transport.guard`). The
uppermost one deals with it and marks what it calls; all others let it through. A context variable, so that two calls
side by side do not mix.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["has_passed", "passing"]

_passing: Final[ContextVar[bool]] = ContextVar("fairq_passing", default=False)

has_passed: Final = _passing.get
"""Returns whether the running code is inside of a call that has been dealt with."""


@contextmanager
def passing() -> Iterator[None]:
    """Mark what runs inside."""
    before = _passing.get()
    _passing.set(True)
    try:
        yield
    finally:
        _passing.set(before)  # no token: a coroutine may be closed from another context than it ran in
