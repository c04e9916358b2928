"""The magics: read the line, hand on, return what there is to show."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, needs_local_scope, no_var_expand

from fairq_ipy.notebook.arguments import unknown
from fairq_ipy.notebook.cell import CellText
from fairq_ipy.notebook.commands import ASK, ASK_LINE, FAIRQ
from fairq_ipy.notebook.document import Document, Lines
from fairq_ipy.notebook.fairq import ACTIONS
from fairq_ipy.notebook.hub import Hub
from fairq_ipy.notebook.interrupts import told_calmly
from fairq_ipy.notebook.output import say, show
from fairq_ipy.notebook.question import question

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["FairqMagics"]

_F = TypeVar("_F", bound=Callable[..., Any])


def _typed(decorator: Callable[..., Any], name: str = "") -> Callable[[_F], _F]:
    """Return one of IPython's decorators, which are published without types."""
    return cast("Callable[[_F], _F]", decorator(name) if name else decorator)


@magics_class
class FairqMagics(Magics):
    """``%fairq``, ``%ask`` and ``%%ask``.

    Args:
        shell: where they are registered.
        hub: what they work with.
        text: knows the cell as it was typed.
        above: stands for an answer that its own cell has shown already.

    Attributes:
        take_off: undoes what was hung on the shell beside the magics; the extension's.
    """

    def __init__(self, shell: InteractiveShell, hub: Hub, text: CellText, above: Callable[[], None]) -> None:
        super().__init__(shell)
        self.hub = hub
        self.text = text
        self.above = above
        self.take_off: Callable[[], None] | None = None

    # IPython would fill in {names} before it splits the line, and give up on all of them when one is missing.

    @_typed(no_var_expand)
    @_typed(needs_local_scope)
    @_typed(line_magic, "fairq")
    def fairq(self, line: str, local_ns: Mapping[str, Any] | None = None) -> object:
        """Look at the queue and steer it; ``%fairq --help`` says how."""
        with told_calmly():
            return self._fairq(line, local_ns)

    def _fairq(self, line: str, local_ns: Mapping[str, Any] | None) -> object:
        self.show_notices()
        word, rest = (*line.split(maxsplit=1), "", "")[:2]
        word = word.rstrip(";")
        if word.startswith("-"):
            say(FAIRQ.parse(line, {}).help)
            return None
        command = FAIRQ.commands.get(word or "status")
        if command is None:
            raise UsageError(unknown("%fairq", "command", word, list(FAIRQ.commands)))
        parsed = command.parse(rest, self._names(local_ns))
        if parsed.help:
            say(parsed.help)
            return None
        return ACTIONS[word or "status"](self.hub, parsed.values)

    @_typed(no_var_expand)
    @_typed(needs_local_scope)
    @_typed(line_cell_magic, "ask")
    def ask(self, line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None) -> object:
        """Ask the model; ``%ask --help`` says how."""
        with told_calmly():
            return self._ask(line, cell, local_ns)

    def _ask(self, line: str, cell: str | None, local_ns: Mapping[str, Any] | None) -> object:
        # what sends a question costs a third of the loading time, and is first needed here
        from fairq_ipy.notebook.answer import CellAnswer
        from fairq_ipy.notebook.ask import ask, dry_run

        self.show_notices()
        command, names = ASK_LINE if cell is None else ASK, self._names(local_ns)
        parsed = command.parse(line, names)
        if parsed.help:
            say(parsed.help)
            return None
        text = parsed.text if cell is None else self.text.body(line, cell)
        asked = question(command.name, parsed, text, names)
        session = self.hub.session()
        if asked.dry_run:
            return dry_run(session, self.hub.conversations, asked)
        answer = CellAnswer.of(ask(session, self.hub.conversations, asked, self.hub.surface()), self._shown_here())
        if asked.out is not None:
            self.user_ns[asked.out] = answer
        return answer

    def show_notices(self, *_: object) -> None:
        """Show what happened since the last cell; also a callback for ``pre_run_cell``."""
        lines = self.hub.notices.take()
        if lines:
            show(Document(Lines(tuple(f"fairq: {line}" for line in lines))))

    def _shown_here(self) -> Callable[[], Callable[[], None] | None]:
        """Return what tells whether the cell that runs now is still the one."""
        cell = self.text.number
        instead = self.above
        return lambda: instead if self.text.number == cell else None

    @property
    def user_ns(self) -> dict[str, Any]:
        """The user's variables."""
        return cast("dict[str, Any]", cast("InteractiveShell", self.shell).user_ns)

    def _names(self, local_ns: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return the variables that the line can see: those of the calling function before the user's."""
        return ChainMap(dict(local_ns or {}), self.user_ns)
