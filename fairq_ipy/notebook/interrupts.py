"""Interrupts that are told calmly, and interrupts that come after a step instead of inside it.

Most code needs nothing of the second kind: it gives back in ``finally`` what it took. It is for steps that
cannot be done by halves, such as receiving a message of several parts: half of it is lost, and takes the next message
with it.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

__all__ = ["Deferral", "interrupts_deferred", "told_calmly"]

Handler: TypeAlias = Callable[[int, FrameType | None], Any]


@contextmanager
def told_calmly() -> Generator[None]:
    """Let IPython show an interrupt of this block as one line: the user knows where the stop button was pressed."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.__dict__["_render_traceback_"] = lambda *_args, **_kwargs: ["KeyboardInterrupt: stopped"]
        raise


class Deferral:
    """Interrupts that wait. One deferral lasts for one block, on the main thread."""

    def __init__(self, usual: Handler) -> None:
        self._usual = usual
        self._came: int | None = None

    def start(self) -> None:
        """Let interrupts wait from now on."""
        signal.signal(signal.SIGINT, self._note)

    def end(self) -> None:
        """Let them through again, first of all the one that waits."""
        signal.signal(signal.SIGINT, self._usual)
        number, self._came = self._came, None
        if number is not None:
            self._usual(number, sys._getframe())  # noqa: SLF001 - a handler is told which frame it interrupts

    @contextmanager
    def lifted(self) -> Generator[None]:
        """Let interrupts through in this block."""
        try:
            self.end()
            yield
        finally:
            self.start()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._came = number


class _Never(Deferral):
    """Stands in where interrupts do not come anyway: off the main thread, or where SIGINT is ignored or fatal."""

    def __init__(self) -> None:
        super().__init__(signal.default_int_handler)

    def start(self) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


@contextmanager
def interrupts_deferred() -> Generator[Deferral]:
    """Let an interrupt come after the block; `Deferral.lifted` lets it through in a part of it."""
    usual = signal.getsignal(signal.SIGINT)
    on_main = threading.current_thread() is threading.main_thread()
    deferral = Deferral(usual) if on_main and callable(usual) else _Never()
    try:
        deferral.start()
        yield deferral
    finally:
        deferral.end()
