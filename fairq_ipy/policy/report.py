"""Where the findings of one file are gathered, so that all of them are told at once."""

from __future__ import annotations

from typing import NoReturn

from fairq_ipy.errors import Finding, PolicyError
from fairq_ipy.policy.tree import START, Mark, Path
from fairq_ipy.policy.wording import spelled

MOST = 200
"""Findings that are told of one file; nobody reads more, and explaining each takes time."""


class Report:
    """The findings of one file.

    Args:
        file: its name, as the caller gave it.

    Attributes:
        untold: how many more there are that nobody took the time to explain.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.untold = 0
        self._findings: dict[Finding, None] = {}

    def add(self, mark: Mark, path: Path, message: str, hint: str = "") -> None:
        """Keep one finding; the same one a second time, as through two aliases, counts once."""
        self._findings[Finding(self.file, mark.line, mark.column, spelled(path), message, hint)] = None

    def refuse(self, mark: Mark, message: str, hint: str = "") -> NoReturn:
        """Give up: the rest of the file cannot be read at all.

        Raises:
            PolicyError: with this finding alone, since what came before it may be a consequence of it.
        """
        raise PolicyError(findings=(Finding(self.file, mark.line, mark.column, "", message, hint),))

    def close(self) -> None:
        """Tell what was found, in the order of the file.

        Raises:
            PolicyError: when there is a finding.
        """
        if not self._findings:
            return
        ordered = sorted(self._findings, key=lambda finding: (finding.line, finding.column))
        if (more := max(0, len(ordered) - MOST) + self.untold) > 0:
            ordered[MOST:] = [
                Finding(self.file, START.line, START.column, "", f"{more} more problems", "mend these first")
            ]
        raise PolicyError(findings=tuple(ordered))
