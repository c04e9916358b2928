"""``fairq demo``: play the experiment, show how far it is, and say what came out. Also from a notebook, by `run`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from fairq_ipy.errors import ConfigurationError

if TYPE_CHECKING:
    from fairq_ipy.demo.experiment import Progress
    from fairq_ipy.demo.report import Report

__all__ = ["add_arguments", "main", "progress_on", "run"]

OK: Final = 0
BROKEN: Final = 1
"""The promise was not kept, or the demo could not be played."""

_NAMES: Final = {"uncoordinated": "each for itself", "coordinated": "one queue"}
_BAR: Final = 24
_STEP: Final = 25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options to `parser`."""
    parser.description = (
        "Five developers send 100 mixed requests to an endpoint that serves two at a time: first each for itself with "
        "the usual retries, then through one queue. Over real HTTP on this machine; about half a minute."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--fast", action="store_true", help="make all times shorter: about ten seconds")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="other work of the same kind (default: 0)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw both runs to FILE.svg, .png or .pdf")


def main(options: argparse.Namespace) -> int:
    """Run the command.

    Args:
        options: what `add_arguments` describes.

    Returns:
        0 when the queue kept its promise: nothing refused, nothing failed, no answer to another's question; else 1.
    """
    try:
        report = run(fast=options.fast, seed=options.seed, plot=options.plot, progress=progress_on(sys.stderr))
    except ConfigurationError as problem:
        print(f"fairq demo: {problem}", file=sys.stderr)
        return BROKEN
    except KeyboardInterrupt:
        print("\nfairq demo: stopped", file=sys.stderr)
        raise
    print(json.dumps(report.as_dict(), indent=2) if options.json else report)
    if options.plot is not None:
        print(f"picture: {options.plot}", file=sys.stderr)
    return OK if report.kept else BROKEN


def run(
    *,
    fast: bool = False,
    seed: int = 0,
    plot: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Play the experiment and return what came out; it shows itself in a terminal and in a notebook.

    Args:
        fast: make all times shorter: about ten seconds instead of half a minute.
        seed: another seed gives other work of the same kind.
        plot: a file to draw the picture to, as .svg, .png or .pdf; ``None`` for none.
        progress: told about ten times a second how far it is, on this thread.

    Raises:
        ConfigurationError: when a library is missing, or the file's name ends in no known format; before anything is
            played.
    """
    # Imported here, so that `fairq demo --help` does not wait for HTTP libraries and transports.
    from fairq_ipy.demo import picture
    from fairq_ipy.demo.experiment import play
    from fairq_ipy.demo.report import Report

    target = None if plot is None else Path(plot)
    if target is not None:
        picture.check(target)
    experiment = play(fast=fast, seed=seed, progress=progress or (lambda _: None))
    if target is not None:
        picture.save(experiment, target)
    return Report(experiment)


def progress_on(stream: TextIO) -> Callable[[Progress], None]:
    """Return what shows progress on `stream`: one line that is rewritten in a terminal, a few plain ones elsewhere."""
    return _Live(stream) if stream.isatty() else _Lines(stream)


class _Live:
    """One line for each run, rewritten in place."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = ""
        self._done, self._open = _marks(stream)

    def __call__(self, now: Progress) -> None:
        full = _BAR * now.done // now.total
        line = f"{_NAMES[now.mode]:<16} {self._done * full}{self._open * (_BAR - full)} {_words(now)}"
        if line != self._shown:
            end = "\n" if now.over else ""
            self._stream.write(f"\r{line}\x1b[K{end}")
            self._stream.flush()
            self._shown = line


class _Lines:
    """A line when a run begins, and at each quarter of its jobs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next: dict[str, int] = {}

    def __call__(self, now: Progress) -> None:
        percent = 100 * now.done // now.total
        if percent >= self._next.get(now.mode, 0):
            self._next[now.mode] = percent - percent % _STEP + _STEP
            self._stream.write(f"{_NAMES[now.mode]}: {_words(now)}\n")
            self._stream.flush()


def _marks(stream: TextIO) -> tuple[str, str]:
    """Return what a bar is made of, on a terminal that may know nothing but ASCII."""
    try:
        "━╌".encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return "#", "."
    return "━", "╌"


def _words(now: Progress) -> str:
    return f"{now.done:3} of {now.total} done, {now.refused:3} refused, {now.seconds:4.1f} s"
