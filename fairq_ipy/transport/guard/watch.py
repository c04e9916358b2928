"""What the wrappers of all libraries ask: is this call ours to look at, and what becomes of it?

One cheap question comes first (`Watch.reaches`), so that calls to other hosts pay next to nothing. What is seen is kept
on the keeper's thread, so that counting needs no lock, and a forked child cannot inherit a locked one.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from fairq_ipy.errors import BypassBlockedError
from fairq_ipy.policy.settings import GuardMode
from fairq_ipy.runtime.scope import current_lender
from fairq_ipy.transport.guard.patches import Wrap
from fairq_ipy.transport.guard.sightings import Bypassed, Fate, Seen, Sighting, caller
from fairq_ipy.transport.host import Host
from fairq_ipy.transport.origin import PORTS, Origin, plain_host
from fairq_ipy.transport.passing import has_passed

__all__ = ["GONE_BY", "Guarded", "Seam", "Watch", "plain"]

Seam: TypeAlias = tuple[type, str, Wrap]
"""A class, the name of its method, and what makes the new method of the old one."""

HOSTS: Final = 1000
"""Names of hosts that are remembered as the endpoint's or not."""

SIGHTINGS: Final = 500
"""Kinds of calls that are told apart; further ones are counted together."""

GONE_BY: Final[frozenset[Fate]] = frozenset({"let go", "out of reach"})
"""What became of calls that the queue did not see."""

_OTHERS: Final = "(others)"


class Guarded(Host, Protocol):
    """The session, as far as the guard sees it."""

    def origins(self) -> frozenset[Origin]:
        """Return whom governed calls go to."""


class Watch:
    """Decides about calls, and counts them.

    Args:
        host: the session whose endpoint is watched.
        tell: told of the first call from every place that went by. On the keeper's thread.

    Attributes:
        host: see above.
        mode: what becomes of calls.
    """

    def __init__(self, host: Guarded, tell: Callable[[Bypassed], None]) -> None:
        self.host = host
        self.mode: GuardMode = "off"
        self._tell = tell
        self._near: tuple[frozenset[Origin], dict[str, bool]] = (frozenset(), {})
        self._books: dict[Sighting, int] = {}

    # ---------------------------------------------------------------------------------------------------- any thread

    def is_off(self) -> bool:
        """Return whether nothing is looked at."""
        return self.mode == "off"

    def reaches(self, host: str) -> bool:
        """Return whether `host` may be the endpoint's; scheme, port and path are not looked at."""
        if self.mode == "off":
            return False
        origins = self.host.origins()
        at, known = self._near
        if at is not origins:
            known = {}
            self._near = (origins, known)
        found = known.get(host)
        if found is None:
            if len(known) >= HOSTS:
                known.clear()
            name = plain(host)
            found = known[host] = any(name == origin.host for origin in origins)
        return found

    def judge(self, library: str, host: str, url: str, packages: frozenset[str]) -> Fate | None:
        """Return what becomes of a POST, and count it; ``None`` when it is none of the guard's business.

        Args:
            library: what sends it.
            host: whom it goes to.
            url: the whole address.
            packages: the top-level packages that make up the library.

        Raises:
            BypassBlockedError: the policy refuses such calls.
        """
        if self.is_ours() or not self.host.governs("POST", url):
            return None
        mode = self.mode
        if mode == "off":
            return None
        if mode == "route":
            self.book(library, host, packages, "queued")
            return "queued"
        if current_lender() is not None:  # the I/O that a permit around it was taken for
            return "let go"
        if mode == "warn":
            self.book(library, host, packages, "let go")
            return "let go"
        raise self.refusal(self.book(library, host, packages, "blocked"))

    def is_endpoint(self, scheme: str, host: str, port: int | None) -> bool:
        """Return whether that is the endpoint's origin."""
        return Origin(scheme, plain(host), PORTS.get(scheme) if port is None else port) in self.host.origins()

    def out_of_reach(self, library: str, host: str, packages: frozenset[str], *, sure: bool = True) -> None:
        """Count a call or a connection to the endpoint that nothing can hold up.

        Args:
            library: what makes it.
            host: whom it goes to.
            packages: the top-level packages that make up the library.
            sure: whether it really goes to the endpoint, and not perhaps to another host at the same address.

        Raises:
            BypassBlockedError: the policy refuses such calls.
        """
        if self.is_ours() or current_lender() is not None:
            return
        if self.mode == "block" and sure:
            raise self.refusal(self.book(library, host, packages, "blocked"))
        self.book(library, host, packages, "out of reach")

    def is_ours(self) -> bool:
        """Return whether the running code is a call that somebody has dealt with, or our own sending."""
        return has_passed() or get_ident() == self.host.keeper.thread_id

    def book(self, library: str, host: str, packages: frozenset[str], fate: Fate) -> Sighting:
        """Count a call, and return what it was."""
        sighting = self.sighting(library, host, packages, fate)
        self.count(sighting)
        return sighting

    def sighting(self, library: str, host: str, packages: frozenset[str], fate: Fate) -> Sighting:
        """Return what a call is, as seen from the running code."""
        return Sighting(library, host, *caller(packages), fate)

    def count(self, sighting: Sighting) -> None:
        """Count a call."""
        self.host.keeper.post(self._book, sighting)

    def refusal(self, sighting: Sighting) -> BypassBlockedError:
        """Return the error for a call that may not go."""
        text = (
            f"{sighting.place} called {sighting.host} past the queue, and the guard blocks that: hand its client over "
            "(http_client=fairq.http_client()), or let such calls wait in the queue with `%fairq guard on`, which is "
            "`guard: route` in the policy"
        )
        return BypassBlockedError(text, library=sighting.library, host=sighting.host, module=sighting.module)

    def seen(self) -> tuple[Seen, ...]:
        """Return what was seen so far, in order of its first call."""
        return self.host.keeper.call(lambda _core, _now: tuple(Seen(*each) for each in self._books.items()))

    # ---------------------------------------------------------------------------------------------- keeper's thread

    def _book(self, sighting: Sighting) -> None:
        if sighting not in self._books and len(self._books) >= SIGHTINGS:
            sighting = sighting._replace(module=_OTHERS, user=_OTHERS)
        calls = self._books[sighting] = self._books.get(sighting, 0) + 1
        if calls == 1 and sighting.fate in GONE_BY:
            self._tell(Bypassed(sighting))


def plain(host: str) -> str:
    """Return a host in the spelling of origins; what is none stays as it is."""
    try:
        return plain_host(host)
    except ValueError:
        return host
