"""The words of the core: what a policy says about a tenant, and what an answer is."""

from __future__ import annotations

import dataclasses

import pytest

from fairq_ipy.core import messages, model
from fairq_ipy.core.messages import Event, Snapshot, TenantSnapshot
from fairq_ipy.core.model import Policy, Receipt, TenantPolicy


def test_a_named_tenant_has_its_rules_and_every_other_the_defaults():
    own, other = TenantPolicy(weight=3.0), TenantPolicy(weight=0.5)
    policy = Policy(tenants={"a": own}, defaults=other)
    assert policy.tenant("a") is own
    assert policy.tenant("b") is other


@pytest.mark.parametrize(
    ("unknown", "name", "admitted"),
    [
        ("allow", "anybody", True),
        ("refuse", "anybody", False),
        ("refuse", "named", True),
        ("refuse", "notebook", True),
    ],
)
def test_who_may_ask_is_who_is_named_and_who_is_nobody_in_particular(unknown, name, admitted):
    assert Policy(unknown_tenants=unknown, tenants={"named": TenantPolicy()}).admits(name) is admitted


def test_without_a_default_tenant_nobody_in_particular_may_not_ask():
    assert not Policy(unknown_tenants="refuse", default_tenant=None).admits("notebook")


@pytest.mark.parametrize(
    ("receipt", "answered"),
    [
        (Receipt("ok"), True),
        (Receipt("failed"), False),
        (Receipt("cancelled"), False),
        (Receipt("ok", status=200), True),
        (Receipt("failed", status=404), True),
        (Receipt("failed", status=429), False),
        (Receipt("failed", status=500), False),
        (Receipt("failed", status=503), False),
    ],
)
def test_an_endpoint_that_answers_is_there_also_when_it_says_no_to_this_call(receipt, answered):
    assert receipt.answered is answered


@pytest.mark.parametrize(
    "frozen",
    [Policy(), Policy().limits, Policy().defaults, Snapshot(), TenantSnapshot()],
    ids=lambda frozen: type(frozen).__name__,
)
def test_what_is_handed_around_cannot_be_changed(frozen):
    name = dataclasses.fields(frozen)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(frozen, name, None)


def test_the_tenants_of_a_default_policy_cannot_be_changed():
    with pytest.raises(TypeError):
        Policy().tenants["a"] = TenantPolicy()


def test_every_event_that_there_is_has_a_handler(core):
    queue = core()
    assert set(queue.scheduler._handlers) == set(Event.__args__)


@pytest.mark.parametrize("room", [messages, model])
def test_every_public_class_of_the_words_says_what_it_is(room):
    classes = [value for value in vars(room).values() if isinstance(value, type) and value.__module__ == room.__name__]
    assert classes
    assert all(each.__doc__ and not each.__doc__.startswith(each.__name__ + "(") for each in classes)
