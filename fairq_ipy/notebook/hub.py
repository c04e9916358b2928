"""What the magics of one shell work with: the kernel's session, conversations, and lines that wait to be shown."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from fairq_ipy import policy
from fairq_ipy.core.messages import Held, Paused, Resumed, Warned
from fairq_ipy.core.model import LEVELS
from fairq_ipy.errors import FairqError, PolicyError
from fairq_ipy.notebook import bypasses
from fairq_ipy.notebook.completion import Values
from fairq_ipy.notebook.document import shorten
from fairq_ipy.notebook.notices import Notices
from fairq_ipy.notebook.question import Conversations
from fairq_ipy.notebook.surface import Surface
from fairq_ipy.notebook.views import broken_line, source_name
from fairq_ipy.notebook.wording import seconds
from fairq_ipy.session import Bypassed, Notice, PolicyBroken, PolicyLoaded, Session, front

__all__ = ["Hub"]


class Hub:
    """Finds the session for the magics, and hangs the notebook's own hooks on it.

    Where the policy cannot be used there is no session: each magic looks again, and says what is wrong until it is
    mended. Calls are never governed by other rules than the file says.

    Args:
        surface: makes a place where an answer can appear.
        idle: called about 20 times a second while the main thread waits; ``None`` for nothing.
    """

    def __init__(self, surface: Callable[[], Surface], idle: Callable[[], None] | None = None) -> None:
        self.surface = surface
        self.conversations = Conversations()
        self.notices = Notices()
        self.idle = idle
        self._attached: Session | None = None
        self._loading = False

    def session(self) -> Session:
        """Return the session of this kernel.

        Raises:
            PolicyError: there is none, since the policy that is found cannot be used.
        """
        return self._attach(front.session())

    def load(self, path: str) -> Session:
        """Let the policy at `path` hold.

        Raises:
            PolicyError: it cannot be used; what held before holds on.
        """
        return self._by_hand(lambda: front.load(path))

    def reload(self) -> Session:
        """Read the policy file in use again.

        Raises:
            PolicyError: it cannot be used; what held before holds on.
        """
        session = self.session()
        return self._by_hand(lambda: front.load(session.settings.source))

    def close(self) -> None:
        """Take the hooks back and close the session: whoever waits gets `ShutDownError`."""
        self._detach()
        front.close()

    def policy_path(self) -> Path | None:
        """Return the policy file in use, or the one that would be; ``None`` without one."""
        try:
            return self.session().settings.source
        except PolicyError:
            return policy.find(Path.cwd(), os.environ)

    # ------------------------------------------------------------------------------------------------------ completion

    def values(self) -> Values:
        """Return what completes each kind of value."""
        return {
            "tenants": lambda: self._known(self.tenants),
            "levels": lambda: self._known(self._levels),
            "models": lambda: self._known(self._models),
            "guards": lambda: bypasses.MODES,
            "chats": self.conversations.names,
        }

    def tenants(self) -> list[str]:
        """Return all tenants that asked or are named, those of the policy first."""
        session = self.session()
        rules = session.settings.rules
        default = [rules.default_tenant] if rules.default_tenant is not None else []
        return list(dict.fromkeys([*rules.tenants, *default, *session.snapshot().tenants]))

    def _levels(self) -> list[str]:
        names = [level.name for level in self.session().settings.rules.levels]
        return [*names, *map(str, LEVELS)]

    def _models(self) -> list[str]:
        model = self.session().settings.endpoint.model
        return [model] if model else []

    @staticmethod
    def _known(names: Callable[[], Iterable[str]]) -> Iterable[str]:
        """Return the names; none where there is no session to ask."""
        try:
            return names()
        except FairqError:
            return []

    # ----------------------------------------------------------------------------------------------------------- hooks

    def _by_hand(self, load: Callable[[], Session]) -> Session:
        """Load; that it was loaded is the magic's own answer, and no news for the next cell."""
        self._loading = True
        try:
            session = self._attach(load())
            session.snapshot()  # comes back after the notice of the loading
            return session
        finally:
            self._loading = False

    def _attach(self, session: Session) -> Session:
        if session is not self._attached:
            self._detach()
            session.keeper.idle_hook = self.idle
            session.listeners.append(self._heard)
            self._attached = session
        return session

    def _detach(self) -> None:
        session, self._attached = self._attached, None
        if session is not None:
            session.keeper.idle_hook = None
            session.listeners.remove(self._heard)

    def _heard(self, notice: Notice) -> None:
        """Keep what the next cell should say. On the keeper's thread."""
        expected = self._loading and isinstance(notice, PolicyLoaded)
        words = "" if expected else _words(notice)
        if words:
            self.notices.add(words)


def _words(notice: Notice) -> str:
    """Return one line about what happened; empty when nobody needs to be told."""
    match notice:
        case PolicyBroken(error):
            return f"{broken_line(error)}; the rules before it hold on (%fairq validate shows all)"
        case PolicyLoaded(settings, mended):
            return f"{source_name(settings)} {'is mended and' if mended else 'was changed and is'} in use"
        case Paused(tenant, why, until) if why != "by hand":
            again = "" if until is None else f", tried again in {seconds(max(0.0, until - time.time()))}"
            return f"{shorten(tenant or 'everything')} is paused: {why}{again} (%fairq resume)"
        case Warned(tenant, why):
            return f"{shorten(tenant)}: {why}"
        case Bypassed(sighting):
            return bypasses.line(sighting)
        case Paused() | Resumed() | Held():
            return ""  # asked for, or over before anybody reads it: %fairq status says it
