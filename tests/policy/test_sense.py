"""How the keys of one policy fit each other, and the environment."""

from __future__ import annotations

import pytest

from fairq_ipy.policy import sense

# -------------------------------------------------------------------------------------------------------------- levels


def test_two_levels_with_one_number_are_found_with_both_lines(only):
    finding = only("levels:\n  a: {level: 1}\n  b: {level: 2}\n  c: {level: 1}\n")
    assert (finding.line, finding.path) == (6, "levels.c.level")
    assert "taken by `a` in line 4" in finding.message


def test_two_levels_whose_numbers_are_wrong_do_not_have_the_same(found):
    paths = [finding.path for finding in found("levels: {a: {level: x}, b: {level: y}}")]
    assert paths == ["levels.a.level", "levels.b.level"]


@pytest.mark.parametrize("reserve", [2, 3])
def test_a_reserve_that_leaves_no_slot_is_found(only, reserve):
    finding = only(f"levels: {{a: {{level: 1, reserve: {reserve}}}, b: {{level: 2}}}}")
    assert finding.path == "levels.a.reserve"
    assert "limits.concurrency is 2" in finding.hint
    assert "up to 1" in finding.hint


def test_reserves_that_together_leave_no_slot_are_found(only):
    text = (
        "limits: {concurrency: 4}\nlevels:\n  a: {level: 1, reserve: 2}\n  b: {level: 2, reserve: 2}\n  c: {level: 3}\n"
    )
    finding = only(text)
    assert (finding.line, finding.column, finding.path) == (4, 1, "levels")
    assert "4 reserved slots leave none" in finding.message


def test_a_reserve_of_the_last_level_takes_nothing_from_anybody(rules):
    text = "limits: {concurrency: 4}\nlevels: {a: {level: 1, reserve: 3}, b: {level: 2, reserve: 3}}"
    assert [level.reserve for level in rules(text).levels] == [3, 3]


def test_one_slot_cannot_be_kept_free(only):
    finding = only("limits: {concurrency: 1}\nlevels: {a: {level: 1, reserve: 1}, b: {level: 2}}")
    assert finding.hint == "limits.concurrency is 1, and one slot cannot be kept free: leave `reserve` out"


def test_a_reserve_below_the_concurrency_is_accepted(rules):
    assert rules("levels: {a: {level: 1, reserve: 1}, b: {level: 2}}").levels[0].reserve == 1


def test_a_wrong_concurrency_is_not_blamed_on_the_reserve(only):
    text = "limits: {concurency: 8}\nlevels: {a: {level: 1, reserve: 4}, b: {level: 2}}"
    assert only(text).path == "limits.concurency"


@pytest.mark.parametrize("bounds", ["{start: 9, max: 8}", "{start: 1, min: 2, max: 8}", "{start: 4, min: 5, max: 3}"])
def test_a_concurrency_that_begins_outside_of_its_bounds_is_refused(only, bounds):
    finding = only(f"limits: {{concurrency: {bounds}}}")
    assert finding.path == "limits.concurrency"
    assert (finding.message[:9], finding.hint) == ("start is ", "accepted: min <= start <= max")


def test_a_reserve_is_measured_at_the_largest_concurrency(only, rules):
    levels = "levels: {{a: {{level: 1, reserve: {}}}, b: {{level: 2}}}}\nlimits: {{concurrency: {{start: 2, max: 4}}}}"
    assert rules(levels.format(3)).levels[0].reserve == 3
    assert only(levels.format(4)).path == "levels.a.reserve"


@pytest.mark.parametrize("place", ["defaults: {level: bach}", "tenants: {logs: {level: bach}}"])
def test_a_level_that_nobody_declared_shows_the_nearest(only, place):
    finding = only(place)
    assert finding.path.endswith(".level")
    assert (finding.message, finding.hint) == ("there is no level `bach`", "did you mean `batch`?")


def test_a_level_like_no_other_shows_all_there_are(only):
    finding = only("levels: {a: {level: 1}, b: {level: 2}}\ndefaults: {level: zzzz}")
    assert finding.hint == "accepted: a or b, or a number from 0 to 9"


