"""Methods of other people's classes, replaced for a while.

A patch goes on once, calls what stood there before, and comes off without a trace: when it still lies on top, the
attribute is exactly what it was. When somebody else has patched over it meanwhile it cannot be pulled out from below;
then it stays where it is, and lets everything through, since its guard is off. Where that somebody is another guard of
ours, it comes off together with that one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

__all__ = ["Patch", "Wrap"]

Wrap: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""From the method that stands there to the one that shall."""

ABSENT: Final = object()
LINK: Final = "_fairq_patch"


class Patch:
    """One method, replaced.

    Args:
        owner: the class.
        name: of the method.
        wrap: makes the new method of the old one.

    Attributes:
        before: what stood there; `ABSENT` when the class had nothing of its own.
        gone: whether it is no longer among those that a call comes through.
        method: what stands there instead.
        owner, name: see above.
        wanted: whether it shall be there; to be set again when a patch that could not be taken off is of use once more.
    """

    __slots__ = ("before", "gone", "method", "name", "owner", "wanted")

    def __init__(self, owner: type, name: str, wrap: Wrap) -> None:
        self.owner = owner
        self.name = name
        self.gone = False
        self.wanted = True
        self.before = vars(owner).get(name, ABSENT)  # an inherited method is none of this class's own
        original = getattr(owner, name)
        self.method = functools.update_wrapper(wrap(original), original)
        setattr(self.method, LINK, self)
        setattr(owner, name, self.method)

    def take_off(self) -> bool:
        """Put back what was there; return whether that was possible."""
        self.wanted = False
        if self.gone:
            return True
        if vars(self.owner).get(self.name) is not self.method:
            return False
        before = self.before
        while (below := _patch_of(before)) is not None and not below.wanted:
            below.gone = True
            before = below.before
        self.gone = True
        if before is ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, before)
        return True


def _patch_of(method: object) -> Patch | None:
    """Return the patch that put a method there; ``None`` for what others put there."""
    patch = getattr(method, LINK, None)
    # what wraps a method of ours, to watch it, has taken over its attributes
    return patch if isinstance(patch, Patch) and patch.method is method else None
