"""Interrupts that wait for the end of a step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from fairq_ipy.notebook.interrupts import interrupts_deferred


@pytest.fixture(autouse=True)
def usual_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_comes_after_the_block() -> None:
    steps = []

    def block() -> None:
        with interrupts_deferred():
            signal.raise_signal(signal.SIGINT)
            steps.append("whole")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert steps == ["whole"]


def test_without_an_interrupt_nothing_happens() -> None:
    with interrupts_deferred():
        pass


def test_an_interrupt_passes_where_it_is_let_through() -> None:
    steps = []

    def block() -> None:
        with interrupts_deferred() as deferral:
            with deferral.lifted():
                signal.raise_signal(signal.SIGINT)
                steps.append("not reached")
            steps.append("nor this")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert steps == []


def test_an_interrupt_that_waits_is_let_through_first() -> None:
    steps = []

    def block() -> None:
        with interrupts_deferred() as deferral:
            signal.raise_signal(signal.SIGINT)
            with deferral.lifted():
                steps.append("not reached")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert steps == []


def test_an_error_of_the_block_is_not_lost() -> None:
    with pytest.raises(ValueError, match="of the block"), interrupts_deferred():
        raise ValueError("of the block")


def test_an_ignored_interrupt_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts_deferred() as deferral, deferral.lifted():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_other_threads_have_no_interrupts_to_defer() -> None:
    seen: list[object] = []

    def work() -> None:
        with interrupts_deferred() as deferral, deferral.lifted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
