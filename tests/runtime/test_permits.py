"""Permits: taken, given back on every way out, lost and found."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from fairq_ipy.core.model import Context, Limits, Policy, Receipt, Stall, TenantPolicy
from fairq_ipy.errors import ConfigurationError, ContextTooLargeError, QueueFullError, ShutDownError
from fairq_ipy.runtime.permits import UNKNOWN_OUTPUT, PermitBlock
from fairq_ipy.runtime.scope import Identity, current_lender

from .conftest import SOON, books, eventually, rules


def receipts(keeper):
    journal = keeper.call(lambda _core, _now: list(keeper.journal))
    return [line.event.receipt for line in journal if type(line.event).__name__ == "Settle"]


def test_the_slot_is_held_while_the_block_runs(keeper, permit):
    with permit() as held:
        assert books(keeper) == (1, 0)
        assert held.ticket == 1
        assert held.waited == 0.0 or held.waited > 0
    assert books(keeper) == (0, 0)
    assert current_lender() is None


def test_the_slot_is_held_while_the_async_block_runs(keeper, permit):
    async def main():
        async with permit():
            assert books(keeper) == (1, 0)
        assert books(keeper) == (0, 0)
        assert current_lender() is None

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ValueError, "failed"), (KeyboardInterrupt, "cancelled"), (GeneratorExit, "cancelled"), (SystemExit, "cancelled")],
)
def test_the_slot_comes_back_on_every_way_out(keeper, permit, error, outcome):
    with pytest.raises(error), permit():
        raise error
    assert books(keeper) == (0, 0)
    assert receipts(keeper)[0].outcome == outcome


def test_a_cancelled_block_gives_its_slot_back(keeper, permit):
    async def main():
        inside = asyncio.Event()

        async def work():
            async with permit():
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    assert books(keeper) == (0, 0)
    assert receipts(keeper)[0].outcome == "cancelled"


def test_a_generator_that_is_dropped_in_its_block_gives_its_slot_back(keeper, permit):
    def steps():
        with permit():
            yield 1
            yield 2

    running = steps()
    next(running)
    assert books(keeper) == (1, 0)
    del running
    gc.collect()
    eventually(lambda: books(keeper) == (0, 0))


def test_a_permit_that_is_dropped_without_leaving_is_given_back(keeper, permit):
    block = permit()
    block.take()
    assert books(keeper) == (1, 0)
    del block
    gc.collect()
    eventually(lambda: books(keeper) == (0, 0))
    assert receipts(keeper)[0].outcome == "cancelled"


def test_a_permit_that_was_given_back_is_not_given_back_again_by_the_collector(keeper, permit):
    block = permit()
    with block:
        pass
    del block
    gc.collect()
    assert len(receipts(keeper)) == 1
    assert keeper.snapshot().completed == 1


def test_a_permit_may_be_used_again_but_not_twice_at_once(keeper, permit):
    block = permit()
    for _ in range(2):
        with block:
            pass
    assert len(receipts(keeper)) == 2
    with block, pytest.raises(ConfigurationError, match="in use"), block:
        pytest.fail("entered twice")
    assert len(receipts(keeper)) == 3


def test_giving_back_by_hand_and_by_the_block_is_giving_back_once(keeper, permit):
    with permit() as block:
        block.give_back("ok")
        block.give_back("ok")
        assert books(keeper) == (0, 0)
    assert len(receipts(keeper)) == 1
    assert current_lender() is None


def test_a_refused_permit_raises_what_the_queue_says(make_keeper):
    keeper = make_keeper(rules(queue=0))
    with PermitBlock(keeper, lambda: Identity("a", 1)):
        ask = PermitBlock(keeper, lambda: Identity("b", 1))
        errors = []

        def elsewhere():
            try:
                ask.take()
            except QueueFullError as error:
                errors.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(SOON)
        assert errors[0].tenant == "b"
    ask.take()  # a refusal leaves the block as it was
    ask.give_back("ok")


def test_an_identity_that_is_refused_leaves_nothing_behind(keeper):
    def refuse():
        raise ConfigurationError("nobody")

    block = PermitBlock(keeper, refuse)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="nobody"), block:
            pytest.fail("entered")
    assert books(keeper) == (0, 0)


def test_a_closed_keeper_refuses_a_permit(make_keeper):
    keeper = make_keeper()
    keeper.close()
    with pytest.raises(ShutDownError), PermitBlock(keeper, lambda: Identity("a", 1)):
        pytest.fail("entered")


def test_the_keeper_may_close_while_a_block_runs(make_keeper):
    keeper = make_keeper()
    with PermitBlock(keeper, lambda: Identity("a", 1)):
        keeper.close()


# ----------------------------------------------------------------------------------------------------------- its cost


def test_the_estimate_is_the_receipt_unless_something_better_is_known(keeper, permit):
    with permit(cost=1800, messages=12):
        pass
    with permit():
        pass
    with permit(cost=1800) as third:
        third.spent(prompt_tokens=1750, output_tokens=420)
    with permit(cost=0):
        pass
    assert [(r.prompt_tokens, r.output_tokens, r.exact) for r in receipts(keeper)] == [
        (1800, 0, False),
        (0, UNKNOWN_OUTPUT, False),
        (1750, 420, True),
        (0, 0, False),
    ]


def test_what_was_spent_in_one_block_is_not_spent_in_the_next(keeper, permit):
    block = permit(cost=5)
    with block:
        block.spent(prompt_tokens=1)
    with block:
        pass
    assert [(r.prompt_tokens, r.exact) for r in receipts(keeper)] == [(1, True), (5, False)]


@pytest.mark.parametrize("bad", [-1, 1.5, True, "12", None])
def test_a_cost_that_is_no_count_is_refused(keeper, permit, bad):
    with pytest.raises(ConfigurationError, match="whole number"):
        permit().spent(prompt_tokens=bad)
    if bad is not None:
        with pytest.raises(ConfigurationError, match="cost is a whole number from 0 to"):
            permit(cost=bad)
        with pytest.raises(ConfigurationError, match="messages"):
            permit(messages=bad)


def test_the_limits_of_the_tenant_hold_for_permits(make_keeper):
    policy = Policy(limits=Limits(1), defaults=TenantPolicy(context=Context(messages=20)))
    keeper = make_keeper(policy, source="team.yaml")
    block = PermitBlock(keeper, lambda: Identity("a", 1), messages=34)
    with pytest.raises(ContextTooLargeError) as refused, block:
        pytest.fail("entered")
    error = refused.value
    assert (error.unit, error.size, error.limit) == ("messages", 34, 20)
    assert "34 messages" in str(error)
    assert "context.messages in team.yaml" in str(error)


def test_a_permit_whose_answer_nobody_saw_is_not_taken_for_an_empty_one(make_keeper):
    policy = Policy(limits=Limits(1), defaults=TenantPolicy(stall=Stall(threshold=2)))
    keeper = make_keeper(policy)
    for _ in range(4):
        with PermitBlock(keeper, lambda: Identity("a", 1)):
            pass
    assert keeper.snapshot().tenants["a"].state == "idle"


def test_the_default_receipt_of_a_lost_permit_charges_nothing():
    from fairq_ipy.runtime.permits import LOST

    assert Receipt("cancelled", acted=True) == LOST
