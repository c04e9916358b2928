"""Looks at the policy file once a second, in a thread of its own: a slow file system may keep it, and nobody else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from fairq_ipy.errors import PolicyError
from fairq_ipy.policy import Settings, Watcher

__all__ = ["PolicyWatch"]

EVERY: Final = 1.0

log = logging.getLogger(__name__)


class PolicyWatch:
    """Watches one policy file until it is stopped.

    Args:
        watcher: knows the file.
        tell: called on the watching thread with each new content: the settings, or what is wrong with it.
        every: seconds between two looks.
    """

    def __init__(
        self, watcher: Watcher, tell: Callable[[PolicyWatch, Settings | PolicyError], None], every: float = EVERY
    ) -> None:
        self._watcher = watcher
        self._tell = tell
        self._every = every
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._main, name="fairq-policy", daemon=True)
        self._thread.start()

    @property
    def stopped(self) -> bool:
        """Whether nothing more will be told."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Stop watching. It does not wait for the thread, which may hang in a file system."""
        self._stopped.set()

    def _main(self) -> None:
        while not self._stopped.wait(self._every):
            try:
                found = self._watcher.check()
                if found is not None and not self._stopped.is_set():
                    self._tell(self, found)
            except Exception:
                # Whatever is wrong with one look, the next one may be right; and the present policy holds on.
                log.exception("the policy could not be looked at")