def test_declared_levels_take_the_place_of_the_built_in_ones(only):
    assert only("levels: {fast: {level: 1}}\ntenants: {logs: {level: batch}}").message == "there is no level `batch`"


def test_a_broken_section_of_levels_is_not_blamed_on_those_who_name_them(only):
    assert only("levels: {fast: {level: x}}\ntenants: {logs: {level: batch}}").path == "levels.fast.level"


def test_a_number_needs_no_level_of_its_own(rules):
    assert rules("tenants: {logs: {level: 7}}").tenants["logs"].level == 7


# ------------------------------------------------------------------------------------------------------------- tenants


def test_a_default_tenant_that_may_not_ask_is_found(only):
    finding = only("tenants: {logs: {}, docs: {}}\nunknown_tenants: refuse\ndefault_tenant: log\n")
    assert (finding.line, finding.path) == (5, "default_tenant")
    assert "`log`" in finding.message
    assert finding.hint == "did you mean `logs`?"


def test_the_default_tenant_that_nobody_wrote_is_found_at_the_key_that_refuses_it(only):
    finding = only("tenants: {logs: {}}\nunknown_tenants: refuse\n")
    assert finding.path == "unknown_tenants"
    assert "`notebook`" in finding.message
    assert "default_tenant: refuse" in finding.hint


@pytest.mark.parametrize(
    "text", ["tenants: {notebook: {}}", "default_tenant: refuse", "tenants: {a: {}}\ndefault_tenant: a"]
)
def test_a_default_tenant_that_may_ask_is_accepted(rules, text):
    assert rules(f"{text}\nunknown_tenants: refuse\n").unknown_tenants == "refuse"


@pytest.mark.parametrize("text", ["tenants: {logs: {weight: 0}}", "default_tenant: 5"])
def test_a_broken_part_is_not_blamed_on_the_default_tenant(only, text):
    assert only(f"{text}\nunknown_tenants: refuse\n").path != "unknown_tenants"


def test_any_default_tenant_may_ask_where_unknown_ones_may(rules):
    assert rules("default_tenant: whoever").default_tenant == "whoever"


@pytest.mark.parametrize("place", ["defaults", "tenants: {logs"])
def test_two_budgets_that_count_the_same_are_found_with_both_lines(only, place):
    end = "}" if "{" in place else ""
    budgets = "[{tokens: 1, per: day},\n {requests: 1, per: day},\n {tokens: 2, per: day}]"
    finding = only(f"{place}: {{budgets: {budgets}}}{end}")
    assert finding.path.endswith("budgets[2]")
    assert finding.line == 5
    assert "in line 3" in finding.message


def test_a_broken_budget_is_not_compared(only):
    assert (
        only("defaults: {budgets: [{tokens: 1, per: day}, {tokens: -1, per: day}]}").path
        == "defaults.budgets[1].tokens"
    )


def test_a_first_rest_longer_than_the_longest_is_found(only):
    finding = only("tenants: {logs: {stall: {resume: {after: 1h, max: 900s}}}}")
    assert finding.path == "tenants.logs.stall.resume"
    assert "1h" in finding.message
    assert "900s" in finding.message


@pytest.mark.parametrize("resume", ["{after: 15m, max: 900s}", "{after: 1h}", "off"])
def test_rests_that_fit_each_other_are_accepted(rules, resume):
    stall = rules(f"defaults: {{stall: {{resume: {resume}}}}}").defaults.stall
    assert stall is not None
    assert stall.resume_after is None or stall.resume_after <= stall.resume_max


# ----------------------------------------------------------------------------------------------------------- time zone


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"])
def test_a_time_zone_is_an_iana_name(found, name):
    # a second mistake keeps the policy from being read, and the time zone from being the only finding
    assert {finding.path for finding in found(f"time_zone: {name}\nzzz: 1")} == {"zzz"}


