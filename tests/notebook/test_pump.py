"""Widgets while a cell blocks, on real kernels: the clicks are handled at once, the next cells stay in order."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from fairq_ipy.notebook.pump import comm_pump

SETUP = """
import signal, threading, time
from comm import create_comm
from fairq_ipy.notebook.pump import comm_pump
pump = comm_pump(get_ipython().kernel)
clicks = []
button = create_comm(target_name="button")
def clicked(message):
    clicks.append([message["content"]["data"], threading.current_thread() is threading.main_thread()])
button.on_msg(clicked)
def block(until, seconds=10):
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, clicks
        pump()
        time.sleep(0.01)
"""


@pytest.fixture
def pumping(bare_kernel: Any) -> Any:
    seen = bare_kernel.run(SETUP)
    assert seen.error is None, seen
    assert bare_kernel.value("pump is not None"), "a kernel that we know has a pump"
    return bare_kernel


def test_a_click_is_handled_while_the_cell_blocks(pumping: Any) -> None:
    comm = pumping.value("button.comm_id")
    cell = pumping.send("print('blocks', flush=True); block(lambda: clicks); print('clicked')")
    pumping.until(lambda: "blocks" in pumping.cells[cell].stream, cell)
    pumping.widget_message(comm, {"event": "click"})
    seen = pumping.finish(cell)
    assert seen.error is None, seen
    assert seen.stream == "blocks\nclicked\n", "what the cell prints after a click is still its own"
    assert pumping.value("clicks") == [[{"event": "click"}, True]]


def test_cells_and_clicks_stay_in_order(pumping: Any) -> None:
    comm = pumping.value("button.comm_id")
    pumping.run("order = []")
    first = pumping.send("print('blocks', flush=True); block(lambda: len(clicks) == 5); order.append('first')")
    pumping.until(lambda: "blocks" in pumping.cells[first].stream, first)
    later = []
    for number in range(5):
        later.append(pumping.send(f"order.append({number})"))
        pumping.widget_message(comm, {"number": number})
    for cell in (first, *later):
        assert pumping.finish(cell).error is None
    assert pumping.value("order") == ["first", 0, 1, 2, 3, 4]
    assert pumping.value("[click[0]['number'] for click in clicks]") == [0, 1, 2, 3, 4]


def test_a_failing_callback_costs_neither_the_cell_nor_the_next_click(pumping: Any) -> None:
    comm = pumping.value("button.comm_id")
    pumping.run("button.on_msg(lambda message: clicks.append(1) or 1 / 0)")
    cell = pumping.send("print('blocks', flush=True); block(lambda: len(clicks) == 2)")
    pumping.until(lambda: "blocks" in pumping.cells[cell].stream, cell)
    pumping.widget_message(comm, {})
    pumping.widget_message(comm, {})
    assert pumping.finish(cell).error is None


def test_an_interrupt_between_messages_loses_none(pumping: Any) -> None:
    pumping.run("count = 0")
    cell = pumping.send("print('blocks', flush=True)\nwhile True: pump()")
    pumping.until(lambda: "blocks" in pumping.cells[cell].stream, cell)
    later = [pumping.send("count += 1", stop_on_error=False) for _ in range(50)]
    pumping.interrupt()
    assert pumping.finish(cell).error[0] == "KeyboardInterrupt"
    for each in later:  # a kernel aborts the cells that wait behind one that failed; each is answered, none is lost
        pumping.finish(each)
    assert pumping.value("count") <= 50


def test_without_a_kernel_there_is_no_pump() -> None:
    assert comm_pump(None) is None


@pytest.mark.parametrize(
    "kernel", [SimpleNamespace(), SimpleNamespace(msg_queue=1), SimpleNamespace(shell_channel_thread=1)]
)
def test_an_unknown_kernel_has_no_pump(kernel: Any) -> None:
    assert comm_pump(kernel) is None


def _kernel6(stream: Any) -> Any:
    names = ("session", "shell_handlers", "get_parent", "set_parent", "_parent_ident", "_publish_status", "msg_queue")
    return SimpleNamespace(shell_stream=stream, **dict.fromkeys(names))


def test_a_kernel_that_is_not_as_expected_after_all_has_no_pump_from_then_on(caplog: pytest.LogCaptureFixture) -> None:
    looks: list[int] = []

    def flush() -> None:
        looks.append(1)
        raise AttributeError("gone in this version")

    pump = comm_pump(_kernel6(SimpleNamespace(flush=flush)))
    assert pump is not None
    before = signal.getsignal(signal.SIGINT)
    pump()
    pump()
    assert looks == [1]
    assert "widgets answer only after the cell" in caplog.text
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_never_pump() -> None:
    looks: list[int] = []
    pump = comm_pump(_kernel6(SimpleNamespace(flush=lambda: looks.append(1))))
    assert pump is not None
    thread = threading.Thread(target=pump)
    thread.start()
    thread.join()
    assert looks == []
