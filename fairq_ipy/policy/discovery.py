"""Says which file holds the policy when nobody named one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fairq_ipy.policy.report import Report
from fairq_ipy.policy.tree import START

VARIABLE = "FAIRQ_POLICY"
NAMES = ("policies/team.yaml", "fairq.yaml")
"""What is looked for in each folder, in this order."""


def find(start: Path, environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the policy that holds in the folder `start`.

    ``FAIRQ_POLICY`` goes first. Otherwise `start` and the folders above it are searched, up to the top of the project
    (the folder with ``.git``), the home folder, or the root, so that a file outside of one's own work never decides.

    Args:
        start: the folder of the notebook; a relative ``FAIRQ_POLICY`` counts from it.
        environ: where ``FAIRQ_POLICY`` comes from; the process's environment when left out.

    Returns:
        The file, or ``None`` when there is none.

    Raises:
        PolicyError: when ``FAIRQ_POLICY`` names a file that is not there; a policy that was asked for is not skipped.
    """
    environ = os.environ if environ is None else environ
    start = start.absolute()
    if named := environ.get(VARIABLE):
        chosen = start / os.path.expanduser(named)  # noqa: PTH111 - Path.expanduser raises where there is no home
        if not _is_file(chosen):
            report = Report(str(chosen))
            report.refuse(
                START, "there is no such file", f"the environment variable {VARIABLE} names it; mend or unset it"
            )
        return chosen
    for folder in (start, *start.parents):
        for name in NAMES:
            if _is_file(folder / name):
                return folder / name
        if _is_top(folder, environ):
            return None
    return None


def _is_top(folder: Path, environ: Mapping[str, str]) -> bool:
    home = environ.get("HOME", environ.get("USERPROFILE"))
    try:
        return (folder / ".git").exists() or (home is not None and folder == Path(home))
    except OSError:
        return False


def _is_file(path: Path) -> bool:
    """Return whether there is a file; a folder that may not be entered holds none for us."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # no permission; a name with a NUL
        return False
