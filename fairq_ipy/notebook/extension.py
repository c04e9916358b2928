"""Loading and unloading: everything that is hung on a shell, and everything that is taken off again.

What belongs to one shell hangs on its magics, which IPython keeps; there is no state in this module, so a reload of it
finds what an earlier one left.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from fairq_ipy.errors import FairqError, PolicyError
from fairq_ipy.notebook import views
from fairq_ipy.notebook.cell import CellText, QuestionLine, lone_cell_magic
from fairq_ipy.notebook.completion import matcher
from fairq_ipy.notebook.hub import Hub
from fairq_ipy.notebook.magics import FairqMagics
from fairq_ipy.notebook.output import say, show, warn
from fairq_ipy.notebook.pump import comm_pump
from fairq_ipy.notebook.surface import CellSurface, Surface, TerminalSurface
from fairq_ipy.runtime.permits import sweep

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

__all__ = ["Hooks", "load", "unload"]

_LOSES_MESSAGES: Final = ((7, 0), (7, 4))
"""From the first version of ipykernel that loses messages of the front end by itself to the first that does not."""


def load(shell: InteractiveShell) -> None:
    """Bring the magics, and say in one line which policy holds.

    A policy that cannot be used is no reason not to load: the magics say what is wrong until it is mended.
    """
    unload(shell)
    kernel = getattr(shell, "kernel", None)
    pump = comm_pump(kernel)
    hub = Hub(TerminalSurface if kernel is None else lambda: _cell_surface(shell, pump), pump)
    # A terminal has printed "Out[3]: " by the time an answer that was shown already is to be shown.
    above = (lambda: say("(the answer above)")) if kernel is None else (lambda: None)
    magics = FairqMagics(shell, hub, CellText(shell.transform_cell), above)
    shell.register_magics(magics)
    hooks = Hooks(shell, magics)
    magics.take_off = hooks.take_off
    hooks.hang()
    _greet(hub)
    if kernel is not None:
        _warn_of_lost_messages()


def unload(shell: InteractiveShell) -> None:
    """Take everything back. Whoever waits in the queue gets `ShutDownError`; nothing happens when nothing is loaded."""
    magics = shell.magics_manager.registry.get(FairqMagics.__name__)
    take_off = getattr(magics, "take_off", None)  # a reload of the module makes another class of the same name
    if take_off is not None:
        take_off()
        magics.hub.close()


class Hooks:
    """What is hung on a shell beside the magics themselves."""

    def __init__(self, shell: InteractiveShell, magics: FairqMagics) -> None:
        self._shell = shell
        self._magics = magics
        self._matcher = matcher(magics.hub.values())
        manager = shell.input_transformer_manager
        self._lists: list[tuple[list[Any], Any]] = [
            (shell.input_transformers_cleanup, lone_cell_magic),
            (getattr(manager, "token_transformers", []), QuestionLine),
            (getattr(shell.Completer, "custom_matchers", []), self._matcher),
        ]
        self._events: list[tuple[str, Callable[..., None]]] = [
            ("pre_run_cell", magics.text.pre_run_cell),
            ("pre_run_cell", magics.show_notices),
            ("post_run_cell", sweep_after_interrupt),
        ]

    def hang(self) -> None:
        """Hang all of it."""
        for members, ours in self._lists:
            members.append(ours)
        for event, callback in self._events:
            self._shell.events.register(event, callback)

    def take_off(self) -> None:
        """Take all of it off, and the magics."""
        for members, ours in self._lists:
            if ours in members:
                members.remove(ours)
        for event, callback in self._events:
            self._shell.events.unregister(event, callback)
        manager = self._shell.magics_manager
        for kind, names in self._magics.magics.items():
            for name in names:
                manager.magics[kind].pop(name, None)
        manager.registry.pop(FairqMagics.__name__, None)


def sweep_after_interrupt(result: ExecutionResult) -> None:
    """Give back what an interrupted cell left open; a callback for ``post_run_cell``."""
    if isinstance(result.error_in_exec, KeyboardInterrupt):
        sweep()


def _cell_surface(shell: InteractiveShell, pump: Callable[[], None] | None) -> Surface:
    return CellSurface(shell.display_pub.publish, pump or (lambda: None))


def _greet(hub: Hub) -> None:
    """Say which policy holds, or what is wrong with it."""
    try:
        say(views.loaded_line(hub.session().settings))
    except PolicyError as error:
        where = error.findings[0].file if error.findings else "the policy"
        show(views.findings(where, error.findings))
        say("fairq: nothing is asked until the policy is mended, or %fairq load PATH names another")
    except FairqError as error:
        warn(f"fairq: {error}")


def _warn_of_lost_messages() -> None:
    """Say once that this version of ipykernel loses messages of the front end."""
    version = tuple(int(part) for part in metadata.version("ipykernel").split(".")[:2])
    first, mended = _LOSES_MESSAGES
    if first <= version < mended:
        warn(
            f"fairq: ipykernel {metadata.version('ipykernel')} loses messages now and then, so that cells hang;"
            " pip install 'ipykernel>=7.4', or 'ipykernel<7'"
        )
