"""Counts that cannot be true: they are cut before they drown the others."""

from __future__ import annotations

import math

import pytest

from fairq_ipy.core.messages import Admit, Progress, Settle, Submit
from fairq_ipy.core.model import CREDIBLE, Limits, Policy, Receipt, Ticket
from fairq_ipy.core.scheduler import Scheduler

ABSURD = [10**400, 10**308, 10**17, CREDIBLE + 1]


@pytest.mark.parametrize("count", ABSURD)
def test_an_absurd_receipt_gives_its_slot_back_and_stops_nobody(count: int) -> None:
    core = Scheduler(Policy(limits=Limits(concurrency=1)))
    for number in range(1, 7, 2):
        core.handle(Submit(Ticket(number, "a", 1)), 0.0)
        core.handle(Submit(Ticket(number + 1, "b", 1)), 0.0)
        core.handle(Progress(number, count), 1.0)
        assert core.handle(Settle(number, Receipt("ok", count, count)), 1.0) == [Admit(number + 1, 1, 1.0)]
        core.handle(Settle(number + 1, Receipt("ok", 5, 5)), 2.0)
        core.check()
    assert core.snapshot(2.0).in_flight == 0
    assert all(math.isfinite(lane.c) for tenant in core._queue.tenants.values() for lane in tenant.lanes.values())


@pytest.mark.parametrize("count", ABSURD)
def test_an_absurd_ticket_waits_like_any_other(count: int) -> None:
    core = Scheduler(Policy(limits=Limits(concurrency=1)))
    core.handle(Submit(Ticket(1, "a", 1)), 0.0)
    core.handle(Submit(Ticket(2, "a", 1, prompt_tokens=count, max_tokens=count)), 0.0)
    core.handle(Submit(Ticket(3, "a", 1, prompt_tokens=count)), 0.0)
    assert core.handle(Settle(1, Receipt()), 1.0) == [Admit(2, 1, 1.0)]
    assert core.handle(Settle(2, Receipt()), 1.0) == [Admit(3, 1, 1.0)]
    core.check()


def test_a_count_that_was_cut_is_no_longer_the_endpoints_own() -> None:
    assert Receipt("ok", CREDIBLE, 1, exact=True).credible().exact
    assert Receipt("ok", CREDIBLE + 1, 1, exact=True).credible() == Receipt("ok", CREDIBLE, 1, exact=False)
