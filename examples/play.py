"""Play notebooks in a terminal: each cell and its outputs as they come, from a real kernel.

    python examples/play.py examples/quickstart.ipynb           show it
    python examples/play.py --save examples/*.ipynb             show it, and save it with its outputs

The kernel sees nothing of the reader's own set-up (IPython profile, FAIRQ_* variables), so that a notebook plays the
same everywhere.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from pygments import highlight
from pygments.formatters import TerminalFormatter
from pygments.lexers import PythonLexer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyter_client.manager import KernelManager

ROOT: Final = Path(__file__).resolve().parent.parent
LONGEST_CELL: Final = 120
"""Seconds; the examples take one or two a cell."""

INDENT: Final = "  "
"""Stands before each line of an output."""

ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


# --------------------------------------------------------------------------------------------------------- the terminal


class Screen:
    """Writes to a terminal, or plainly to a file. NO_COLOR is obeyed.

    Args:
        out: where.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.live = out.isatty()
        self.colour = self.live and not os.environ.get("NO_COLOR")
        self.width = max(40, min(100, shutil.get_terminal_size().columns))
        self._passing = False
        self._column = 0
        self._gap = ""

    def style(self, text: str, codes: str) -> str:
        """Return `text` in the style of the ANSI `codes`."""
        return f"\x1b[{codes}m{text}\x1b[0m" if self.colour and text else text

    def passing(self, text: str) -> None:
        """Show a line that the next one overwrites; nothing where lines cannot be overwritten."""
        if not self.live:
            return
        self.fresh_line()
        line = textwrap.shorten(" ".join(text.split()), self.width - 6, placeholder=" ...")
        self._put(f"\r\x1b[2K{self.style(INDENT + line, '2')}")
        self._passing = True

    def line(self, text: str = "") -> None:
        """Write one line as it is."""
        self.fresh_line()
        self._put(text + "\n")

    def flow(self, text: str) -> None:
        """Write a piece of running text, broken between words where the line is full."""
        self._clear_passing()
        for word in re.findall(r"\n|[^\S\n]+|\S+", text):
            if word == "\n":
                self._put("\n")
                self._column, self._gap = 0, ""
            elif word.isspace():
                self._gap = word
            else:
                if self._column and self._column + len(self._gap + word) > self.width:
                    self._put("\n")
                    self._column, self._gap = 0, ""
                piece = (self._gap if self._column else INDENT + self._gap) + word
                self._put(piece)
                self._column, self._gap = self._column + len(piece), ""

    def verbatim(self, text: str) -> None:
        """Write a piece of text as it is, only indented."""
        self._clear_passing()
        for row in text.splitlines(keepends=True):
            self._put(row if self._column or row == "\n" else INDENT + row)
            self._column = 0 if row.endswith("\n") else self._column + len(row)

    def fresh_line(self) -> None:
        """End a line that has begun."""
        self._clear_passing()
        if self._column:
            self._put("\n")
        self._column, self._gap = 0, ""

    def _clear_passing(self) -> None:
        if self._passing:
            self._passing = False
            self._put("\r\x1b[2K")

    def _put(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def show_markdown(screen: Screen, source: str) -> None:
    """Show a Markdown cell: headings, paragraphs and lists; the rest as it stands."""
    for block in re.split(r"\n\s*\n", source.strip()):
        screen.line()
        if block.startswith("#"):
            head, _, block = block.partition("\n")  # noqa: PLW2901 - what follows the heading is the rest of the block
            title = head.lstrip("# ")
            screen.line(screen.style(title, "1"))
            screen.line(screen.style("=" * len(title), "2"))
        if block.startswith(("|", "```", "    ")):
            for row in block.splitlines():
                screen.line(INDENT + row)
            continue
        for item in re.split(r"\n(?=[-*] )", block):
            hanging = "  " if item.startswith(("- ", "* ")) else ""
            for row in textwrap.wrap(" ".join(item.split()), screen.width, subsequent_indent=hanging):
                screen.line(inline(screen, row))


def inline(screen: Screen, text: str) -> str:
    """Return a line of Markdown with its bold, slanted and code parts in the terminal's terms."""
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    text = re.sub(r"\*\*([^*]+)\*\*", lambda found: screen.style(found[1], "1"), text)
    text = re.sub(r"(?<!\*)\*([^*\s][^*]*)\*", lambda found: screen.style(found[1], "3"), text)
    return re.sub(r"`([^`]+)`", lambda found: screen.style(found[1], "36"), text)


def show_code(screen: Screen, source: str, number: int) -> None:
    """Show a code cell as Jupyter does, with its number."""
    prompt = f"In [{number}]: "
    if screen.colour and not source.startswith("%%"):
        source = highlight(source, PythonLexer(stripnl=False, ensurenl=False), TerminalFormatter())
    screen.line()
    for index, row in enumerate(source.splitlines()):
        screen.line(screen.style(prompt if index == 0 else "...: ".rjust(len(prompt)), "32") + row)


# ---------------------------------------------------------------------------------------------------------- the player


class Output:
    """One output of a cell while it changes: a line that passes, then a text that grows."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._written = ""
        self._pending = ""

    def show(self, data: Mapping[str, Any], *, final: bool) -> None:
        """Show what is new in `data`; what may yet be replaced is only shown in passing."""
        text = ANSI.sub("", str(data.get("text/markdown") or data.get("text/plain") or ""))
        growing = "text/markdown" in data and text.startswith(self._written)
        if final or growing:
            self._pending = ""
            if not self._written:
                self._screen.fresh_line()
            if growing:
                self._screen.flow(text[len(self._written) :])
            else:
                self._screen.verbatim(text)
            self._written = text
        else:
            self._pending = text
            self._screen.passing(text)

    def end(self) -> None:
        """Show what nothing replaced."""
        if self._pending:
            self._screen.fresh_line()
            self._screen.verbatim(self._pending)
        self._screen.fresh_line()


class Player(NotebookClient):
    """Executes a notebook and shows it meanwhile.

    Args:
        notebook: what to play.
        folder: where its kernel runs.
        screen: where it is shown.
    """

    def __init__(self, notebook: nbformat.NotebookNode, folder: Path, screen: Screen) -> None:
        super().__init__(
            notebook,
            timeout=LONGEST_CELL,
            kernel_name="python3",
            coalesce_streams=True,
            extra_arguments=["--IPKernelApp.log_level=ERROR"],
            record_timing=False,
            resources={"metadata": {"path": str(folder)}},
            on_cell_start=self._open,
            on_cell_executed=self._close,
        )
        self._screen = screen
        self._shown = -1
        self._outputs: dict[str, Output] = {}

    def create_kernel_manager(self) -> KernelManager:
        """Start the kernel with this very interpreter, whatever else is installed under the kernel's name."""
        manager = super().create_kernel_manager()
        manager.kernel_spec.argv[0] = sys.executable
        return manager

    def overture(self) -> None:
        """Show what stands before the first code cell, so that the reader reads while the kernel starts."""
        for index, cell in enumerate(self.nb.cells):
            if cell.cell_type == "code":
                break
            self._open(cell, index)
        self._screen.line()
        self._screen.passing("starting a kernel ...")

    def process_message(self, msg: dict[str, Any], cell: nbformat.NotebookNode, cell_index: int) -> object:
        """Show a message of the kernel, then let it take its part in the notebook."""
        content, kind = msg["content"], msg["msg_type"]
        if kind == "stream":
            self._screen.verbatim(ANSI.sub("", content["text"]))
        elif kind in {"display_data", "update_display_data", "execute_result"}:
            name = (content.get("transient") or {}).get("display_id")
            output = self._outputs.setdefault(name, Output(self._screen)) if name else Output(self._screen)
            output.show(content["data"], final=not name)
            if not name:
                output.end()
        elif kind == "error":
            for row in "\n".join(content["traceback"]).splitlines():
                self._screen.line(INDENT + self._screen.style(ANSI.sub("", row), "31"))
        return super().process_message(msg, cell, cell_index)

    def _open(self, cell: nbformat.NotebookNode, cell_index: int) -> None:
        if cell_index <= self._shown:
            return
        self._shown = cell_index
        if cell.cell_type == "code":
            show_code(self._screen, cell.source, self.code_cells_executed + 1)
        else:
            show_markdown(self._screen, cell.source)

    def _close(self, cell: nbformat.NotebookNode, cell_index: int, execute_reply: object) -> None:
        del cell, cell_index, execute_reply
        for output in self._outputs.values():
            output.end()
        self._outputs.clear()
        self._screen.fresh_line()


# --------------------------------------------------------------------------------------------------------- the notebook


def clean(notebook: nbformat.NotebookNode) -> None:
    """Take out of an executed notebook what tells of the machine that it ran on.

    Raises:
        SystemExit: an output names a folder of this machine.
    """
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
            "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
        }
    )
    private = {str(ROOT), str(ROOT.parent), tempfile.gettempdir(), str(Path.home())} - {"/"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for path in private:
            if path in str(cell.get("outputs", "")):
                raise SystemExit(f"not saved: the output of this cell names {path}\n\n{cell.source}")


def hermetic(scratch: str) -> dict[str, str]:
    """Return the environment of the kernel: the reader's, without what would change the story."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FAIRQ_")}
    return kept | {"IPYTHONDIR": scratch, "PYTHONWARNINGS": "default", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def play(path: Path, screen: Screen, *, save: bool) -> bool:
    """Play the notebook at `path`; return whether it came to its end."""
    notebook = nbformat.read(path, as_version=4)
    player = Player(notebook, path.parent, screen)
    player.overture()
    try:
        with tempfile.TemporaryDirectory(prefix="fairq-") as scratch:
            asyncio.run(player.async_execute(env=hermetic(scratch)))
    except CellExecutionError:
        screen.line(screen.style(f"\n{path} failed in the cell above.", "31"))
        return False
    except (DeadKernelError, KeyboardInterrupt):
        screen.line("\nStopped.")
        return False
    if save:
        clean(notebook)
        nbformat.write(notebook, path)
        screen.line(f"\nSaved {path}.")
    return True


def main() -> int:
    """Play the notebooks named on the command line."""
    parser = argparse.ArgumentParser(description="Play notebooks in a terminal.")
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK")
    parser.add_argument("--save", action="store_true", help="save each with its outputs")
    options = parser.parse_args()
    screen = Screen(sys.stdout)
    done = [play(path, screen, save=options.save) for path in options.notebooks]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
