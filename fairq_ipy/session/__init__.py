"""The composition root of one kernel: `Session`, the functions of the package root, and the only global there is.

The package's root has a *function* ``session``, and this package has the same name. Python sets a package as an
attribute of its parent when it is first imported, over whatever stood there; so this one can be called, too, and
``fairq_ipy.session()`` is right whether or not somebody imported ``fairq_ipy.session`` before.
"""

from __future__ import annotations

import sys
import types

from fairq_ipy.session import front
from fairq_ipy.session.front import close, load, session
from fairq_ipy.session.kernel import Bypassed, Listener, Notice, PolicyBroken, PolicyLoaded, Session

__all__ = [
    "Bypassed",
    "Listener",
    "Notice",
    "PolicyBroken",
    "PolicyLoaded",
    "Session",
    "close",
    "front",
    "load",
    "session",
]


class _Callable(types.ModuleType):
    """A package that answers to its name."""

    def __call__(self) -> Session:
        """Return the session of this kernel."""
        return session()


sys.modules[__name__].__class__ = _Callable
