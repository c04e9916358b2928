"""How an answer appears, paint by paint."""

from __future__ import annotations

import io
from typing import Any

import pytest

from fairq_ipy.notebook.surface import CellSurface, TerminalSurface
from fairq_ipy.testing import FakeClock


class Cell:
    """Keeps what a front end would show: outputs in order, updates applied."""

    def __init__(self) -> None:
        self.paints: list[dict[str, str]] = []
        self.outputs: dict[Any, dict[str, str]] = {}

    def publish(
        self,
        data: dict[str, str],
        *,
        metadata: dict[str, Any],
        transient: dict[str, str] | None = None,
        update: bool = False,
    ) -> None:
        assert metadata == {}
        key = (transient or {}).get("display_id", len(self.outputs))
        assert update == (key in self.outputs), "the first paint makes the output, the others update it"
        self.outputs[key] = data
        self.paints.append(data)

    def shown(self) -> list[str]:
        return [data.get("text/markdown", data["text/plain"]) for data in self.outputs.values()]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cell() -> Cell:
    return Cell()


@pytest.fixture
def surface(cell: Cell, clock: FakeClock) -> CellSurface:
    return CellSurface(cell.publish, clock=clock)


def test_the_waiting_line_turns_into_the_answer(cell: Cell, surface: CellSurface) -> None:
    surface.waiting("3 calls ahead")
    assert cell.shown() == ["3 calls ahead"]
    surface.text("Hello")
    assert cell.shown() == ["Hello"]
    surface.done("Hello world", "2 tokens")
    assert cell.shown() == ["Hello world", "2 tokens"]


def test_paints_come_ten_times_a_second_and_the_last_is_exact(
    cell: Cell, surface: CellSurface, clock: FakeClock
) -> None:
    pieces = [f"{number} " for number in range(1000)]
    for piece in pieces:
        surface.text(piece)
        clock.advance(0.005)
    surface.done("".join(pieces), "footer")
    assert 45 <= len(cell.paints) - 2 <= 51
    assert cell.shown()[0] == "".join(pieces)


def test_a_long_answer_is_painted_less_often(cell: Cell, surface: CellSurface, clock: FakeClock) -> None:
    for _ in range(100):
        surface.text("x" * 10_000)
        clock.advance(0.1)
    painted = sum(len(data["text/plain"]) for data in cell.paints)
    assert painted <= 10 * 200_000 + 1_000_000


def test_the_same_waiting_line_is_painted_once(cell: Cell, surface: CellSurface, clock: FakeClock) -> None:
    for second in range(100):
        surface.waiting(f"{second // 20}")
        clock.advance(0.05)
    assert [data["text/plain"] for data in cell.paints] == ["0", "1", "2", "3", "4"]


def test_a_waiting_line_after_the_first_word_is_not_shown(cell: Cell, surface: CellSurface, clock: FakeClock) -> None:
    surface.text("Hello")
    clock.advance(5)
    surface.waiting("again in the queue")
    assert cell.shown() == ["Hello"]


def test_an_empty_piece_shows_nothing(cell: Cell, surface: CellSurface) -> None:
    surface.text("")
    assert cell.paints == []


def test_an_empty_answer_says_so(cell: Cell, surface: CellSurface) -> None:
    surface.done("", "0 tokens")
    assert cell.shown() == ["the answer is empty", "0 tokens"]


def test_a_stop_keeps_what_came(cell: Cell, surface: CellSurface) -> None:
    surface.text("Hel")
    surface.text("lo")
    surface.ended("stopped")
    assert cell.shown() == ["Hello", "stopped"]


def test_a_stop_in_the_queue_replaces_the_waiting_line(cell: Cell, surface: CellSurface) -> None:
    surface.waiting("3 calls ahead")
    surface.ended("stopped")
    assert cell.shown() == ["stopped"]


def test_a_failure_closes_what_was_begun_and_begins_nothing(cell: Cell, clock: FakeClock) -> None:
    CellSurface(cell.publish, clock=clock).failed("no answer")
    assert cell.paints == []
    begun = CellSurface(cell.publish, clock=clock)
    begun.waiting("3 calls ahead")
    begun.failed("no answer")
    assert cell.shown() == ["no answer"]


def test_an_answer_is_never_markup_of_ours(cell: Cell, surface: CellSurface) -> None:
    surface.done("</script><img src=x onerror=alert(1)>", "<b>footer</b>")
    assert "text/html" not in cell.paints[0]
    assert "<b>" not in cell.paints[1]["text/html"]


def test_widgets_have_their_turn_between_paints(cell: Cell, clock: FakeClock) -> None:
    turns: list[int] = []
    surface = CellSurface(cell.publish, between=lambda: turns.append(len(cell.paints)), clock=clock)
    surface.text("a")
    clock.advance(1)
    surface.text("b")
    assert turns == [1, 2]


# ----------------------------------------------------------------------------------------------------------- terminal


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_each_word_as_it_comes() -> None:
    out = io.StringIO()
    surface = TerminalSurface(out)
    surface.text("Hello ")
    assert out.getvalue() == "Hello "
    surface.text("world")
    surface.done("Hello world", "2 tokens")
    assert out.getvalue() == "Hello world\n[2 tokens]\n"


def test_an_answer_that_came_whole_is_written_whole() -> None:
    out = io.StringIO()
    TerminalSurface(out).done("Hello\n", "1 token")
    assert out.getvalue() == "Hello\n[1 token]\n"


def test_the_waiting_line_of_a_terminal_is_wiped_away() -> None:
    out = Tty()
    surface = TerminalSurface(out)
    surface.waiting("3 calls ahead")
    surface.waiting("3 calls ahead")
    surface.text("Hello")
    assert out.getvalue() == "\r\x1b[2K3 calls ahead\r\x1b[2KHello"


def test_a_file_gets_no_waiting_line() -> None:
    out = io.StringIO()
    TerminalSurface(out).waiting("3 calls ahead")
    assert out.getvalue() == ""


def test_a_stop_in_a_terminal_is_a_line_of_its_own() -> None:
    out = io.StringIO()
    surface = TerminalSurface(out)
    surface.text("Hel")
    surface.ended("stopped")
    assert out.getvalue() == "Hel\n[stopped]\n"


def test_a_failure_in_a_terminal_closes_what_was_begun_and_begins_nothing() -> None:
    out = io.StringIO()
    surface = TerminalSurface(out)
    surface.failed("no answer")
    assert out.getvalue() == ""
    surface.text("Hel")
    surface.failed("no answer")
    assert out.getvalue() == "Hel\n[no answer]\n"


def test_an_answer_does_not_steer_the_terminal() -> None:
    out = io.StringIO()
    TerminalSurface(out).text("a\x1b[2Jb\x07\r\x9bc\td\n")
    assert out.getvalue() == "a[2Jbc\td\n"
