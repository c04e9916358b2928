"""Widgets that work while a magic blocks: the messages that a kernel would handle only after the cell.

While ``%%ask`` waits on the main thread, a click on a button lies in the kernel's shell queue until the cell is over.
The pump, called between two looks of the wait, takes what has arrived: messages of widgets are handled at once, all
others (above all the next cells) are put back where the kernel will find them, in order.

ipykernel has no public way for this, so the private names of its two generations are collected in the two classes
below, each of which checks before its first use that they are there. Where they are not, or where they fail, there is
no pump, and clicks are handled after the cell: the kernel's usual behaviour. Tried with ipykernel 6.31 and 7.4.
"""
# ruff: noqa: ANN401, SLF001 - the kernel's private names, without types: see above

from __future__ import annotations

import contextvars
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeAlias

from fairq_ipy.notebook.interrupts import Deferral, interrupts_deferred

__all__ = ["Pump", "comm_pump"]

_COMM: Final = frozenset({"comm_open", "comm_msg", "comm_close", "comm_info_request"})
_UNEXPECTED: Final = (AttributeError, LookupError, TypeError, ValueError, OSError)

log = logging.getLogger(__name__)

Pump: TypeAlias = Callable[[], None]


class _Generation(Protocol):
    """What differs between the generations of ipykernel."""

    def take(self) -> list[Any]:
        """Return all that has arrived, in order."""

    def put_back(self, items: list[Any]) -> None:
        """Return to the kernel what is not ours."""

    def frames(self, item: Any) -> Any:
        """Return the frames of one item; ``None`` when it is no message."""

    def reply_stream(self) -> Any:
        """Return where replies go."""


class _Generation6:
    """ipykernel 6: the main thread reads the shell socket, and messages wait in the kernel's queue."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.queue = kernel.msg_queue
        self.stream = kernel.shell_stream

    def take(self) -> list[Any]:
        self.stream.flush()  # from the socket to the queue
        items = []
        while not self.queue.empty():
            items.append(self.queue.get_nowait())
        return items

    def put_back(self, items: list[Any]) -> None:
        for item in items:
            self.queue.put_nowait(item)

    def frames(self, item: Any) -> Any:
        _number, _dispatch, arguments = item
        return arguments[0] if arguments else None

    def reply_stream(self) -> Any:
        return self.stream


class _Generation7:
    """ipykernel 7: a thread reads the shell socket and forwards to a socket that the main thread reads."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.manager = kernel.shell_channel_thread.manager
        self.socket = self.manager._shell_channel_to_main.to_stream.socket
        self.main = kernel.shell_main
        self.loop = kernel.io_loop.asyncio_loop

    def take(self) -> list[Any]:
        import zmq

        items = []
        while self.socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            items.append(self.socket.recv_multipart(zmq.NOBLOCK, copy=False))
        return items

    def put_back(self, items: list[Any]) -> None:
        for frames in items:  # what the stream's own callback does: a task behind the one that runs our cell
            context = contextvars.copy_context()
            self.loop.create_task(self.main(None, frames), context=context)

    def frames(self, item: Any) -> Any:
        return item

    def reply_stream(self) -> Any:
        return self.manager.get_subshell_to_shell_channel_socket(None)


def comm_pump(kernel: Any) -> Pump | None:
    """Return the pump for a kernel; ``None`` when there is none (no kernel, or one that is not known)."""
    if kernel is None:
        return None
    try:
        generation: _Generation = (
            _Generation6(kernel) if getattr(kernel, "shell_channel_thread", None) is None else _Generation7(kernel)
        )
        for name in ("session", "shell_handlers", "get_parent", "set_parent", "_parent_ident", "_publish_status"):
            getattr(kernel, name)
    except _UNEXPECTED:
        log.debug("this kernel has no comm pump", exc_info=True)
        return None
    return _CommPump(kernel, generation)


class _CommPump:
    """Handles widget messages that have arrived. On the main thread only, and never inside itself."""

    def __init__(self, kernel: Any, generation: _Generation) -> None:
        self._kernel = kernel
        self._generation = generation
        self._off = False

    def __call__(self) -> None:
        """Handle what is there; return at once when nothing is."""
        if self._off or threading.current_thread() is not threading.main_thread():
            return
        self._off = True  # a handler that waits for the queue comes here again
        try:
            self._run()
        except _UNEXPECTED:
            log.warning("widgets answer only after the cell: the kernel is not as expected", exc_info=True)
            return
        except BaseException:
            self._off = False
            raise
        self._off = False

    def _run(self) -> None:
        with interrupts_deferred() as deferral:
            items = deque(self._generation.take())
            others = []
            try:
                while items:
                    item = items.popleft()
                    if not self._handled(item, deferral):
                        others.append(item)
            finally:
                self._generation.put_back([*others, *items])

    def _handled(self, item: Any, deferral: Deferral) -> bool:
        """Handle one message if it belongs to a widget; return whether it did."""
        kernel = self._kernel
        frames = self._generation.frames(item)
        if frames is None:
            return False
        try:
            idents, parts = kernel.session.feed_identities(frames, copy=False)
            header = kernel.session.unpack(getattr(parts[1], "bytes", parts[1]))
        except (ValueError, IndexError):
            return False  # one of the kernel's own notes to itself
        handler = kernel.shell_handlers.get(header.get("msg_type")) if header.get("msg_type") in _COMM else None
        if handler is None:
            return False
        message = kernel.session.deserialize(parts, content=True, copy=False)
        with self._as_parent(idents, message), deferral.lifted():
            result = handler(self._generation.reply_stream(), idents, message)
            if hasattr(result, "send"):
                _finish(result)
        return True

    @contextmanager
    def _as_parent(self, idents: Any, message: Any) -> Generator[None]:
        """Let outputs meanwhile belong to `message`, then to our cell again."""
        kernel = self._kernel
        before = kernel._parent_ident["shell"], kernel.get_parent("shell")
        kernel.set_parent(idents, message, channel="shell")
        kernel._publish_status("busy", "shell", parent=message)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            kernel._publish_status("idle", "shell", parent=message)
            kernel.set_parent(*before, channel="shell")


def _finish(coroutine: Any) -> None:
    """Run a handler that is declared async; those of widgets never suspend."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    log.warning("a widget's message was cut short: its handler waits for something")
