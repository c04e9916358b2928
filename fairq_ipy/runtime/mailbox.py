"""Functions that any thread posts, and one loop runs, in order.

A deque, and a loop that is woken only when it is not looking. `_attentive` says whether the owner is bound to look into
the deque again; only the owner's thread writes it:

- a poster appends first and reads `_attentive` after; the owner clears `_attentive` first and reads the deque after.
  One of the two sees the other, so no letter is left lying;
- an interrupt may strike a poster between its two steps. Nothing is lost then: the letter is in the deque, and is read
  with the next one. The next one comes at once where it matters, since an interrupted caller posts that it left; and
  while anything is outstanding the owner looks by itself (`Keeper.NET`);
- a ring gives up the interpreter's lock, so that the owner may take it and the poster waits for a whole turn. One ring
  per sleep of the owner is enough: posters note for which sleep (`_slept`) they have rung, after they have. A note that
  is missing, or late, costs a superfluous ring; none can be taken for the ring of another sleep.

After `close`, letters are not run but returned to whoever can still answer for them: the `bury` function.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

__all__ = ["Letter", "Mailbox"]

Letter: TypeAlias = tuple[Callable[..., object], tuple[Any, ...]]

TURN: Final = 512
"""Letters read in one turn of the loop; the loop's own I/O has its chance in between."""

log = logging.getLogger(__name__)


class Mailbox:
    """The letters of one owner.

    Attributes:
        reading: whether a turn is going on; for the owner's thread.

    Args:
        loop: the owner's loop.
        after: called on the owner's thread at the end of every turn.
        bury: called with each letter that comes too late, on whatever thread.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, after: Callable[[], None], bury: Callable[[Letter], None]
    ) -> None:
        self._letters: deque[Letter] = deque()
        self._loop = loop
        self._after = after
        self._bury = bury
        self._attentive = False
        self._slept = 0
        self._rung_for = -1
        self._closed = False
        self.reading = False

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Have `function` called on the owner's thread; any thread may post."""
        self._letters.append((function, args))
        if not self._attentive and self._rung_for != self._slept:
            self._ring()

    def _ring(self) -> None:
        if self._closed:
            self._bury_all()
            return
        sleep = self._slept
        try:
            self._loop.call_soon_threadsafe(self.read)
        except RuntimeError:  # closed since we looked
            self._bury_all()
        else:
            self._rung_for = sleep

    def read(self) -> None:
        """Run what is there. On the owner's thread only."""
        self._attentive = self.reading = True
        letters = self._letters
        for _ in range(TURN):
            if not letters:
                break
            function, args = letters.popleft()
            try:
                function(*args)
            except BaseException:
                log.exception("%s failed", getattr(function, "__qualname__", function))
        try:
            self._after()
        finally:
            self._slept += 1
            self._attentive = self.reading = False
            if letters:
                self._loop.call_soon(self.read)

    def close(self) -> None:
        """Run nothing more. What is there, and what still comes, is buried."""
        self._closed = True
        self._slept += 1
        self._attentive = False
        self._bury_all()

    def forget(self) -> None:
        """In a forked child: the letters, and the loop that would be rung, are the parent's."""
        self._letters.clear()
        self._closed = True
        self._slept += 1
        self._attentive = False

    def _bury_all(self) -> None:
        while True:
            try:
                letter = self._letters.popleft()
            except IndexError:
                return
            self._bury(letter)
