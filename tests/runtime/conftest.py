"""A keeper whose books are checked after every test, and works that say what happened to them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairq_ipy.core.model import Limits, Policy, Receipt, Ticket
from fairq_ipy.errors import FairqError
from fairq_ipy.runtime.keeper import Keeper
from fairq_ipy.runtime.permits import PermitBlock
from fairq_ipy.runtime.scope import Identity
from fairq_ipy.runtime.work import Permit

OVER = Receipt()
SOON = 20.0
"""Seconds that anything may take before a test calls it hung; nothing is measured against it."""


def rules(**limits: Any) -> Policy:
    """A policy with one slot and no bounds, unless told otherwise."""
    return Policy(limits=Limits(**{"concurrency": 1, "queue": None, **limits}))


class Probe:
    """A work that notes what it is told, and waits at a gate."""

    def __init__(self, keeper: Keeper, gate: Any = None, *, settle: bool = False) -> None:
        self.keeper = keeper
        self.gate = keeper.thread_gate() if gate is None else gate
        self.settles = settle
        self.permits: list[Permit] = []
        self.errors: list[FairqError] = []
        self.ticket = 0

    def submit(self, tenant: str = "a", level: int = 1, **fields: Any) -> Probe:
        self.ticket = self.keeper.next_id()
        self.keeper.submit(self, Ticket(self.ticket, tenant, level, **fields))
        return self

    def admitted(self, permit: Permit) -> None:
        self.permits.append(permit)
        self.gate.resolve(permit)
        if self.settles:
            self.keeper.settle(self.ticket, Receipt())

    def refused(self, error: FairqError) -> None:
        self.errors.append(error)
        self.gate.reject(error)

    def wait(self) -> Permit:
        return self.gate.wait(SOON)

    def end(self, receipt: Receipt = OVER) -> None:
        self.keeper.post(self.keeper.settle, self.ticket, receipt)


def eventually(condition: Callable[[], Any]) -> Any:
    """Return what `condition` returns once it is true; fail when it never is. For what no event tells."""
    end = time.monotonic() + SOON
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)
    return found


def books(keeper: Keeper) -> tuple[int, int]:
    """In flight and queued; the core's own check holds."""
    keeper.call(lambda core, _now: core.check())
    snapshot = keeper.snapshot()
    return snapshot.in_flight, snapshot.queued


@pytest.fixture
def make_keeper() -> Iterator[Callable[..., Keeper]]:
    """Makes keepers. After the test each must be empty, and its thread must end."""
    made: list[Keeper] = []

    def make(policy: Policy | None = None, **options: Any) -> Keeper:
        keeper = Keeper(rules() if policy is None else policy, **options)
        made.append(keeper)
        return keeper

    yield make
    for keeper in made:
        if not keeper.closed:
            eventually(lambda keeper=keeper: books(keeper) == (0, 0))
            keeper.call(lambda core, _now: core.check())
        keeper.close()
        assert not keeper._thread.is_alive()


@pytest.fixture
def keeper(make_keeper: Callable[..., Keeper]) -> Keeper:
    return make_keeper()


@pytest.fixture
def probe(keeper: Keeper) -> Callable[..., Probe]:
    return lambda **options: Probe(keeper, **options)


@contextlib.contextmanager
def taken(keeper: Keeper) -> Iterator[Probe]:
    """Hold a slot from nowhere: what runs inside inherits no permit."""
    call = Probe(keeper).submit("somebody else")
    call.wait()
    try:
        yield call
    finally:
        call.end()


@pytest.fixture
def permit(keeper: Keeper) -> Callable[..., PermitBlock]:
    """Makes permit blocks of the keeper."""
    return lambda tenant="a", level=1, **options: PermitBlock(keeper, lambda: Identity(tenant, level), **options)


class Crew:
    """Threads whose errors are not lost."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    def start(self, function: Callable[..., Any], *args: Any) -> threading.Thread:
        def main() -> None:
            try:
                function(*args)
            except BaseException as error:  # noqa: BLE001 - raised again by join()
                self.errors.append(error)

        thread = threading.Thread(target=main, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def join(self) -> None:
        for thread in self._threads:
            thread.join(SOON)
            assert not thread.is_alive(), "a thread hangs"
        if self.errors:
            raise self.errors[0]


@pytest.fixture
def crew() -> Iterator[Crew]:
    made = Crew()
    yield made
    made.join()
