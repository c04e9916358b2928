"""The owner of the queue: one daemon thread with its own asyncio loop, which alone touches the core.

Callers on any thread or loop post letters to its mailbox and wait at a gate. The keeper hands events to the core, does
what the core's effects say, and sleeps until the next letter or the core's next wake-up. It never runs user code: what
is admitted is told so (`Work`), and does its own part.

Two nets under everything: while anything is outstanding it looks up every quarter of a second, so that a wake-up lost
to an interrupt costs that long and no more; and whatever a `Work` raises ends that call, with the error told to its
caller, and gives its slot back (`Desk`).

A process that was forked has a copy of this object, and no thread behind it. Calls made there raise
`ConfigurationError` at once; giving back there does nothing, since the slots are the parent's.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from fairq_ipy.core.messages import Close, Event, Place, Snapshot
from fairq_ipy.core.model import Policy, Ticket
from fairq_ipy.core.scheduler import Scheduler
from fairq_ipy.errors import ConfigurationError, FairqError, ShutDownError, WouldDeadlockError
from fairq_ipy.runtime.desk import Desk
from fairq_ipy.runtime.gate import Gate, LoopGate, Outbox, ThreadGate
from fairq_ipy.runtime.mailbox import Letter, Mailbox
from fairq_ipy.runtime.scope import current_lender
from fairq_ipy.runtime.work import Lender, Work

__all__ = ["Keeper"]

T = TypeVar("T")

NET: Final = 0.25
"""Seconds between two looks while anything is outstanding."""

GRACE: Final = 1.0
"""Seconds that cancelled work has for its own clean-up when the keeper closes."""

log = logging.getLogger(__name__)


class Keeper(Desk):
    """Owns one core, and lets its calls go when their turn has come.

    Args:
        rules: the policy that holds at first.
        clock: the steady clock, in seconds.
        journal_size: lines that the journal holds.
        source: how people call the file that the rules are from; errors say it.

    Attributes:
        blocked_loops: gates that a thread waits at, and the loop which runs on that thread and stands still meanwhile.
        idle_hook: called on a waiting main thread about 20 times a second; the notebook pumps its widgets there.
        loop: the keeper's own loop.
        next_id: returns a new number for a ticket; any thread.
        post: ``post(function, *args)`` has `function` called on the keeper's thread, in order; any thread.
        thread_id: identity of the keeper's thread.
    """

    def __init__(
        self,
        rules: Policy,
        *,
        clock: Callable[[], float] = time.monotonic,
        journal_size: int = 10_000,
        source: str = "the policy",
    ) -> None:
        super().__init__(rules, clock=clock, journal_size=journal_size, source=source)
        self.idle_hook: Callable[[], None] | None = None
        self.blocked_loops: dict[ThreadGate[Any], asyncio.AbstractEventLoop] = {}
        self.next_id: Callable[[], int] = itertools.count(1).__next__
        # Whatever loops the process prefers (uvloop, Windows' proactor): this one only reads and writes sockets.
        self.loop: asyncio.AbstractEventLoop = asyncio.SelectorEventLoop()
        self._mailbox = Mailbox(self.loop, self._turn_over, self._bury)
        self.post: Callable[..., None] = self._mailbox.post
        self._outboxes: dict[asyncio.AbstractEventLoop, Outbox] = {}
        self._unrung: dict[Outbox, None] = {}
        self._turning = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._gone: Callable[[], FairqError] | None = None
        self._last: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._main, name="fairq-keeper", daemon=True)
        self._thread.start()
        self.thread_id: int = self._thread.ident or 0
        os.register_at_fork(after_in_child=functools.partial(_orphan, weakref.ref(self)))

    # ---------------------------------------------------------------------------------------- for callers, any thread

    def submit(self, work: Work, ticket: Ticket) -> None:
        """Queue `work`. From now on its `admitted` or `refused` may be called.

        Inside a permit of the caller (`fairq.permit`, `submit`, `run`, `governed`) the work runs under that permit, one
        call after the other, instead of waiting for a slot that perhaps only its own caller can free.

        Raises:
            ShutDownError: the keeper was closed.
            ConfigurationError: this process was forked from the one that the keeper lives in.
        """
        if self._gone is not None:
            raise self._gone()
        lender = current_lender()
        if lender is None:
            self.post(self.enqueue, work, ticket)
        else:
            self.post(self.borrow, work, ticket, lender)

    def cancel(self, id: int) -> None:  # noqa: A002 - the ticket's own word for it
        """Take a waiting call out of the queue; its caller left. Nothing happens to one that runs or is over."""
        self.post(self.leave, id)

    def event(self, event: Event) -> None:
        """Tell the core what happened."""
        self.post(self.feed, event)

    def call(self, function: Callable[[Scheduler, float], T]) -> T:
        """Run ``function(scheduler, now)`` on the keeper's thread, in order with all letters, and return its value.

        Raises:
            ShutDownError: the keeper was closed.
            ConfigurationError: this process was forked from the one that the keeper lives in.
        """
        if threading.get_ident() == self.thread_id:
            return function(self._core, self._clock())
        if self._gone is not None:
            raise self._gone()
        gate: ThreadGate[T] = ThreadGate(self)
        self.post(self._answer, gate, function)
        return gate.wait()

    def snapshot(self) -> Snapshot:
        """Return the picture of the queue, its times as seconds since the epoch."""
        return self.wall.snapshot(self.call(lambda core, now: core.snapshot(now)))

    def place(self, id: int) -> Place | None:  # noqa: A002 - the ticket's own word for it
        """Return where a waiting call stands; ``None`` when it does not wait."""
        return self.wall.place(self.call(lambda _core, _now: self.where(id)))

    def story(self, ticket: int) -> list[str]:
        """Return what happened to one call, a sentence a line; empty when the journal does not know it (any more)."""
        return self.call(lambda _core, _now: self.journal.story(ticket))

    def thread_gate(self) -> ThreadGate[Any]:
        """Return a gate for the calling thread."""
        return ThreadGate(self)

    def loop_gate(self, on_dead: Callable[[], None] | None = None) -> LoopGate[Any]:
        """Return a gate for a task of the running loop; `on_dead` is called here when that loop closes first."""
        return LoopGate(self, on_dead)

    @property
    def closed(self) -> bool:
        """Whether it takes no more calls in this process, for good."""
        return self._gone is not None

    @property
    def orphaned(self) -> bool:
        """Whether this is a copy in a forked process, with no thread behind it."""
        return self._gone is _forked

    def close(self, timeout: float = 2.0) -> None:
        """Refuse whoever waits with `ShutDownError`, cancel what runs here, and end the thread.

        Args:
            timeout: seconds to wait for the thread at the most. What has not ended by then is left behind.
        """
        if self._gone is not None:
            return
        self._gone = _shut_down
        self.post(self._close)
        if threading.get_ident() != self.thread_id:
            self._thread.join(timeout)

    # ------------------------------------------------------------------------------------- on the keeper's thread only

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `coroutine` on the keeper's loop. Its failure is logged; `close` cancels it."""
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_over)
        return task

    def feed(self, event: Event) -> None:
        """Tell the core what happened, do what it answers, and see to the clock afterwards."""
        super().feed(event)
        if not self._mailbox.reading and not self._turning:
            self._turning = True
            self.loop.call_soon(self._turn_over)

    def hand_over(self, gate: LoopGate[Any]) -> None:
        """Take a resolved gate to its loop, together with all others of this turn."""
        outbox = self._outboxes.get(gate.loop)
        if outbox is None:
            outbox = self._outboxes[gate.loop] = Outbox(gate.loop)
        outbox.gates.append(gate)
        self._unrung[outbox] = None
        if self.loop.is_closed():  # on another thread: see _bury
            self._ring_all()
        elif not self._mailbox.reading and not self._turning:
            self._turning = True
            self.loop.call_soon(self._turn_over)

    def _answer(self, gate: ThreadGate[T], function: Callable[[Scheduler, float], T]) -> None:
        try:
            gate.resolve(function(self._core, self._clock()))
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller
            gate.reject(error)

    def _task_over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the keeper failed", exc_info=error)

    # ------------------------------------------------------------------------------------------------------- its turns

    def _main(self) -> None:
        while True:
            try:
                self.loop.run_forever()
            except BaseException:  # thrown into the thread from outside; who waits here must not wait for ever
                log.exception("the keeper goes on")
                self.loop.call_soon(self._look)
            else:
                break
        self._mailbox.close()
        self._ring_all()
        self.loop.close()

    def _turn_over(self) -> None:
        self._turning = False
        if self._unrung:
            self._ring_all()
        due = self._core.wake_at
        delay = None if due is None else due - self._clock()
        if (self._works or self._loans or self._outboxes) and (delay is None or delay > NET):
            delay = NET
        if delay is None:
            return
        # An armed timer that is not too late is kept: it looks, and arms the next one. Most turns touch no timer.
        at = self.loop.time() + max(delay, 0.0)
        if self._timer is not None:
            if self._timer_due <= at:
                return
            self._timer.cancel()
        self._timer = self.loop.call_at(at, self._look)
        self._timer_due = at

    def _look(self) -> None:
        """Look at the clock, at the mailbox, and at the loops that have not taken what is theirs."""
        self._timer = None
        self.tick()
        now = self.loop.time()
        for loop, outbox in list(self._outboxes.items()):
            if outbox.idle:
                del self._outboxes[loop]
            elif outbox.overdue(now):
                self._unrung[outbox] = None
        if self.blocked_loops:
            self._break_deadlocks()
        self._mailbox.read()

    def _break_deadlocks(self) -> None:
        """Free a thread that waits for a slot which only the loop that it blocks can give back."""
        if len(self._running) < self.rules.limits.concurrency:
            return
        for gate, loop in list(self.blocked_loops.items()):
            works = [self._works[number][0] for number in self._running]
            if all(isinstance(work, Lender) and work.stuck_without(loop) for work in works):
                gate.reject(_would_deadlock(min(self._running)))

    def _ring_all(self) -> None:
        now = self.loop.time()
        while self._unrung:
            outbox, _ = self._unrung.popitem()
            if not outbox.ring(now):
                self._outboxes.pop(outbox.loop, None)
                outbox.bury()

    # --------------------------------------------------------------------------------------------------------- its end

    def _close(self) -> None:
        self.feed(Close())
        for task in list(self._tasks):
            task.cancel()
        self._last = self.loop.create_task(self._end())

    async def _end(self) -> None:
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=GRACE)
        await self.loop.shutdown_asyncgens()
        for work, ticket in list(self._works.values()):
            self.turn_away(work, self.refusal("shut_down", ticket, {}))
        self.loop.stop()

    def _bury(self, letter: Letter) -> None:
        """Answer a letter that came too late: who waits for an answer gets one, and all else is without object."""
        function, args = letter
        if function == self._answer:
            args[0].reject(_shut_down())
        elif function in (self.enqueue, self.borrow):
            self.turn_away(args[0], self.refusal("shut_down", args[1], {}))
        elif isinstance(getattr(function, "__self__", None), Gate):  # the result of work done on another thread
            function(*args)

    def orphan(self) -> None:
        """In a forked child, where there is no thread behind this copy: called by the interpreter."""
        self._gone = _forked
        self._mailbox.forget()


def _orphan(found: weakref.ref[Keeper]) -> None:
    keeper = found()
    if keeper is not None:
        keeper.orphan()


def _shut_down() -> FairqError:
    return ShutDownError("the session was closed; fairq.load() starts a new one")


def _would_deadlock(outer: int) -> FairqError:
    text = (
        f"every slot is held by a task of the loop that this call blocks (call {outer}), so none can become free: "
        "await it (`await fairq.aask(...)`, `await fairq.submit(...)`), or make it on another thread"
    )
    return WouldDeadlockError(text, outer=outer)


def _forked() -> FairqError:
    return ConfigurationError(
        "this process was forked from one with a queue, and has none of its own: make the call in the parent, or call "
        "fairq.load() here for a queue that does not share the parent's slots"
    )
