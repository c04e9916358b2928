"""The experiment in words: a table, and plain sentences that say what it means. As text, and as HTML for a notebook."""

from __future__ import annotations

import base64
import html
import textwrap
from typing import Final

from fairq_ipy.demo import picture
from fairq_ipy.demo.results import Experiment
from fairq_ipy.errors import ConfigurationError

__all__ = ["Report"]

_HEADINGS: Final = ("", "each for itself", "one queue")
_WIDTH: Final = 96
_BUSY: Final = 1.1
"""A makespan this much above the bound is the machine's: clients, queue and endpoint share its processors."""


class Report:
    """Shows an experiment: as text in a terminal, as a table and a picture in a notebook.

    Args:
        experiment: what was measured.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    @property
    def kept(self) -> bool:
        """Whether the queue kept its promise: nothing refused, nothing failed, and no answer to another's question."""
        run = self.experiment.coordinated
        return not (run.refused_429 or run.failed or self.experiment.answers_wrong)

    def as_dict(self) -> dict[str, object]:
        """Return the object that ``fairq demo --json`` prints."""
        return self.experiment.as_dict()

    def __str__(self) -> str:
        rows = [_HEADINGS, *_rows(self.experiment)]
        widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADINGS))]
        lines = [f"{name:<{widths[0]}}   {one:>{widths[1]}}   {two:>{widths[2]}}".rstrip() for name, one, two in rows]
        words = [textwrap.fill(sentence, _WIDTH) for sentence in sentences(self.experiment)]
        return "\n".join([*lines, "", *words])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(_row("td", row) for row in _rows(self.experiment))
        words = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences(self.experiment))
        return f"<table><thead>{_row('th', _HEADINGS)}</thead><tbody>{rows}</tbody></table>{words}{self._image()}"

    def _image(self) -> str:
        """Return the picture, or nothing where matplotlib is not installed: the table says the same."""
        try:
            picture.check()
        except ConfigurationError:
            return ""
        data = base64.b64encode(picture.as_png(self.experiment)).decode()
        alt = html.escape(" ".join(sentences(self.experiment)), quote=True)
        return f'<img alt="{alt}" style="max-width:100%" src="data:image/png;base64,{data}">'


def sentences(experiment: Experiment) -> list[str]:
    """Say what the numbers mean, good or bad."""
    return [*_without(experiment), *_with(experiment), _answers(experiment)]


def _rows(experiment: Experiment) -> list[tuple[str, str, str]]:
    one, two = experiment.uncoordinated, experiment.coordinated
    return [
        ("requests sent", f"{one.sent}", f"{two.sent}"),
        ("refused by the endpoint (429)", f"{one.refused_429}", f"{two.refused_429}"),
        ("jobs without an answer, of 100", f"{one.failed}", f"{two.failed}"),
        ("review waits to begin, median", f"{one.wait_s(0.5):.2f} s", f"{two.wait_s(0.5):.2f} s"),
        ("review waits to begin, 95th percentile", f"{one.wait_s(0.95):.2f} s", f"{two.wait_s(0.95):.2f} s"),
        ("until all clients were done", f"{one.makespan_s:.2f} s", f"{two.makespan_s:.2f} s"),
        ("least time that all 100 need", f"{experiment.bound_s:.2f} s", f"{experiment.bound_s:.2f} s"),
    ]


def _without(experiment: Experiment) -> list[str]:
    run, other = experiment.uncoordinated, experiment.coordinated
    refused = f"Without the queue, {run.refused_429} of {run.sent} requests were refused"
    failed = f"after two retries {_count(run.failed, 'job')} had no answer"
    said = [f"{refused}, and {failed}, {run.failed_reviews} of them reviews that somebody waited for."]
    if run.wait_s(0.5) < other.wait_s(0.5):
        said.append("Half of its reviews met a free slot by luck; the others waited for a retry, or for nothing.")
    if run.failed and run.makespan_s < other.makespan_s:
        said.append(f"That run ended sooner only because it left {_count(run.failed, 'job')} undone.")
    return said


def _with(experiment: Experiment) -> list[str]:
    run = experiment.coordinated
    factor = run.makespan_s / experiment.bound_s
    if run.refused_429 or run.failed:
        refused = f"With the queue, {run.refused_429} of {run.sent} requests were refused"
        failed = f"{_count(run.failed, 'job')} had no answer"
        return [f"{refused} and {failed}. That should not be: something else uses up the endpoint, or this machine."]
    done = f"all 100 were done in {run.makespan_s:.2f} s, {factor:.2f} times the least that any order needs"
    begun = f"Half of the reviews began within {run.wait_s(0.5):.2f} s and 95 % within {run.wait_s(0.95):.2f} s"
    said = [
        f"With the queue, nothing was refused and nothing failed: {done}.",
        f"{begun}: they go first, and nobody guesses when to try again.",
    ]
    if factor > _BUSY:
        said.append("This machine had little time to spare: where nothing else runs, it comes within a few percent.")
    return said


def _answers(experiment: Experiment) -> str:
    if experiment.answers_wrong:
        return f"{experiment.answers_wrong} of {experiment.answers_checked} answers belonged to another question."
    return f"All {experiment.answers_checked} answers were compared with their questions, and each was the right one."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _row(tag: str, cells: tuple[str, ...]) -> str:
    """Return a row of a table: the first column to the left, numbers to the right."""
    inside = (
        f'<{tag} style="text-align:{"right" if at else "left"}">{html.escape(cell)}</{tag}>'
        for at, cell in enumerate(cells)
    )
    return f"<tr>{''.join(inside)}</tr>"
