"""The table: what a line says, and that a run ends with 0 whatever it measured, and with 1 when a row crashed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks import report
from benchmarks.measure import Turns, interleaved, ratio, spread
from benchmarks.report import Section
from benchmarks.rows import TIMES, Line, Target, missing


def test_a_target_is_met_up_to_its_bound_and_no_further() -> None:
    assert Line("x", 1.1, target=Target(1.1)).verdict == "met"
    assert Line("x", 1.1001, target=Target(1.1)).verdict == "missed"
    assert Line("x", 0.9, target=Target(0.9, "at least")).verdict == "met"
    assert Line("x", 0.8999, target=Target(0.9, "at least")).verdict == "missed"


def test_a_line_without_target_or_value_has_no_verdict() -> None:
    assert Line("x", 1.0).verdict == ""
    assert missing("x").verdict == ""
    assert report.measured(missing("x")) == "not installed"


def test_a_line_survives_the_way_between_two_processes() -> None:
    line = Line.of("x", spread([1.0, 3.0, 2.0]), clock="wall", target=Target(1.5), detail="d", note="n")
    assert Line.from_dict(json.loads(json.dumps(line.as_dict()))) == line


def test_sides_are_measured_in_turn_after_a_warm_up() -> None:
    order: list[str] = []

    def side(name: str) -> float:
        order.append(name)
        return float(len(order))

    taken = interleaved({"a": lambda: side("a"), "b": lambda: side("b")}, 2)
    assert "".join(order) == "ababab"
    assert taken == {"a": [3.0, 5.0], "b": [4.0, 6.0]}


def test_a_ratio_is_taken_within_each_repetition() -> None:
    assert ratio([2.0, 40.0, 3.0], [1.0, 10.0, 1.0]).median == 3.0


def test_a_warm_up_that_is_forgotten_does_not_count() -> None:
    turns = Turns(["a"])
    with turns.call("a"):
        pass
    turns.forget()
    with turns.call("a"):
        pass
    turns.repeated()
    assert len(turns.wall["a"]) == len(turns.cpu["a"]) == 1
    assert turns.wall["a"][0] >= 0.0


def test_markdown_has_one_row_for_each_line_and_escapes_bars() -> None:
    section = Section("s", "Title", [Line("a|b", 1.25, low=1.0, high=2.0, target=Target(1.0)), missing("c")])
    text = report.markdown([section], quick=False)
    assert "**Title**" in text
    assert f"| a\\|b | 1.25 {TIMES} | 1.00 to 2.00 | ≤ 1 | missed |" in text
    assert "| c | not installed |" in text


def test_the_summary_names_what_was_missed() -> None:
    section = Section("s", "Title", [Line("good", 1.0, target=Target(1.0)), Line("bad", 2.0, target=Target(1.0))])
    assert report.summary([section]) == f"1 of 2 targets met.\n  missed: s: bad: 2.00 {TIMES}, target ≤ 1"


def test_a_run_writes_its_table_and_succeeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "table.json"
    assert program.main(["--quick", "--only", "stall", "--json", str(file)]) == 0
    (row,) = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert row["name"] == "stall"
    assert row["crashed"] is None
    assert [line["verdict"] for line in row["lines"]] == ["met", "met"]
    assert "2 of 2 targets met" in capsys.readouterr().out


def test_a_row_that_crashes_fails_the_run_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(program.ROWS, "absent", "nowhere")
    assert program.main(["--only", "absent", "stall", "--quick"]) == 1
    said = capsys.readouterr().out
    assert "crashed: absent" in said
    assert "2 of 2 targets met" in said


def test_every_row_has_a_name_of_its_own_module() -> None:
    import importlib

    for module in set(program.ROWS.values()):
        rows = importlib.import_module(f"benchmarks.{module}").ROWS
        assert {row.name for row in rows} == {name for name, where in program.ROWS.items() if where == module}
