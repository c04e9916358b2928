"""One fair queue for every model call made from a notebook.

::

    import fairq_ipy as fairq

    fairq.load("policies/team.yaml")                                        # also found by itself
    client = openai.OpenAI(http_client=fairq.http_client(tenant="logs"))    # an SDK's calls pass the queue
    answer = fairq.ask("Why is the sky blue?")                              # so does this; `await fairq.aask(...)`
    with fairq.tenant("agent-c", priority="batch"):                         # who asks, for everything inside
        ...
    with fairq.permit(cost=1800, messages=12):                              # I/O of one's own; `async with`, too
        ...

In a notebook, ``%load_ext fairq_ipy`` brings ``%%ask`` and ``%fairq``.

Importing this module loads nothing else: each name brings what it needs when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairq_ipy.core.messages import Snapshot as Snapshot
    from fairq_ipy.errors import BudgetExceededError as BudgetExceededError
    from fairq_ipy.errors import BypassBlockedError as BypassBlockedError
    from fairq_ipy.errors import ConfigurationError as ConfigurationError
    from fairq_ipy.errors import ContextTooLargeError as ContextTooLargeError
    from fairq_ipy.errors import EndpointError as EndpointError
    from fairq_ipy.errors import FairqError as FairqError
    from fairq_ipy.errors import Finding as Finding
    from fairq_ipy.errors import PolicyError as PolicyError
    from fairq_ipy.errors import QueueFullError as QueueFullError
    from fairq_ipy.errors import QueueTimeoutError as QueueTimeoutError
    from fairq_ipy.errors import Refused as Refused
    from fairq_ipy.errors import ShareError as ShareError
    from fairq_ipy.errors import ShutDownError as ShutDownError
    from fairq_ipy.errors import StreamReclaimedError as StreamReclaimedError
    from fairq_ipy.errors import TenantEvictedError as TenantEvictedError
    from fairq_ipy.errors import TenantPausedError as TenantPausedError
    from fairq_ipy.errors import UnknownTenantError as UnknownTenantError
    from fairq_ipy.errors import WouldDeadlockError as WouldDeadlockError
    from fairq_ipy.runtime.carry import carry as carry
    from fairq_ipy.runtime.scope import tenant as tenant
    from fairq_ipy.session import Session as Session
    from fairq_ipy.session.front import aask as aask
    from fairq_ipy.session.front import ask as ask
    from fairq_ipy.session.front import async_http_client as async_http_client
    from fairq_ipy.session.front import governed as governed
    from fairq_ipy.session.front import http_client as http_client
    from fairq_ipy.session.front import load as load
    from fairq_ipy.session.front import pause as pause
    from fairq_ipy.session.front import permit as permit
    from fairq_ipy.session.front import resume as resume
    from fairq_ipy.session.front import run as run
    from fairq_ipy.session.front import session as session
    from fairq_ipy.session.front import snapshot as snapshot
    from fairq_ipy.session.front import submit as submit
    from fairq_ipy.transport.chat import Answer as Answer

__version__ = "0.1.0"

_HOMES = {
    "fairq_ipy.core.messages": ("Snapshot",),
    "fairq_ipy.errors": (
        "BudgetExceededError",
        "BypassBlockedError",
        "ConfigurationError",
        "ContextTooLargeError",
        "EndpointError",
        "FairqError",
        "Finding",
        "PolicyError",
        "QueueFullError",
        "QueueTimeoutError",
        "Refused",
        "ShareError",
        "ShutDownError",
        "StreamReclaimedError",
        "TenantEvictedError",
        "TenantPausedError",
        "UnknownTenantError",
        "WouldDeadlockError",
    ),
    "fairq_ipy.runtime.carry": ("carry",),
    "fairq_ipy.runtime.scope": ("tenant",),
    "fairq_ipy.session": ("Session",),
    "fairq_ipy.session.front": (
        "aask",
        "ask",
        "async_http_client",
        "governed",
        "http_client",
        "load",
        "pause",
        "permit",
        "resume",
        "run",
        "session",
        "snapshot",
        "submit",
    ),
    "fairq_ipy.transport.chat": ("Answer",),
}
"""Where each public name lives."""

_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: PLE0604 - the names above, and the two that IPython looks for
    *_HOME,
    "load_ipython_extension",
    "unload_ipython_extension",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any of the public names
    """Bring a public name when it is first used (PEP 562)."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    if name != "session":  # its package stands there by now, and can be called: see fairq_ipy/session/__init__.py
        globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, also those that were not brought yet."""
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: Any) -> None:  # noqa: ANN401 - IPython's InteractiveShell, not imported for a name
    """Bring ``%%ask`` and ``%fairq``, and load the policy: what ``%load_ext fairq_ipy`` calls."""
    from fairq_ipy.notebook import extension

    extension.load(shell)


def unload_ipython_extension(shell: Any) -> None:  # noqa: ANN401 - IPython's InteractiveShell
    """Take it all back: what ``%unload_ext fairq_ipy`` calls. Whoever waits in the queue gets `ShutDownError`."""
    from fairq_ipy.notebook import extension

    extension.unload(shell)
