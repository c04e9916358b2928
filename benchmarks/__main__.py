"""Runs the benchmarks, each row in an interpreter of its own, so that no row sees what another one left behind.

python -m benchmarks [--quick] [--only NAME ...] [--json FILE] [--markdown FILE]
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeGuard

from benchmarks import report
from benchmarks.measure import Scale
from benchmarks.report import Section
from benchmarks.rows import Line, Row

ROWS: Final = {
    "mixed": "mixed",
    "reserve": "fairness",
    "runaway": "fairness",
    "stall": "fairness",
    "fairness": "fairness",
    "gap": "fairness",
    "calls": "call_cost",
    "roundtrip": "call_cost",
    "core": "core_cost",
    "rules": "core_cost",
    "growth": "core_cost",
    "paused": "core_cost",
    "memory": "call_cost",
    "blocked": "isolation",
    "storms": "isolation",
    "http": "http_cost",
    "guard": "guard_cost",
    "startup": "start_up",
}
"""By name, in the order of the table: the module that measures it."""

ROOT: Final = Path(__file__).resolve().parent.parent
LIMIT: Final = 900.0
"""Seconds after which a row is taken for hung."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 unless a row crashed; a missed target is a result, not a failure."""
    options = _parser().parse_args(arguments)
    if options.row is not None:
        measure(options.row, Scale(options.quick))
        return 0
    began = time.monotonic()
    print(f"{report.machine()}\nratios within each repetition: median and range\n\n{report.text_heading()}")
    sections = [run(name, quick=options.quick) for name in options.only or ROWS]
    seconds = time.monotonic() - began
    print(f"\n{report.summary(sections)}\n{seconds:.0f} s")
    if options.json is not None:
        table = report.as_json(sections, quick=options.quick, seconds=seconds)
        options.json.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.markdown is not None:
        options.markdown.write_text(report.markdown(sections, quick=options.quick), encoding="utf-8")
    return 1 if any(section.crashed for section in sections) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure fairq_ipy beside its peers.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes and five repetitions: half a minute or two")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=ROWS, help=f"rows to run: {', '.join(ROWS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    return parser


def measure(name: str, scale: Scale) -> None:
    """Measure one row, and print each line as JSON as soon as it is known."""
    rows: tuple[Row, ...] = importlib.import_module(f"benchmarks.{ROWS[name]}").ROWS
    row = next(row for row in rows if row.name == name)
    print(json.dumps({"title": row.title}), flush=True)
    for line in row.lines(scale):
        print(json.dumps(line.as_dict()), flush=True)


def run(name: str, *, quick: bool) -> Section:
    """Measure one row in an interpreter of its own, and show its lines as they come."""
    section = Section(name, name)
    command = [sys.executable, "-m", "benchmarks", "--row", name, *(["--quick"] if quick else [])]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, cwd=ROOT) as child:
            watchdog = threading.Timer(LIMIT, child.kill)
            watchdog.start()
            try:
                for text in child.stdout or ():
                    _take(json.loads(text), section)
            except BaseException:
                child.kill()
                raise
            finally:
                watchdog.cancel()
        if child.returncode:
            said.seek(0)
            words = said.read().strip().splitlines() or ["no word"]
            late = time.monotonic() - began >= LIMIT
            section.crashed = f"hung for {LIMIT:.0f} s" if late else words[-1]
            print("\n".join(f"  ! {each}" for each in words[-12:]))
    section.seconds = time.monotonic() - began
    return section


def _take(message: object, section: Section) -> None:
    if not _is_fields(message):
        raise TypeError(f"not a line of a row: {message!r}")
    if "title" in message:
        section.title = str(message["title"])
        print(f"\n{section.title}  [{section.name}]", flush=True)
    else:
        line = Line.from_dict(message)
        section.lines.append(line)
        print(report.text_line(line), flush=True)


def _is_fields(message: object) -> TypeGuard[dict[str, object]]:
    return isinstance(message, dict)


if __name__ == "__main__":
    sys.exit(main())
