"""The switch: which libraries are looked into, from when to when."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Final

from fairq_ipy.policy.settings import GuardMode
from fairq_ipy.transport.guard.imports import LateImports
from fairq_ipy.transport.guard.patches import Patch
from fairq_ipy.transport.guard.sightings import Bypassed, Seen
from fairq_ipy.transport.guard.watch import GONE_BY, Guarded, Seam, Watch

__all__ = ["Guard"]

log = logging.getLogger(__name__)

# The modules that are looked into once they are there, each with the one of ours that knows how.
_FAMILIES: Final = {
    "httpx": "httpx_family",
    "httpx2": "httpx_family",
    "requests": "requests_adapters",
    "urllib3": "urllib3_pools",
    "aiohttp": "aiohttp_sessions",
    "http.client": "bare",
    "socket": "bare",
}


class Guard:
    """Looks after the calls that go to the endpoint without our clients.

    Args:
        host: the session.
        tell: told of the first call from every place that went by. On the keeper's thread.
    """

    def __init__(self, host: Guarded, tell: Callable[[Bypassed], None]) -> None:
        self._watch = Watch(host, tell)
        self._patches: list[Patch] = []
        self._late = LateImports(_FAMILIES, self._look_into)
        self._lock = threading.Lock()
        self._closed = False

    @property
    def mode(self) -> GuardMode:
        """What becomes of such calls: ``off``, ``warn``, ``route`` or ``block``."""
        return self._watch.mode

    def switch(self, mode: GuardMode) -> None:
        """Do from now on as `mode` says; calls that wait already go on waiting. Any thread."""
        with self._lock:
            if self._closed:
                return
            before, self._watch.mode = self._watch.mode, mode
            if mode == "off":
                self._take_off()
        if before == "off" and mode != "off":
            self._late.begin()
            for name in _FAMILIES:
                if name in sys.modules:  # another thread may be in the middle of importing it: this waits for that
                    self._look_into(importlib.import_module(name))

    def close(self) -> None:
        """Take everything off for good."""
        with self._lock:
            self._closed = True
            self._watch.mode = "off"
            self._take_off()

    def forget(self) -> None:
        """Let everything through: in a forked child the queue is the parent's, and another one takes over here."""
        self._closed = True
        self._watch.mode = "off"

    def seen(self) -> tuple[Seen, ...]:
        """Return which calls were seen, and what became of them, in order of the first one.

        Raises:
            ShutDownError: the session was closed.
            ConfigurationError: this process was forked from the session's.
        """
        return self._watch.seen()

    def bypasses(self) -> int:
        """Return how many calls went past the queue. Raises as `seen` does."""
        return sum(each.calls for each in self.seen() if each.sighting.fate in GONE_BY)

    def _look_into(self, module: ModuleType) -> None:
        """Replace what is to be replaced in a module, once."""
        if self._watch.is_off():
            return
        family = importlib.import_module(f"fairq_ipy.transport.guard.{_FAMILIES[module.__name__]}")
        try:
            seams: list[Seam] = list(family.seams(self._watch, module))
            for owner, name, _ in seams:
                getattr(owner, name)
        except AttributeError as missing:
            log.warning("calls made with this version of %s cannot be seen: %s", module.__name__, missing)
            return
        with self._lock:
            if self._watch.is_off():
                return
            self._patches = [patch for patch in self._patches if not patch.gone]
            known = {(patch.owner, patch.name): patch for patch in self._patches}
            for owner, name, wrap in seams:
                if (owner, name) in known:
                    known[owner, name].wanted = True
                else:
                    self._patches.append(Patch(owner, name, wrap))

    def _take_off(self) -> None:
        self._late.end()
        # What lies below somebody else's patch stays, and is the same one when the guard is switched on again.
        self._patches = [patch for patch in reversed(self._patches) if not patch.take_off()][::-1]
