"""What comes before the first call: the import, and `%load_ext`, each in a fresh interpreter.

CPU seconds of the process, so that a busy machine does not count; the files are in the system's cache either way.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.measure import PROCESS_CPU, Scale, interleaved, ratio, spread
from benchmarks.rows import Line, Row, Target

ROOT: Final = Path(__file__).resolve().parent.parent

TIMED: Final = """
import time
{before}
began = time.process_time()
{timed}
print("\\n", time.process_time() - began)
"""

NOTEBOOK: Final = "import IPython, ipywidgets"
SHELL: Final = """
import ipywidgets
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
"""


def start_up(scale: Scale) -> Iterator[Line]:
    """Yield what the import and the extension add to IPython and ipywidgets, which a notebook has loaded anyway."""
    taken = interleaved(
        {
            "import": _fresh(NOTEBOOK, "import fairq_ipy"),
            "load": _fresh(SHELL, "shell.run_line_magic('load_ext', 'fairq_ipy')"),
            "bare import": _fresh("", "import fairq_ipy"),
            "notebook": _fresh("", NOTEBOOK),
        },
        scale.repetitions,
    )

    def line(what: str, side: str, target: float | None) -> Line:
        value = spread([1e3 * seconds for seconds in taken[side]])
        bound = None if target is None else Target(target)
        return Line.of(what, value, unit="ms", clock=PROCESS_CPU, target=bound)

    yield line("import fairq_ipy, where IPython and ipywidgets are there", "import", 50)
    yield line("import fairq_ipy, where nothing is", "bare import", None)
    yield line("%load_ext fairq_ipy, where IPython and ipywidgets are there", "load", 300)
    yield Line.of(
        "%load_ext fairq_ipy against importing IPython and ipywidgets",
        ratio(taken["load"], taken["notebook"]),
        clock=PROCESS_CPU,
        detail=f"{median(taken['load']) * 1e3:.0f} ms / {median(taken['notebook']) * 1e3:.0f} ms",
    )


def _fresh(before: str, timed: str) -> Callable[[], float]:
    code = TIMED.format(before=before, timed=timed)

    def side() -> float:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
        return float(done.stdout.split()[-1])

    return side


ROWS = (Row("startup", "Import and %load_ext", start_up),)
