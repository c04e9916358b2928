"""How a caller waits: a result that comes once, from the keeper's thread to the thread or loop of the caller.

The keeper resolves or rejects a gate; the first one wins. A `ThreadGate` wakes one blocked thread. A `LoopGate` wakes a
task: what the keeper hands to one loop in one turn travels in one ``call_soon_threadsafe`` (`Outbox`).

Interrupts and cancellation may strike between any two steps of the caller:

- before the wait, or in it: the caller leaves with the exception, and tells the keeper that it left;
- after the result arrived, before the caller has it (a `LoopGate` that is resolved while its task is being cancelled, a
  lock that is taken when the interrupt comes): the same. The result is still in the gate, but nobody will read it, so
  **whoever waits must give back on every exception, whether or not the gate is done**;
- in the middle of a hand-over on the caller's loop: a gate leaves the outbox only after its task was woken, and the
  keeper rings again for what stays in the outbox, so that an interrupted hand-over is taken up again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from _thread import allocate_lock, get_ident
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, Generic, Protocol, TypeVar

__all__ = ["Gate", "LoopGate", "Outbox", "ThreadGate"]

T = TypeVar("T")

POLL: Final = 0.05
"""Seconds between two looks of a waiting main thread: an interrupt is prompt also where a lock cannot be left."""

PATIENCE: Final = 1.0
"""Seconds until the keeper rings a loop again that has not taken what it was given; doubled with every ring."""

LAST_RING: Final = 64.0
"""Patience at which the keeper stops ringing: the loop has every earlier ring, and takes its gates when it runs."""

log = logging.getLogger(__name__)


class Owner(Protocol):
    """What a gate needs of its keeper."""

    idle_hook: Callable[[], None] | None
    thread_id: int
    blocked_loops: dict[ThreadGate[Any], asyncio.AbstractEventLoop]

    def hand_over(self, gate: LoopGate[Any]) -> None:
        """Take a resolved gate to its loop."""


class Gate(Generic[T]):
    """A result that comes once. `resolve` and `reject` belong to the keeper's thread."""

    __slots__ = ("_error", "_owner", "_value", "done")

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._value: T | None = None
        self._error: BaseException | None = None
        self.done = False

    def resolve(self, value: T) -> bool:
        """Give the result; return whether it was the first one."""
        if self.done:
            return False
        self._value = value
        self.done = True
        self._open()
        return True

    def reject(self, error: BaseException) -> bool:
        """Give an error instead of a result; return whether it was the first one."""
        if self.done:
            return False
        self._error = error
        self.done = True
        self._open()
        return True

    def _open(self) -> None:
        raise NotImplementedError

    def result(self) -> T:
        """Return the result, or raise the error; only when `done`."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # None is a value where T allows it


class ThreadGate(Gate[T]):
    """A gate for one blocked thread."""

    __slots__ = ("_latch",)

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner)
        self._latch = allocate_lock()
        self._latch.acquire()

    def _open(self) -> None:
        self._latch.release()

    def wait(self, timeout: float | None = None) -> T:
        """Block until the result is there, and return it.

        On the main thread the wait looks up every 50 ms, so that an interrupt is prompt on every platform, and calls
        the keeper's `idle_hook` each time.

        Args:
            timeout: seconds to wait at the most; ``None`` waits for ever. The wait can be taken up again afterwards.

        Raises:
            TimeoutError: the time is over, and the result is not there.
            RuntimeError: called on the keeper's own thread, which would wait for itself.
        """
        if not self.done:
            loop = asyncio._get_running_loop()  # noqa: SLF001 - exported for exactly this question
            if loop is None:
                self._block(timeout)
            else:
                self._owner.blocked_loops[self] = loop
                try:
                    self._block(timeout)
                finally:
                    self._owner.blocked_loops.pop(self, None)
            if not self.done:
                raise TimeoutError
        return self.result()

    def _block(self, timeout: float | None) -> None:
        me = get_ident()
        if me == self._owner.thread_id:
            raise RuntimeError("the keeper's own thread cannot wait for the keeper")
        if me == threading.main_thread().ident:
            self._block_main(timeout)
        else:
            self._latch.acquire(timeout=-1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX))

    def _block_main(self, timeout: float | None) -> None:
        end = None if timeout is None else time.monotonic() + timeout
        while not self.done:
            left = POLL if end is None else min(POLL, end - time.monotonic())
            if left <= 0 or self._latch.acquire(timeout=left):
                return
            self._idle()

    def _idle(self) -> None:
        hook = self._owner.idle_hook
        if hook is None:
            return
        try:
            hook()
        except Exception:
            # what is shown meanwhile must not cost the caller its answer; a hook that fails is not asked again
            log.exception("the idle hook failed and is switched off")
            self._owner.idle_hook = None


class LoopGate(Gate[T]):
    """A gate for one task. Make it on the loop that will await it.

    Args:
        owner: the keeper.
        on_dead: called on the keeper's thread when the loop is closed before it took the result.
    """

    __slots__ = ("future", "loop", "on_dead")

    def __init__(self, owner: Owner, on_dead: Callable[[], None] | None = None) -> None:
        super().__init__(owner)
        self.loop = asyncio.get_running_loop()
        # The future only wakes. The result stays in the gate, so that an error nobody is left to read makes no noise.
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.on_dead = on_dead

    def _open(self) -> None:
        self._owner.hand_over(self)

    def wake(self) -> None:
        """Wake the task, unless it was cancelled; on its own loop."""
        if not self.future.done():
            self.future.set_result(None)

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the result and return it, or raise the error."""
        if not self.done:
            yield from self.future.__await__()
        return self.result()


class Outbox:
    """What the keeper has for one loop. Filled on the keeper's thread, emptied on the loop's."""

    __slots__ = ("_patience", "_ring_again", "gates", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.gates: deque[LoopGate[Any]] = deque()
        self._patience = PATIENCE
        self._ring_again = 0.0

    def ring(self, now: float) -> bool:
        """Ask the loop to take its gates; return whether it can. `now` is in seconds of any steady clock."""
        self._ring_again = now + self._patience
        try:
            self.loop.call_soon_threadsafe(self._take)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def overdue(self, now: float) -> bool:
        """Return whether an earlier ring seems to be lost; each time it is believed for twice as long."""
        if now < self._ring_again:
            return False
        self._patience *= 2
        return True

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do for this loop."""
        return not self.gates or self._patience > LAST_RING

    def bury(self) -> None:
        """Tell the owner of every gate that its loop is gone."""
        while self.gates:
            gate = self.gates.popleft()
            if gate.on_dead is not None:
                gate.on_dead()

    def _take(self) -> None:
        gates = self.gates
        while gates:
            gates[0].wake()
            del gates[0]  # only now: see the interrupts above
        self._patience = PATIENCE
