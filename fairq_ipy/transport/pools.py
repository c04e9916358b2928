"""The connections of one client, on the keeper's loop.

A client outlives the session it was made in, and connections belong to a loop. So each client keeps a recipe, and has
connections on the loop of whichever keeper it last met. They are closed with the client, with the keeper, or when the
client is forgotten, whichever comes first.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from fairq_ipy.runtime.keeper import Keeper
from fairq_ipy.transport.host import AsyncInner

__all__ = ["Pool"]


class _Connections:
    """One inner transport on one keeper's loop, closed on that loop."""

    def __init__(self, keeper: Keeper, inner: AsyncInner) -> None:
        self.keeper = keeper
        self.inner = inner
        self._unwanted = asyncio.Event()

    def adopt(self) -> None:
        """Have the keeper close them when it closes. On its thread."""
        self._life = self.keeper.spawn(self._live())

    async def _live(self) -> None:
        try:
            await self._unwanted.wait()
        finally:
            # Half closed is not closed: once begun, this is not given up when the keeper closes, too.
            closing = asyncio.ensure_future(self._close_all())
            while not closing.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(closing)
            closing.result()

    async def _close_all(self) -> None:
        await self.inner.aclose()
        await asyncio.sleep(0)  # a socket is closed by the loop, in its next turn

    def close(self) -> None:
        """Close them. Any thread."""
        self.keeper.post(self._unwanted.set)


class Pool:
    """The connections of one client.

    Args:
        build: makes an inner transport.
    """

    def __init__(self, build: Callable[[], AsyncInner]) -> None:
        self._build = build
        self._current: _Connections | None = None
        self._lock = threading.Lock()

    def inner(self, keeper: Keeper) -> AsyncInner:
        """Return what sends on that keeper's loop. Any thread."""
        current = self._current
        if current is not None and current.keeper is keeper:
            return current.inner
        with self._lock:
            current = self._current
            if current is None or current.keeper is not keeper:
                current = self._current = _Connections(keeper, self._build())
                keeper.post(current.adopt)
        return current.inner

    def close(self) -> None:
        """Close the connections; the pool can be used again. Any thread."""
        current, self._current = self._current, None
        if current is not None:
            current.close()
