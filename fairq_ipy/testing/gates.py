"""A door between a test and a reply: the reply stops in front of it until the test opens it."""

from __future__ import annotations

import asyncio
import threading

__all__ = ["Gate"]


class Gate:
    """Holds replies until `open` is called, from any thread. Once open it stays open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    @property
    def is_open(self) -> bool:
        """Whether replies pass."""
        return self._open

    def open(self) -> None:
        """Let through whoever waits and whoever comes. Opening twice is opening once."""
        with self._lock:
            self._open = True
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def passed(self) -> None:
        """Wait until the gate is open."""
        event = asyncio.Event()
        with self._lock:
            if self._open:
                return
            self._waiting.append((asyncio.get_running_loop(), event))
        await event.wait()
