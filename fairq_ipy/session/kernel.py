"""What one kernel shares: the policy, the keeper, the endpoint, and who asks. Everything else hangs on it."""

from __future__ import annotations

import functools
import importlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fairq_ipy import policy
from fairq_ipy.core.messages import Effect, Held, Pause, Paused, PolicyChanged, Resume, Resumed, Snapshot, Warned
from fairq_ipy.core.model import LEVELS, Policy
from fairq_ipy.errors import ConfigurationError, PolicyError
from fairq_ipy.policy import Settings
from fairq_ipy.runtime import calendar, calls, refusals, scope
from fairq_ipy.runtime.keeper import Keeper
from fairq_ipy.runtime.permits import PermitBlock
from fairq_ipy.runtime.scope import Identity
from fairq_ipy.session.governed import Governed
from fairq_ipy.session.watch import PolicyWatch
from fairq_ipy.transport.guard import Bypassed, Guard
from fairq_ipy.transport.origin import Origin

__all__ = ["Bypassed", "Listener", "Notice", "PolicyBroken", "PolicyLoaded", "Session"]

F = TypeVar("F", bound=Callable[..., Any])

BUILT_IN: Final = "the built-in policy (`fairq init` writes one to edit)"


class PolicyLoaded(NamedTuple):
    """New rules hold.

    Attributes:
        settings: what holds now.
        mended: whether the file was broken before.
    """

    settings: Settings
    mended: bool


class PolicyBroken(NamedTuple):
    """The policy file cannot be used; the rules before it hold on."""

    error: PolicyError


Notice: TypeAlias = PolicyLoaded | PolicyBroken | Paused | Resumed | Warned | Held | Bypassed
Listener: TypeAlias = Callable[[Notice], None]


