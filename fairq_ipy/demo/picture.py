"""The experiment as a picture: what each developer waited for and got, without the queue and with it.

Needs matplotlib (the extra ``plot``). Nothing global of it is touched: no pyplot, no backend, no style is changed, so a
notebook's own plots look as before.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fairq_ipy.demo.results import Experiment, Run, Trace
from fairq_ipy.demo.workload import DEVELOPERS
from fairq_ipy.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "as_png", "check", "draw", "save"]

FORMATS: Final = (".png", ".svg", ".pdf")

INK: Final = "#22303c"
SOFT: Final = "#6b7a88"
RULE: Final = "#e3e8ec"
REVIEW: Final = "#2f6fb3"
BATCH: Final = "#b9c6d2"
WAIT_REVIEW: Final = "#a9c8e8"
WAIT_BATCH: Final = "#e9eef2"
REFUSED: Final = "#d1495b"

_GAP: Final = 1.6
_TITLES: Final = ("Each for itself: retry and hope", "One queue: wait for your turn")


def check(target: Path | None = None) -> None:
    """Say what is missing before anything is measured.

    Raises:
        ConfigurationError: when matplotlib is not installed, the file's name ends in no format that is known, or its
            folder is not there.
    """
    if target is not None:
        _check_file(target)
    try:
        import matplotlib.figure  # noqa: F401 - only whether it is there
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            "the picture needs matplotlib: pip install 'fairq-ipy[plot]' (or leave out --plot)"
        ) from missing


def _check_file(target: Path) -> None:
    if target.suffix.lower() not in FORMATS:
        known = ", ".join(FORMATS)
        raise ConfigurationError(f"cannot tell the picture's format from {str(target)!r}: let it end in one of {known}")
    if not target.parent.is_dir():
        raise ConfigurationError(f"cannot write the picture to {str(target)!r}: there is no folder {target.parent}")


def save(experiment: Experiment, target: Path) -> None:
    """Write the picture to `target`, in the format that its name ends in.

    Raises:
        ConfigurationError: when it cannot be written there.
    """
    try:
        draw(experiment).savefig(target)
    except OSError as problem:
        raise ConfigurationError(f"cannot write the picture to {str(target)!r}: {problem}") from problem


def as_png(experiment: Experiment, *, dpi: int = 80) -> bytes:
    """Return the picture as a small PNG."""
    out = io.BytesIO()
    draw(experiment).savefig(out, format="png", dpi=dpi)
    return out.getvalue()


def draw(experiment: Experiment) -> Figure:
    """Return the picture: two time lines over the same seconds, and below them the reviews' waits and the counts."""
    from matplotlib.figure import Figure

    runs = (experiment.uncoordinated, experiment.coordinated)
    figure = Figure(figsize=(11, 10.4), dpi=140, facecolor="white")
    grid = figure.add_gridspec(
        3, 2, height_ratios=(4.2, 4.2, 1.5), width_ratios=(3, 1.5), left=0.075, right=0.975, top=0.895, bottom=0.06,
        hspace=0.3, wspace=0.16,
    )  # fmt: skip
    end = max(run.makespan_s for run in runs) * 1.02
    for row, (run, title) in enumerate(zip(runs, _TITLES, strict=True)):
        axes = figure.add_subplot(grid[row, :])
        _timeline(axes, run, experiment, end)
        axes.set_title(title, loc="left", color=INK, fontsize=12, fontweight="bold", pad=8)
        axes.set_title(_summary(run), loc="right", color=SOFT, fontsize=10, pad=8)
    _waits(figure.add_subplot(grid[2, 0]), runs)
    _counts(figure.add_subplot(grid[2, 1]), runs)
    figure.text(0.075, 0.965, "100 requests, five developers, an endpoint that serves two at a time", color=INK,
                fontsize=15, fontweight="bold")  # fmt: skip
    _legend(figure)
    return figure


