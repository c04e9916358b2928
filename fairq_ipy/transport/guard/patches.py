"""Methods of other people's classes, replaced for a while.

A patch goes on once, calls what stood there before, and comes off without a trace: when it still lies on top, the
attribute is exactly what it was. When somebody else has patched over it meanwhile it cannot be pulled out from below;
then it stays where it is, and lets everything through, since its guard is off.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

__all__ = ["Patch", "Wrap"]

Wrap: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""From the method that stands there to the one that shall."""

ABSENT: Final = object()


class Patch:
    """One method, replaced.

    Args:
        owner: the class.
        name: of the method.
        wrap: makes the new method of the old one.

    Attributes:
        owner, name: see above.
    """

    __slots__ = ("_before", "_wrapper", "name", "owner")

    def __init__(self, owner: type, name: str, wrap: Wrap) -> None:
        self.owner = owner
        self.name = name
        self._before = vars(owner).get(name, ABSENT)  # an inherited method is none of this class's own
        original = getattr(owner, name)
        self._wrapper = functools.update_wrapper(wrap(original), original)
        setattr(owner, name, self._wrapper)

    def take_off(self) -> bool:
        """Put back what was there; return whether that was possible."""
        if vars(self.owner).get(self.name) is not self._wrapper:
            return False
        if self._before is ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self._before)
        return True