class Session:
    """One queue with its policy; ``fairq.session()`` returns the one of this kernel.

    Args:
        settings: the policy that holds at first; `Session.find` looks for one.
        watch: seconds between two looks at the policy file; ``None`` does not look.

    Attributes:
        settings: the policy that holds now.
        broken: what is wrong with the policy file, while the one before it holds; ``None`` when all is well.
        keeper: the owner of the queue.
        chat: the clients behind `fairq.ask`, made by the transport at the first question.
        guard: looks after calls of the endpoint by clients that are not ours, as the policy says.
        listeners: called with every `Notice`, on the keeper's thread: they must not block. Times are seconds since the
            epoch.
    """

    def __init__(self, settings: Settings, *, watch: float | None = 1.0) -> None:
        zone = _zone(settings)
        self.settings = settings
        self.broken: PolicyError | None = None
        self.listeners: list[Listener] = []
        self._every = watch
        self._watch: PolicyWatch | None = None
        self._lock = threading.RLock()
        self._demo: Any = None
        self.chat: Any = None
        self._closed = False
        self._governed = self._addressed(settings)
        self.keeper = Keeper(settings.rules, source=_name(settings))
        self.keeper.on_effect = self._told
        self._calendar = calendar.Calendar(self.keeper)
        self.keeper.post(self._calendar.follow, zone, calendar.used(settings.rules))
        self.guard = Guard(self, self._notify)
        self.guard.switch(settings.guard)
        with self._lock:
            self._look_after(settings)

    @classmethod
    def find(cls, path: str | os.PathLike[str] | None = None, *, watch: float | None = 1.0) -> Session:
        """Return a session with the policy at `path`, or with the one that is found, or with the built-in one.

        Args:
            path: the file; ``None`` looks for one from the working directory upward.
            watch: seconds between two looks at it later; ``None`` does not look.

        Raises:
            PolicyError: that policy cannot be used.
        """
        return cls(_read(path), watch=watch)

    def __repr__(self) -> str:
        """Return what it is made of, without secrets."""
        endpoint, rules = self.settings.endpoint, self.settings.rules
        state = ", closed" if self._closed else ", policy file broken" if self.broken is not None else ""
        return f"<Session of {_name(self.settings)}: {endpoint.base_url}, {rules.limits.concurrency} slots{state}>"

    # ------------------------------------------------------------------------------------------------------ the policy

    def load(self, path: str | os.PathLike[str] | None = None) -> Settings:
        """Let another policy hold from now on; nobody who waits is thrown out.

        Args:
            path: the file; ``None`` looks for one, as at the start.

        Returns:
            What holds now.

        Raises:
            PolicyError: it cannot be used; the present one holds on.
        """
        settings = _read(path)
        self._adopt(settings, by_hand=True)
        return settings

    def reload(self) -> Settings:
        """Read the present policy file again.

        Raises:
            PolicyError: it cannot be used; the present rules hold on.
        """
        return self.load(self.settings.source)

    def _adopt(self, settings: Settings, *, by_hand: bool) -> None:
        zone = _zone(settings)
        with self._lock:
            if self._closed:
                return
            mended, guarded = self.broken is not None, self.settings.guard
            self.settings, self.broken = settings, None
            self._governed = self._governed.followed_by(self._addressed(settings))
            keeper = self.keeper
            keeper.source = _name(settings)
            keeper.post(self._calendar.follow, zone, calendar.used(settings.rules))
            keeper.event(PolicyChanged(settings.rules))
            keeper.post(self._notify, PolicyLoaded(settings, mended))
            if settings.guard != guarded:  # what somebody switched by hand holds until the policy says something else
                self.guard.switch(settings.guard)
            if by_hand:
                self._look_after(settings)

    def _look_after(self, settings: Settings) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        if settings.source is not None and self._every is not None:
            watcher = policy.Watcher(settings.source, settings.digest)
            self._watch = PolicyWatch(watcher, self._seen, self._every)

    def _seen(self, watch: PolicyWatch, found: Settings | PolicyError) -> None:
        """Take in a new content of the file, on the watching thread."""
        with self._lock:
            if watch is not self._watch:  # another file was loaded while this one was read
                return
            if isinstance(found, Settings):
                self._adopt(found, by_hand=False)
            else:
                self.broken = found
                self.keeper.post(self._notify, PolicyBroken(found))

    # ---------------------------------------------------------------------------------------------------- the endpoint

    def base_url(self) -> str:
        """Return the endpoint's address, as SDKs take it; for ``demo``, start the built-in endpoint first.

        Raises:
            ConfigurationError: the built-in endpoint cannot start.
        """
        url = self.settings.endpoint.base_url
        return url if url != "demo" else str(self._demo_server().base_url)

    def api_key(self) -> str | None:
        """Return the key from the environment variable that the policy names; ``None`` when there is none.

        Raises:
            ConfigurationError: it cannot be sent in a header. The error says why and never repeats it.
        """
        variable = self.settings.endpoint.api_key_env
        key = os.environ.get(variable) if variable is not None else None
        if not key:
            return None
        problem = _key_problem(key)
        if problem is not None:
            raise ConfigurationError(f"the key in {variable} {problem}; set the variable again without it")
        return key

    def origins(self) -> frozenset[Origin]:
        """Return whom governed calls go to: the endpoint, and those that were it before; empty before the demo runs."""
        return self._governed.origins

    def governs(self, method: str, url: str) -> bool:
        """Return whether that request is a call of the endpoint, which passes the queue."""
        return self._governed.covers(method, url)

    def _addressed(self, settings: Settings) -> Governed:
        """Return what recognises the calls of a policy's endpoint; nothing, before the built-in one was started."""
        url: str = settings.endpoint.base_url
        if url == "demo":
            url = "" if self._demo is None else self._demo.base_url
        return Governed(url, settings.endpoint.paths)

    def _demo_server(self) -> Any:  # noqa: ANN401 - a higher room, which this one knows by name only
        with self._lock:
            if self._closed:
                raise ConfigurationError("the session was closed; fairq.load() starts a new one")
            if self._demo is None:
                endpoint = importlib.import_module("fairq_ipy.demo.endpoint")
                self._demo = endpoint.start(concurrency=self.settings.rules.limits.concurrency)
                self._governed = self._governed.followed_by(self._addressed(self.settings))
            return self._demo

    # -------------------------------------------------------------------------------------------------------- who asks

    def identify(self, tenant: str | None = None, priority: int | str | None = None) -> Identity:
        """Return who a call belongs to: the argument, else the ``with fairq.tenant(...)`` around it, else the default.

        A scope's priority goes with the scope's tenant, not with another one that is named explicitly.

        Raises:
            UnknownTenantError: the policy does not let that tenant ask, or refuses calls that name none.
            ConfigurationError: the name is no text, or there is no such level.
        """
        rules = self.settings.rules
        around = scope.current_scope()
        if around is not None and tenant in (None, around.tenant):
            tenant = around.tenant
            priority = around.priority if priority is None else priority
        if tenant is None:
            tenant = rules.default_tenant
            if tenant is None:
                raise refusals.untagged(self.keeper.source)
        name = scope.checked_name(tenant)
        if not rules.admits(name):
            raise refusals.unknown_tenant(name, rules, self.keeper.source)
        return Identity(name, rules.tenant(name).level if priority is None else _level(priority, rules))

    # ------------------------------------------------------------------------------------------------- work of its own

    def permit(
        self,
        cost: int | None = None,
        messages: int | None = None,
        tenant: str | None = None,
        priority: int | str | None = None,
    ) -> PermitBlock:
        """Return a block that holds one slot: ``with session.permit():`` or ``async with``; see `PermitBlock`."""
        return PermitBlock(
            self.keeper, functools.partial(self.identify, tenant, priority), cost=cost, messages=messages
        )

    async def submit(
        self,
        function: Callable[..., Any],
        *args: Any,
        tenant: str | None = None,
        priority: int | str | None = None,
        **kwargs: Any,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        """Run ``function(*args, **kwargs)`` under a permit and return its result; see `calls.submit`."""
        asynchronous = calls.is_async(function)
        block = self._block(tenant, priority, on_loop=asynchronous)
        work = functools.partial(function, *args, **kwargs)
        return await calls.submit(block, self.keeper, work, asynchronous=asynchronous)

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        tenant: str | None = None,
        priority: int | str | None = None,
        **kwargs: Any,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        """Run ``function(*args, **kwargs)`` under a permit, blocking, and return its result; see `calls.run`."""
        block = self._block(tenant, priority)
        work = functools.partial(function, *args, **kwargs)
        return calls.run(block, self.keeper, work, asynchronous=calls.is_async(function))

    def governed(self, tenant: str | None = None, priority: int | str | None = None) -> Callable[[F], F]:
        """Return a decorator that runs every call of a function under a permit of its own."""
        return functools.partial(calls.governed, lambda: self._block(tenant, priority))

    def _block(self, tenant: str | None, priority: int | str | None, *, on_loop: bool = True) -> PermitBlock:
        return PermitBlock(self.keeper, functools.partial(self.identify, tenant, priority), on_loop=on_loop)

    # ------------------------------------------------------------------------------------------------------- the queue

    def snapshot(self) -> Snapshot:
        """Return the picture of the queue at this moment; its times are seconds since the epoch."""
        return self.keeper.snapshot()

    def pause(self, tenant: str | None = None) -> None:
        """Let no further call of `tenant` go, or of all; those under way end as they are."""
        self.keeper.event(Pause(self._known(tenant)))

    def resume(self, tenant: str | None = None) -> None:
        """Let calls of `tenant` go again, or of all."""
        self.keeper.event(Resume(self._known(tenant)))

    def _known(self, tenant: str | None) -> str | None:
        rules = self.settings.rules
        if tenant is not None and not rules.admits(scope.checked_name(tenant)):
            raise refusals.unknown_tenant(tenant, rules, self.keeper.source)
        return tenant

    def _told(self, effect: Effect) -> None:
        if isinstance(effect, Paused | Resumed | Warned | Held):
            self._notify(effect)

    def _notify(self, notice: Notice) -> None:
        for listener in list(self.listeners):
            self.keeper.tell(listener, notice)

    # --------------------------------------------------------------------------------------------------------- its end

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Refuse whoever waits, end what runs, and stop all threads. A second time nothing happens."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            watch, self._watch = self._watch, None
            demo, self._demo = self._demo, None
        if watch is not None:
            watch.stop()
        self.guard.close()
        try:
            self.keeper.close()
        finally:
            if demo is not None:
                demo.close()


def _read(path: str | os.PathLike[str] | None) -> Settings:
    if path is None:
        path = policy.find(Path.cwd(), os.environ)
    return policy.builtin() if path is None else policy.load(path)


def _name(settings: Settings) -> str:
    """Return how people call the policy in a sentence."""
    return settings.name or BUILT_IN


def _zone(settings: Settings) -> ZoneInfo:
    try:
        return ZoneInfo(settings.time_zone)
    except (ZoneInfoNotFoundError, ValueError) as problem:
        raise ConfigurationError(
            f"time zone {settings.time_zone!r} is not known on this machine; pip install tzdata brings them all"
        ) from problem


def _level(priority: int | str, rules: Policy) -> int:
    """Return the level that a caller named, by its name or its number."""
    names = {level.name: level.number for level in rules.levels}
    if isinstance(priority, str):
        if priority in names:
            return names[priority]
        if len(priority) == 1 and priority.isascii() and priority.isdigit():
            return int(priority)
    elif type(priority) is int and priority in LEVELS:
        return priority
    raise ConfigurationError(
        f"priority is a level from 0 to 9{''.join(f', {name}' for name in names)}, not {priority!r}"
    )


def _key_problem(key: str) -> str | None:
    if key.endswith(("\n", "\r")):
        return "ends in a line break"
    if key != key.strip():
        return "begins or ends with a blank"
    if any(not "!" <= character <= "~" for character in key):
        return "holds a blank, a line break or a character outside of ASCII"
    return None