def _timeline(axes: Axes, run: Run, experiment: Experiment, end: float) -> None:
    """Draw one lane for each developer, with as many rows as it had jobs open at once."""
    top, ticks, placed = 0.0, [], []
    for developer in DEVELOPERS:
        rows = _rows([trace for trace in run.traces if trace.job.developer == developer])
        placed += [(trace, top + at) for at, row in enumerate(rows) for trace in row]
        ticks.append(top + (len(rows) - 1) / 2)
        top += len(rows) + _GAP
        if developer != DEVELOPERS[-1]:
            axes.axhline(top - _GAP / 2 - 0.5, color=RULE, linewidth=1, zorder=0)
    _jobs(axes, [(trace, y) for trace, y in placed if trace.job.kind == "batch"], WAIT_BATCH, BATCH)
    _jobs(axes, [(trace, y) for trace, y in placed if trace.job.kind == "interactive"], WAIT_REVIEW, REVIEW)
    axes.axvline(experiment.bound_s, color=SOFT, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    axes.set_xlim(0, end)
    axes.set_ylim(top - _GAP + 0.3, -1.3)
    axes.set_yticks(ticks, DEVELOPERS)
    axes.tick_params(axis="y", length=0, labelsize=11, labelcolor=INK)
    _plain(axes)


def _jobs(axes: Axes, placed: Sequence[tuple[Trace, float]], wait: str, bar: str) -> None:
    """Draw jobs: the wait as a thin line, the service as a bar, each refusal as a cross, giving up as a square."""
    begun = [trace.job.wanted for trace, _ in placed]
    until = [trace.job.wanted + trace.wait for trace, _ in placed]
    axes.hlines([y for _, y in placed], begun, until, color=wait, linewidth=2.2, zorder=1)
    served = [
        (y, trace.started, trace.served - trace.started)
        for trace, y in placed
        if trace.started is not None and trace.served is not None
    ]
    rows, starts, widths = zip(*served, strict=True) if served else ((), (), ())
    axes.barh(rows, widths, left=starts, height=0.78, color=bar, linewidth=0, zorder=2)
    crosses = [(moment, y) for trace, y in placed for moment in trace.refused]
    axes.plot(*_columns(crosses), "x", color=REFUSED, markersize=3.6, markeredgewidth=1.1, zorder=3)
    squares = [(trace.ended, y) for trace, y in placed if not trace.answered]
    axes.plot(*_columns(squares), "s", color=REFUSED, markersize=4.2, zorder=4)


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _rows(traces: Sequence[Trace]) -> list[list[Trace]]:
    """Put each job in the first row that is free when it is wanted; reviews have the upper rows."""
    rows: list[list[Trace]] = []
    for kind in ("interactive", "batch"):
        own: list[list[Trace]] = []
        for trace in traces:
            if trace.job.kind != kind:
                continue
            free = next((row for row in own if row[-1].ended < trace.job.wanted), None)
            if free is None:
                own.append([trace])
            else:
                free.append(trace)
        rows += own
    return rows


def _waits(axes: Axes, runs: tuple[Run, Run]) -> None:
    """Draw each review's wait as a dot, with the median and the 95th percentile."""
    for at, run in enumerate(runs):
        reviews = [trace for trace in run.traces if trace.job.kind == "interactive"]
        # Spread up and down, the same each time, so that dots do not hide dots.
        lifts = [at + ((trace.job.number * 7) % 11 - 5) / 26 for trace in reviews]
        colors = [REVIEW if trace.answered else REFUSED for trace in reviews]
        axes.scatter([trace.wait for trace in reviews], lifts, s=22, c=colors, alpha=0.75, linewidths=0)
        half, most = run.wait_s(0.5), run.wait_s(0.95)
        axes.vlines((half, most), at - 0.3, at + 0.3, color=INK, linewidth=1.4)
        words = f"median {half:.2f} s, 95 % within {most:.2f} s"
        axes.text(0, at - 0.34, words, fontsize=8, color=INK, va="bottom")
    axes.set_ylim(1.5, -0.75)
    axes.set_xlim(left=0)
    axes.set_yticks((0, 1), ("for itself", "one queue"))
    axes.tick_params(axis="y", length=0, labelsize=9, labelcolor=INK)
    axes.set_title("How long a review waited until it was served", loc="left", fontsize=10, color=INK, pad=6)
    _plain(axes)


def _counts(axes: Axes, runs: tuple[Run, Run]) -> None:
    """Draw what was sent: served and refused."""
    for at, run in enumerate(runs):
        served = run.sent - run.refused_429
        axes.barh(at, served, color=BATCH, height=0.5)
        axes.barh(at, run.refused_429, left=served, color=REFUSED, height=0.5)
        words = f"{served} served" + (f", {run.refused_429} refused" if run.refused_429 else ", none refused")
        axes.text(0, at - 0.34, words, fontsize=8, color=INK, va="bottom")
    axes.set_ylim(1.5, -0.75)
    axes.set_yticks(())
    axes.set_title("What was sent", loc="left", fontsize=10, color=INK, pad=6)
    _plain(axes, unit="")


def _plain(axes: Axes, unit: str = " s") -> None:
    """Take away what carries no information."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
    axes.tick_params(axis="x", color=RULE, labelcolor=SOFT, labelsize=9)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}{unit}")
    axes.set_axisbelow(True)


def _summary(run: Run) -> str:
    if run.refused_429 or run.failed:
        return f"{run.refused_429} refusals, {run.failed} jobs without an answer, {run.makespan_s:.1f} s"
    return f"no refusal, every job answered, {run.makespan_s:.1f} s"


def _legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(color=REVIEW, label="review, served"),
        Patch(color=BATCH, label="batch, served"),
        Line2D([], [], color=WAIT_REVIEW, linewidth=2.2, label="waiting"),
        Line2D([], [], color=REFUSED, marker="x", linestyle="", markersize=5, markeredgewidth=1.3, label="429"),
        Line2D([], [], color=REFUSED, marker="s", linestyle="", markersize=5, label="gave up"),
        Line2D([], [], color=SOFT, linewidth=1, linestyle=(0, (4, 3)), label="least possible time"),
    ]
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.068, 0.957), ncols=len(handles), frameon=False,
                  fontsize=9, labelcolor=INK, handlelength=1.6, columnspacing=1.8, borderaxespad=0)  # fmt: skip
