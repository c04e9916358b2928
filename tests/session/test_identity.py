"""Who a call belongs to."""

from __future__ import annotations

import pytest

from fairq_ipy.errors import ConfigurationError, UnknownTenantError
from fairq_ipy.runtime.scope import tenant

from .conftest import TEXT

STRICT = TEXT + "default_tenant: refuse\nunknown_tenants: refuse\n"


def test_an_untagged_call_is_the_default_tenants(session):
    assert session.identify() == ("notebook", 1)


def test_a_tenant_has_the_level_that_the_policy_gives_it(session):
    assert session.identify("logs") == ("logs", 2)
    assert session.identify("release-notes") == ("release-notes", 1)
    assert session.identify("nobody knows") == ("nobody knows", 1)


def test_an_argument_goes_before_the_scope_and_the_scope_before_the_default(session):
    with tenant("logs"):
        assert session.identify() == ("logs", 2)
        assert session.identify("release-notes") == ("release-notes", 1)


def test_a_scopes_priority_goes_with_its_own_tenant_only(session):
    with tenant("release-notes", priority="batch"):
        assert session.identify() == ("release-notes", 2)
        assert session.identify("release-notes") == ("release-notes", 2)
        assert session.identify("other") == ("other", 1)
        assert session.identify(priority=0) == ("release-notes", 0)


@pytest.mark.parametrize(
    ("priority", "level"),
    [(0, 0), (1, 1), (9, 9), ("0", 0), ("9", 9), ("interactive", 1), ("batch", 2)],
)
def test_a_priority_is_a_level_by_its_number_or_its_name(session, priority, level):
    assert session.identify("x", priority).level == level


@pytest.mark.parametrize("priority", [-1, 10, 50, 1.5, 1.0, True, "high", "", "10", "-1", "1.5", "²", b"1", [1]])
def test_anything_else_is_an_error_that_names_the_levels(session, priority):
    with pytest.raises(ConfigurationError, match="a level from 0 to 9, interactive, batch, not "):
        session.identify("x", priority)


def test_a_priority_of_a_scope_is_checked_where_it_is_used(session):
    with tenant("x", priority="hihg"), pytest.raises(ConfigurationError, match="hihg"):
        session.identify()


def test_a_policy_may_refuse_untagged_calls(make_session):
    session = make_session(STRICT)
    with pytest.raises(UnknownTenantError, match="names no tenant"):
        session.identify()
    with tenant("logs"):
        assert session.identify() == ("logs", 2)


def test_a_policy_may_refuse_tenants_that_it_does_not_name(make_session):
    session = make_session(STRICT)
    with pytest.raises(UnknownTenantError, match=r"did you mean logs\?") as refused:
        session.identify("Log")
    assert refused.value.nearest == ("logs",)
    assert refused.value.tenant == "Log"
    for call in (session.pause, session.resume):
        with pytest.raises(UnknownTenantError, match="did you mean"):
            call("lgos")


@pytest.mark.parametrize("name", ["", " ", 3, b"x"])
def test_a_name_that_is_none_is_an_error(session, name):
    with pytest.raises(ConfigurationError, match="not empty"):
        session.identify(name)
    with pytest.raises(ConfigurationError, match="not empty"):
        session.pause(name)


def test_names_are_kept_as_they_are(session):
    for name in ("no", "2024-01-01", " padded ", "<b>", "名前"):
        assert session.identify(name).tenant == name
