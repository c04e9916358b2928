"""The pump's own rules, on stand-ins for both generations of kernels: what is ours, what goes back, in which order."""

from __future__ import annotations

import asyncio
import queue
import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import zmq
from jupyter_client.session import Session

from fairq_ipy.notebook.pump import comm_pump


class Desk:
    """What both kernels have: a session, handlers, and a parent that outputs belong to."""

    def __init__(self) -> None:
        self.session = Session(key=b"")
        self.log: list[Any] = []
        self.on_click: Callable[[str], None] = lambda _name: None
        self.kernel = SimpleNamespace(
            session=self.session,
            shell_handlers={"comm_msg": self.handle, "comm_open": self.handle_async},
            _parent_ident={"shell": b"our cell"},
            get_parent=lambda _channel: "our cell",
            set_parent=lambda _ident, parent, channel: self.log.append(("parent", self.name(parent))),
            _publish_status=lambda status, _channel, parent: self.log.append((status, self.name(parent))),
        )

    @staticmethod
    def name(parent: Any) -> str:
        return parent if isinstance(parent, str) else parent["content"]["name"]

    def handle(self, _stream: Any, _idents: Any, message: Any) -> None:
        self.log.append(("handled", self.name(message)))
        self.on_click(self.name(message))

    async def handle_async(self, stream: Any, idents: Any, message: Any) -> None:
        self.handle(stream, idents, message)

    def frames(self, kind: str, name: str) -> list[Any]:
        message = self.session.msg(kind, {"name": name})
        return [zmq.Frame(part) for part in self.session.serialize(message, ident=b"front end")]

    def handled(self) -> list[str]:
        return [name for what, name in self.log if what == "handled"]


class Desk6(Desk):
    """ipykernel 6: messages in a queue."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: queue.Queue[Any] = queue.Queue()
        self.kernel.msg_queue = self.queue
        self.kernel.shell_stream = SimpleNamespace(flush=lambda: None)

    def send(self, kind: str, name: str) -> None:
        self.queue.put((0, print, (self.frames(kind, name),)))

    def note(self) -> None:
        self.queue.put((0, print, ()))

    def left(self) -> list[str]:
        items = [self.queue.get_nowait() for _ in range(self.queue.qsize())]
        return [self._name(item[2][0]) if item[2] else "note" for item in items]

    def _name(self, frames: list[Any]) -> str:
        return str(
            self.session.deserialize(self.session.feed_identities(frames, copy=False)[1], copy=False)["content"]["name"]
        )

    def close(self) -> None:
        pass


class Desk7(Desk6):
    """ipykernel 7: messages on a socket, put back as tasks of the kernel's loop."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.context: zmq.Context[Any] = zmq.Context()
        self.here, self.there = self.context.socket(zmq.PAIR), self.context.socket(zmq.PAIR)
        self.here.bind("inproc://desk")
        self.there.connect("inproc://desk")
        self.main: list[str] = []
        stream = SimpleNamespace(socket=self.here)
        self.kernel.shell_channel_thread = SimpleNamespace(
            manager=SimpleNamespace(
                _shell_channel_to_main=SimpleNamespace(to_stream=stream),
                get_subshell_to_shell_channel_socket=lambda _id: self.here,
            )
        )
        self.kernel.io_loop = SimpleNamespace(asyncio_loop=self.loop)
        self.kernel.shell_main = self.shell_main

    async def shell_main(self, _subshell: None, frames: list[Any]) -> None:
        self.main.append("note" if len(frames) == 1 else self._name(frames))

    def send(self, kind: str, name: str) -> None:
        self.there.send_multipart(self.frames(kind, name))

    def note(self) -> None:
        self.there.send(b"stop aborting")

    def left(self) -> list[str]:
        self.loop.run_until_complete(asyncio.sleep(0))
        return self.main

    def close(self) -> None:
        self.loop.close()
        self.context.destroy()


@pytest.fixture(params=[Desk6, Desk7], ids=["ipykernel6", "ipykernel7"])
def desk(request: pytest.FixtureRequest) -> Iterator[Desk6]:
    made = request.param()
    yield made
    made.close()


def test_clicks_are_handled_and_the_rest_goes_back_in_order(desk: Desk6) -> None:
    pump = comm_pump(desk.kernel)
    assert pump is not None
    for kind, name in [("execute_request", "a"), ("comm_msg", "1"), ("execute_request", "b"), ("comm_open", "2")]:
        desk.send(kind, name)
    desk.note()
    desk.send("execute_request", "c")
    pump()
    assert desk.handled() == ["1", "2"]
    assert desk.left() == ["a", "b", "note", "c"]


def test_outputs_belong_to_the_click_meanwhile_and_to_our_cell_afterwards(desk: Desk6) -> None:
    pump = comm_pump(desk.kernel)
    assert pump is not None
    desk.send("comm_msg", "1")
    pump()
    assert desk.log == [("parent", "1"), ("busy", "1"), ("handled", "1"), ("idle", "1"), ("parent", "our cell")]


def test_an_interrupt_in_a_handler_gets_through_and_loses_no_message(desk: Desk6) -> None:
    pump = comm_pump(desk.kernel)
    assert pump is not None
    desk.on_click = lambda name: signal.raise_signal(signal.SIGINT) if name == "1" else None
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for kind, name in [("execute_request", "a"), ("comm_msg", "1"), ("comm_msg", "2"), ("execute_request", "b")]:
            desk.send(kind, name)
        with pytest.raises(KeyboardInterrupt):
            pump()
    finally:
        signal.signal(signal.SIGINT, before)
    assert desk.left() == ["a", "2", "b"]
    assert desk.log[-1] == ("parent", "our cell")
    desk.send("comm_msg", "3")
    pump()
    assert desk.handled()[-1] == "3", "the pump works on"


def test_a_handler_that_waits_for_the_queue_does_not_pump_again(desk: Desk6) -> None:
    pump = comm_pump(desk.kernel)
    assert pump is not None
    desk.on_click = lambda _name: pump()
    desk.send("comm_msg", "1")
    desk.send("comm_msg", "2")
    pump()
    assert desk.handled() == ["1", "2"]


def test_a_handler_that_suspends_is_cut_short_and_said(desk: Desk6, caplog: pytest.LogCaptureFixture) -> None:
    pump = comm_pump(desk.kernel)
    assert pump is not None

    async def slow(*_: Any) -> None:
        await asyncio.sleep(0)

    desk.kernel.shell_handlers["comm_close"] = slow
    desk.send("comm_close", "1")
    pump()
    assert "was cut short" in caplog.text


def test_a_message_nobody_handles_goes_back(desk: Desk6) -> None:
    pump = comm_pump(desk.kernel)
    assert pump is not None
    desk.send("comm_info_request", "1")
    pump()
    assert desk.left() == ["1"]
