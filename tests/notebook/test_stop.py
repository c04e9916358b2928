"""The stop button at any moment: prompt, calm, and nothing is left behind (C10)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from fairq_ipy.testing import Gate, ScriptedEndpoint, chat, error, stream

PROMPT = 2.0
"""Seconds until a stop must be over: the promise made to users."""


def stop(kernel: Any, cell: str) -> Any:
    """Press the button and return what the cell shows in the end."""
    pressed = time.monotonic()
    kernel.interrupt()
    seen = kernel.finish(cell)
    assert time.monotonic() - pressed < PROMPT
    assert seen.error == ("KeyboardInterrupt", "KeyboardInterrupt: stopped")
    return seen


def test_a_stop_in_the_queue(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.hold()
    kernel.run(
        "import threading, fairq_ipy as fairq\n"
        "others = [threading.Thread(target=fairq.ask, args=('other',)) for _ in range(2)]\n"
        "for other in others: other.start()"
    )
    mock.wait_for(in_flight=2)
    cell = kernel.send("%%ask\nhello")
    kernel.shows(cell, "waits for a free slot")
    assert stop(kernel, cell).shown == ["stopped"]
    assert kernel.value("fairq_session().snapshot().queued") == 0
    mock.release()
    kernel.run("for other in others: other.join()")
    assert [request.prompt for request in mock.requests] == ["other", "other"]


def test_a_stop_before_the_first_byte(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.hold()
    cell = kernel.send("%%ask\nhello")
    mock.wait_for(in_flight=1)
    assert stop(kernel, cell).shown[-1:] in (["stopped"], [])
    mock.wait_for(disconnects=1)
    mock.release()


def test_a_stop_in_a_stream_keeps_what_came(kernel: Any, mock: ScriptedEndpoint) -> None:
    never = Gate()
    mock.reply(stream("one ", never, "two"))
    cell = kernel.send("%%ask\nhello")
    kernel.shows(cell, "one ")
    assert stop(kernel, cell).shown == ["one ", "stopped"]
    mock.wait_for(disconnects=1)


def test_a_stop_during_a_pause(kernel: Any, mock: ScriptedEndpoint) -> None:
    kernel.run("%fairq pause")
    cell = kernel.send("%%ask\nhello")
    kernel.shows(cell, "since it is paused")
    assert stop(kernel, cell).shown == ["stopped"]
    assert kernel.value("fairq_session().snapshot().queued") == 0
    kernel.run("%fairq resume")
    assert mock.arrivals == 0


def test_a_stop_while_the_endpoint_rests(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.reply(error(429, retry_after=60))
    cell = kernel.send("%%ask\nhello")
    kernel.shows(cell, "asked for a rest")
    assert stop(kernel, cell).shown == ["stopped"]
    assert kernel.value("fairq_session().snapshot().queued") == 0
    kernel.run("%unload_ext fairq_ipy")


def test_a_stop_ends_a_loop_of_questions_and_the_cells_behind_it(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.always(chat("hi").after(0.1))
    cell = kernel.send("for n in range(1000):\n    %ask {n}")
    mock.wait_for(arrivals=3)
    stop(kernel, cell)
    assert mock.arrivals < 1000


@pytest.mark.slow
def test_two_hundred_stops_at_random_moments_leave_nothing_behind(kernel: Any, mock: ScriptedEndpoint) -> None:
    mock.always(stream(*["a", "b", "c", "d", "e", "f", "g", "h"], usage=(1, 8)).dripped(200))
    seen = kernel.run(STORM, timeout=120)
    assert seen.error is None, seen
    stopped, late, answered, failed = kernel.value("[stopped, late, len(answers), failures]")
    assert stopped == 200
    assert late == []
    assert failed == []
    assert answered > 20, "the thread beside it went on"
    assert kernel.value("[fairq_session().snapshot().in_flight, fairq_session().snapshot().queued]") == [0, 0]
    mock.wait_for(in_flight=0)


STORM = """
import os, random, signal, threading, time
import fairq_ipy as fairq
from IPython.utils.io import capture_output

ip, chance = get_ipython(), random.Random(8)
stopped, late, answers, failures, over = 0, [], [], [], threading.Event()

def beside():
    while not over.is_set():
        try:
            answers.append(fairq.ask("beside", tenant="logs").text)
        except BaseException as error:
            failures.append(repr(error))

thread = threading.Thread(target=beside)
thread.start()

def press():
    global pressed
    pressed = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)

def ask_and_stop(number):
    global stopped
    timer = threading.Timer(chance.uniform(0, 0.04), press)
    if number % 4 == 3:
        fairq.pause("my team")
    try:
        timer.start()
        ip.run_cell_magic("ask", "--tenant 'my team'", "hello")
        while True:
            time.sleep(0.01)
    except KeyboardInterrupt:
        stopped += 1
        if time.monotonic() - pressed > 2:
            late.append(time.monotonic() - pressed)
    timer.join()
    fairq.resume("my team")

try:
    with capture_output():
        for number in range(200):
            ask_and_stop(number)
finally:
    over.set()
    thread.join()
"""


def test_a_cell_that_blocks_does_not_slow_the_calls_of_its_threads(kernel: Any, mock: ScriptedEndpoint) -> None:
    seen = kernel.run(
        "import threading, time, fairq_ipy as fairq\n"
        "answers = []\n"
        "def agent(name):\n"
        "    for n in range(10):\n"
        "        answers.append(fairq.ask(f'{name} {n}', tenant=name).text == f'{name} {n}')\n"
        "agents = [threading.Thread(target=agent, args=(name,)) for name in ('logs', 'no', 'my team')]\n"
        "for each in agents: each.start()\n"
        "end = time.monotonic() + 20\n"
        "while len(answers) < 30 and time.monotonic() < end: time.sleep(0.05)  # the cell never gives the loop a turn\n"
        "answered_while_blocked = len(answers)\n",
        timeout=40,
    )
    assert seen.error is None, seen
    assert kernel.value("[answered_while_blocked, all(answers)]") == [30, True]


def test_a_kernel_that_restarts_while_it_asks_comes_back_and_its_call_is_gone(
    kernel: Any, mock: ScriptedEndpoint
) -> None:
    never = Gate()
    mock.reply(stream("one ", never, "two"))
    cell = kernel.send("%%ask\nhello")
    kernel.shows(cell, "one ")
    kernel.restart()
    mock.wait_for(disconnects=1, in_flight=0)
    kernel.run(f"import os; os.environ['FAIRQ_BASE_URL'] = {mock.base_url!r}")
    assert "built-in policy" in kernel.run("%load_ext fairq_ipy").stream
    assert kernel.run("%%ask --model m\nhello").shown[0] == "hello"
    kernel.run("%unload_ext fairq_ipy\ndel os.environ['FAIRQ_BASE_URL']")
