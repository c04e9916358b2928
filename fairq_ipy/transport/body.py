"""The bytes of an answer on their way from the keeper's thread to the caller.

The keeper pushes, the caller takes; there is no lock between them. The caller shows a gate first and looks at the deque
again after; the keeper appends first and looks at the gate after. One of the two sees the other, so no chunk is left
lying. The same order holds for the read-ahead: the keeper says first that it is stalled and looks at the room again
after; the caller makes room first and looks for that word after.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from fairq_ipy.runtime.gate import Gate
from fairq_ipy.runtime.keeper import Keeper

__all__ = ["READ_AHEAD", "AsyncBody", "Pipe", "SyncBody"]

READ_AHEAD: Final = 8 * 2**20
"""Bytes of one answer that the keeper reads ahead of its caller."""


class Pipe:
    """One body. `push`, `end` and `room` belong to the keeper's thread, the rest to the caller.

    Attributes:
        ended: whether all of it is here.
        stalled: whether the keeper waits for room.
    """

    __slots__ = ("_chunks", "_error", "_gate", "_keeper", "_pushed", "_room", "_taken", "ended", "leave", "stalled")

    def __init__(self, keeper: Keeper, leave: Callable[[], None]) -> None:
        self._keeper = keeper
        self._chunks: deque[bytes] = deque()
        self._gate: Gate[None] | None = None
        self._error: BaseException | None = None
        self._pushed = 0  # written by the keeper only,
        self._taken = 0  # ... and this by the caller only
        self._room: asyncio.Future[None] | None = None
        self.ended = False
        self.stalled = False
        self.leave = leave

    # ------------------------------------------------------------------------------------------------- keeper's side

    def push(self, chunk: bytes) -> bool:
        """Add a chunk; return whether there is room for more."""
        if chunk:
            self._pushed += len(chunk)
            self._chunks.append(chunk)
            self._ring()
        return self._pushed - self._taken < READ_AHEAD

    def end(self, error: BaseException | None = None) -> None:
        """Say that nothing more comes, and why, if that is an error. The first reason holds."""
        if not self.ended:
            self._error = error
            self.ended = True
            self._ring()

    async def room(self) -> None:
        """Wait until the caller has read enough."""
        self.stalled = True
        self._room = asyncio.get_running_loop().create_future()
        try:
            if self._pushed - self._taken >= READ_AHEAD:
                await self._room
        finally:
            self.stalled = False
            self._room = None

    def _ring(self) -> None:
        gate = self._gate
        if gate is not None:
            gate.resolve(None)

    def _go_on(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # ------------------------------------------------------------------------------------------------- caller's side

    def take(self) -> bytes | None:
        """Return the next chunk; ``None`` when it is not here (yet). Raises what ended the body."""
        try:
            chunk = self._chunks.popleft()
        except IndexError:
            return None
        self._taken += len(chunk)
        if self.stalled and self._pushed - self._taken <= READ_AHEAD // 2:
            self._keeper.post(self._go_on)
        return chunk

    def over(self) -> bool:
        """Return whether nothing more comes; raise the error that ended it early."""
        if not self.ended or self._chunks:
            return False
        if self._error is not None:
            raise self._error
        return True

    def wait_at(self, gate: Gate[None]) -> bool:
        """Show `gate` to the keeper; return whether waiting there makes sense."""
        self._gate = gate
        return not self._chunks and not self.ended


class SyncBody:
    """The body for a thread: iterable once, closed by whatever ends the iteration.

    Args:
        pipe: where the bytes come from.
        deadline: on ``time.monotonic()``, when to give up waiting; ``None`` leaves that to the transport's timeouts.
    """

    def __init__(self, pipe: Pipe, keeper: Keeper, deadline: float | None = None) -> None:
        self._pipe = pipe
        self._keeper = keeper
        self._deadline = deadline

    def __iter__(self) -> Iterator[bytes]:
        pipe = self._pipe
        try:
            while True:
                chunk = pipe.take()
                if chunk is not None:
                    yield chunk
                elif pipe.over():
                    return
                else:
                    gate = self._keeper.thread_gate()
                    if pipe.wait_at(gate):
                        gate.wait(_left(self._deadline))
        except BaseException:  # also GeneratorExit: whoever breaks out has no second way in
            pipe.leave()
            raise

    def close(self) -> None:
        """Tell the keeper that nobody reads any more."""
        if not self._pipe.ended:
            self._pipe.leave()

    def __del__(self) -> None:
        self.close()


class AsyncBody:
    """The body for a task; see `SyncBody`."""

    def __init__(self, pipe: Pipe, keeper: Keeper, deadline: float | None = None) -> None:
        self._pipe = pipe
        self._keeper = keeper
        self._deadline = deadline

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pipe = self._pipe
        try:
            while True:
                chunk = pipe.take()
                if chunk is not None:
                    yield chunk
                elif pipe.over():
                    return
                else:
                    gate = self._keeper.loop_gate(pipe.leave)
                    if pipe.wait_at(gate):
                        async with asyncio.timeout(_left(self._deadline)):
                            await gate
        except BaseException:
            pipe.leave()
            raise

    async def aclose(self) -> None:
        """Tell the keeper that nobody reads any more."""
        if not self._pipe.ended:
            self._pipe.leave()

    def __del__(self) -> None:
        if not self._pipe.ended:
            self._pipe.leave()


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else deadline - time.monotonic()
