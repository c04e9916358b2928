"""The table: as text while it grows, as Markdown and as JSON when it is whole."""

from __future__ import annotations

import os
import platform
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.rows import TIMES, Line

WIDTH: Final = 132


@dataclass(slots=True)
class Section:
    """What came of one row.

    Attributes:
        crashed: why it ended early; empty when it did not.
        seconds: how long it took to measure.
    """

    name: str
    title: str
    lines: list[Line] = field(default_factory=list)
    crashed: str = ""
    seconds: float = 0.0


def machine() -> str:
    """Return one line that names the machine and the interpreter."""
    return (
        f"{_processor()}, {os.cpu_count()} cores, {platform.system()}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


# -------------------------------------------------------------------------------------------------------------- cells


def _number(value: float, unit: str) -> str:
    if value == int(value) and unit != TIMES:
        return f"{value:,.0f}"
    if unit == "":
        return f"{value:.4f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def measured(line: Line) -> str:
    """Return the value with its unit, or why there is none."""
    if line.value is None:
        return line.note
    return f"{_number(line.value, line.unit)} {line.unit}".rstrip()


def ranged(line: Line) -> str:
    """Return the range of the repetitions."""
    if line.low is None or line.high is None:
        return ""
    return f"{_number(line.low, line.unit)} to {_number(line.high, line.unit)}"


def behind(line: Line) -> str:
    """Return what stands behind the value."""
    note = "" if line.value is None else line.note
    return "; ".join(part for part in (line.detail, note) if part)


# --------------------------------------------------------------------------------------------------------------- text


def text_line(line: Line) -> str:
    """Return one line of the table, wrapped where its last column is long."""
    target = "" if line.target is None else str(line.target)
    what = textwrap.wrap(line.what, 62) or [""]
    cells = f"{measured(line):>14}  {ranged(line):>18}  {target:>8}  {line.verdict:<6}  {line.clock}"
    rows = [f"  {what[0]:<62} {cells}", *(f"    {more}" for more in what[1:])]
    if behind(line):
        rows += textwrap.wrap(behind(line), WIDTH - 8, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return "\n".join(row.rstrip() for row in rows)


def text_heading() -> str:
    """Return the names of the columns."""
    cells = f"{'measured':>14}  {'range':>18}  {'target':>8}  {'':<6}  clock"
    return f"  {'':<62} {cells}"


def summary(sections: Sequence[Section]) -> str:
    """Return how many targets were met, and which were not."""
    judged = [(section, line) for section in sections for line in section.lines if line.verdict]
    missed = [(section, line) for section, line in judged if line.verdict == "missed"]
    text = [f"{len(judged) - len(missed)} of {len(judged)} targets met."]
    text += [f"  missed: {each.name}: {line.what}: {measured(line)}, target {line.target}" for each, line in missed]
    text += [f"  crashed: {section.name}: {section.crashed}" for section in sections if section.crashed]
    return "\n".join(text)


# ----------------------------------------------------------------------------------------------------------- documents


def markdown(sections: Sequence[Section], *, quick: bool) -> str:
    """Return the whole table for the documentation."""
    return "\n".join(_markdown(sections, quick=quick)) + "\n"


def _markdown(sections: Sequence[Section], *, quick: bool) -> Iterator[str]:
    yield f"Measured on {machine()}{', a quick run' if quick else ''}."
    for section in sections:
        yield f"\n**{section.title}**\n"
        yield "| what | measured | range | target | | clock | behind it |"
        yield "| --- | ---: | ---: | ---: | --- | --- | --- |"
        for line in section.lines:
            target = "" if line.target is None else str(line.target)
            cells = (line.what, measured(line), ranged(line), target, line.verdict, line.clock, behind(line))
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
        if section.crashed:
            yield f"\nCrashed: {section.crashed}"


def as_json(sections: Sequence[Section], *, quick: bool, seconds: float) -> dict[str, Any]:
    """Return the whole table for a program."""
    rows = [
        {
            "name": section.name,
            "title": section.title,
            "crashed": section.crashed or None,
            "seconds": round(section.seconds, 1),
            "lines": [line.as_dict() for line in section.lines],
        }
        for section in sections
    ]
    return {"machine": machine(), "quick": quick, "seconds": round(seconds, 1), "rows": rows}