@pytest.mark.parametrize(
    ("name", "hint"),
    [("Europe/Berln", "Europe/Berlin"), ("utc", "UTC"), ("Europe", "Europe/"), ("Nowhere/Land", "accepted")],
)
def test_a_place_that_is_no_time_zone_shows_the_nearest(only, name, hint):
    finding = only(f"time_zone: {name}")
    assert finding.path == "time_zone"
    assert name in finding.message
    assert hint in finding.hint


def test_a_machine_without_time_zones_says_how_to_get_them(only, monkeypatch):
    monkeypatch.setattr(sense, "available_timezones", set)
    monkeypatch.setattr(sense, "ZoneInfo", {}.__getitem__)
    assert "pip install tzdata" in only("time_zone: Europe/Berlin").hint


# ----------------------------------------------------------------------------------------------------------- variables

ENDPOINT = "version: 1\nendpoint:\n  base_url: {}\n"


def test_a_variable_that_is_not_set_is_found_with_its_line(only):
    finding = only("", head=ENDPOINT.format("${TEAM_URL}"))
    assert (finding.line, finding.column, finding.path) == (3, 13, "endpoint.base_url")
    assert "TEAM_URL is not set" in finding.message
    assert "${TEAM_URL:-demo}" in finding.hint


def test_a_variable_that_is_empty_counts_as_not_set(only):
    assert "TEAM_URL" in only("", head=ENDPOINT.format("${TEAM_URL}"), environ={"TEAM_URL": ""}).message


def test_every_variable_that_is_not_set_is_told(found):
    findings = found("", head=ENDPOINT.format("http://${HOST}:${PORT}") + "  model: ${MODEL}\n")
    assert [finding.message.split()[3] for finding in findings] == ["HOST", "PORT", "MODEL"]


@pytest.mark.parametrize("text", ["${", "${}", "${1A}", "${A-b}", "${A:-${B}}", "${A B}", "x${A"])
def test_what_begins_like_a_variable_and_is_none_is_found(only, text):
    finding = only("", head=ENDPOINT.format(f"'{text}'"), environ={"A": "demo", "B": "demo"})
    assert "no variable" in finding.message
    assert "${NAME:-default}" in finding.hint


@pytest.mark.parametrize(
    "text",
    [
        "default_tenant: ${USER}",
        "tenants: {'${USER}': {}}",
        "tenants: {a: {level: 1}}\ndefault_tenant: x${",
        "default_tenant: ${USER:-me}",
    ],
)
def test_variables_are_filled_in_nowhere_else(only, text):
    finding = only(text, environ={"USER": "me"})
    assert finding.message == "variables are not filled in here"
    assert finding.hint == "only endpoint.base_url or endpoint.model may have them"


def test_variables_in_a_list_are_found(found):
    findings = found("", head="version: 1\nendpoint: {base_url: demo, paths: ['a/${X}', 'b']}\n")
    assert {finding.path for finding in findings} == {"endpoint.paths[0]"}


def test_what_a_variable_holds_is_judged_as_if_it_stood_there(only):
    finding = only("", head=ENDPOINT.format("${TEAM_URL}"), environ={"TEAM_URL": "localhost:8000/v1"})
    assert (finding.line, finding.path) == (3, "endpoint.base_url")
    assert finding.message.startswith("with TEAM_URL filled in, localhost:8000/v1 does not begin with http")


@pytest.mark.parametrize("value", ["http://h/v1\n", "http://h/v1\r\n", " http://h/v1", "http://h /v1"])
def test_a_blank_or_a_line_break_in_a_variable_is_found(only, value):
    assert "blank or a line break" in only("", head=ENDPOINT.format("${U}"), environ={"U": value}).message


def test_a_password_in_a_variable_is_found_and_never_repeated(only):
    finding = only("", head=ENDPOINT.format("${U}"), environ={"U": "http://me:hunter2@h/v1"})
    assert "hunter2" not in str(finding)
    assert "password" in finding.message


def test_a_base_url_that_the_schema_refused_is_not_judged_twice(only):
    assert "accepted" in only("", head=ENDPOINT.format("5")).hint
