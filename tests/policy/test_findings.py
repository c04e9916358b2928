"""Every mistake: where it is, what was found, what is accepted, what was probably meant, and all of them at once."""

from __future__ import annotations

import pytest

from fairq_ipy import policy
from fairq_ipy.errors import PolicyError

COUNT = "accepted: a whole number"
TIME = "accepted: a time above 0 with its unit"


@pytest.mark.parametrize(
    "case",
    [
        ("limits: {concurrency: 4.0}", "limits.concurrency", "`4.0`", COUNT, "4"),
        ("limits: {concurrency: 0}", "limits.concurrency", "`0`", f"{COUNT}, 1 or more", None),
        ("limits: {concurrency: -2}", "limits.concurrency", "`-2`", f"{COUNT}, 1 or more", None),
        ("limits: {concurrency: unlimited}", "limits.concurrency", "`unlimited`", COUNT, None),
        ("limits: {concurrency: '2'}", "limits.concurrency", 'the text "2"', COUNT, "2"),
        ("limits: {concurrency: true}", "limits.concurrency", "`true`", COUNT, None),
        ("limits: {concurrency: {start: 0, max: 2}}", "limits.concurrency.start", "`0`", COUNT, None),
        ("limits: {concurrency: [2]}", "limits.concurrency", "a list", COUNT, None),
        ("limits: {queue: 1e6}", "limits.queue", "`1e6`", COUNT, "1000000"),
        ("limits: {queue: 010}", "limits.queue", "`010`", COUNT, "10"),
        ("limits: {queue: 0x10}", "limits.queue", "`0x10`", COUNT, None),
        ("limits: {queue: 1_0}", "limits.queue", "`1_0`", COUNT, "10"),
        ("limits: {queue: .nan}", "limits.queue", "`.nan`", COUNT, None),
        ("limits: {queue: .inf}", "limits.queue", "`.inf`", COUNT, "unlimited"),
        ("limits: {queue: none}", "limits.queue", "`none`", COUNT, "unlimited"),
        ("limits: {queue: Unlimited}", "limits.queue", "`Unlimited`", COUNT, "unlimited"),
        ("limits: {queue: unlimted}", "limits.queue", "`unlimted`", COUNT, "unlimited"),
        ("limits: {queue: 1_000_000_000_000}", "limits.queue", "`1_000_000_000_000`", COUNT, None),
        ("limits: {requests_per_minute: 0}", "limits.requests_per_minute", "`0`", f"{COUNT}, 1 or more", None),
        ("limits: {max_wait: 30}", "limits.max_wait", "`30`", TIME, "30s"),
        ("limits: {max_wait: 1.5}", "limits.max_wait", "`1.5`", TIME, "1.5s"),
        ("limits: {max_wait: 0s}", "limits.max_wait", "`0s`", TIME, None),
        ("limits: {max_wait: 5 min}", "limits.max_wait", "`5 min`", TIME, "5m"),
        ("limits: {max_wait: 2 Hours}", "limits.max_wait", "`2 Hours`", TIME, "2h"),
        ("limits: {max_wait: 100 millis}", "limits.max_wait", "`100 millis`", TIME, "100ms"),
        ("limits: {max_wait: 3 days}", "limits.max_wait", "`3 days`", TIME, "3d"),
        ("limits: {max_wait: 3 weeks}", "limits.max_wait", "`3 weeks`", TIME, None),
        ("limits: {max_wait: 1:30}", "limits.max_wait", "`1:30`", TIME, None),
        ("limits: {max_wait: -5s}", "limits.max_wait", "`-5s`", TIME, None),
        ("starve_after: no", "starve_after", "`no`", TIME, "off"),
        ("starve_after: false", "starve_after", "`false`", TIME, "off"),
        ("starve_after: 0s", "starve_after", "`0s`", TIME, None),
        ("headroom_for: 60", "headroom_for", "`60`", "accepted: a time with its unit, such as 0s", "60s"),
        ("fairness: {prompt_weight: 0}", "fairness.prompt_weight", "`0`", "accepted: a number from 0.001", None),
        ("defaults: {weight: 0}", "defaults.weight", "`0`", "accepted: a number from 0.001 to 1000", None),
        ("defaults: {weight: -1}", "defaults.weight", "`-1`", "accepted: a number from 0.001 to 1000", None),
        ("defaults: {weight: .nan}", "defaults.weight", "`.nan`", "accepted: a number from 0.001", None),
        ("defaults: {weight: .5}", "defaults.weight", "`.5`", "accepted: a number from 0.001", "0.5"),
        ("defaults: {weight: 1e-1}", "defaults.weight", "`1e-1`", "accepted: a number from 0.001", "0.1"),
        ("defaults: {concurrency: 0}", "defaults.concurrency", "`0`", f"{COUNT}, 1 or more", None),
        ("defaults: {level: 10}", "defaults.level", "`10`", "its number from 0 to 9", None),
        ("defaults: {level: -1}", "defaults.level", "`-1`", "its number from 0 to 9", None),
        ("defaults: {level: 1.5}", "defaults.level", "`1.5`", "its number from 0 to 9", None),
        ("defaults: {on_exhausted: refused}", "defaults.on_exhausted", "`refused`", "refuse or wait", "refuse"),
        ("defaults: {on_paused: true}", "defaults.on_paused", "`true`", "accepted: wait or refuse", None),
        ("defaults: {stall: false}", "defaults.stall", "`false`", "or off", "off"),
        ("defaults: {stall: {action: puase}}", "defaults.stall.action", "`puase`", "warn, pause or evict", "pause"),
        ("defaults: {stall: {min_chars: 0}}", "defaults.stall.min_chars", "`0`", f"{COUNT}, 1 or more", None),
        ("defaults: {stall: {resume: 60s}}", "defaults.stall.resume", "`60s`", "{after: 60s, max: 15m}", None),
        ("defaults: {budgets: {tokens: 1}}", "defaults.budgets", "a section of keys", "accepted: a list", None),
        ("defaults: {budgets: [{tokens: 1, per: Day}]}", "defaults.budgets[0].per", "`Day`", "hour, day", "day"),
        ("defaults: {budgets: [5]}", "defaults.budgets[0]", "`5`", "exactly one of", None),
        ("default_tenant: 123", "default_tenant", "`123`", "accepted: a tenant's name", '"123"'),
        ("default_tenant: true", "default_tenant", "`true`", "accepted: a tenant's name", '"true"'),
        ("default_tenant: ' a'", "default_tenant", 'the text " a"', "accepted: a tenant's name", "a"),
        ("unknown_tenants: no", "unknown_tenants", "`no`", "accepted: allow or refuse", None),
        ("guard: rout", "guard", "`rout`", "accepted: off, warn, route or block", "route"),
        ("guard: Block", "guard", "`Block`", "accepted: off, warn, route or block", "block"),
        ("time_zone: 2", "time_zone", "`2`", "accepted: the name of a time zone", None),
        ("share: {via: redis}", "share.via", "`redis`", "accepted: kernel", None),
        ("levels: {a: {level: 1.0}}", "levels.a.level", "`1.0`", "from 0 (first) to 9 (last)", "1"),
        ("levels: {a: {level: 10}}", "levels.a.level", "`10`", "from 0 (first) to 9 (last)", None),
        ("levels: {a: {level: 1, reserve: -1}}", "levels.a.reserve", "`-1`", COUNT, None),
        ("tenants: {logs: 5}", "tenants.logs", "`5`", "accepted: a section", None),
        ("tenants: [logs]", "tenants", "a list", "a section of tenants' names", None),
        ("backpressure: {base: 0s}", "backpressure.base", "`0s`", TIME, None),
    ],
)  # fmt: skip
def test_a_wrong_value_shows_what_was_found_what_is_accepted_and_what_was_meant(only, case):
    text, path, value, accepted, meant = case
    finding = only(text)
    assert finding.path == path
    assert finding.message == f"{value} is not accepted here"
    assert accepted in finding.hint
    assert finding.hint.partition("; did you mean ")[2] == (f"{meant}?" if meant else "")


@pytest.mark.parametrize(
    ("text", "path", "meant"),
    [
        ("limits: {queue: null}", "limits.queue", "unlimited"),
        ("limits: {queue: }", "limits.queue", ""),
        ("limits: {max_wait: ~}", "limits.max_wait", ""),
        ("limits:\n  concurrency: 3\ndefaults:", "defaults", ""),
        ("default_tenant: null", "default_tenant", '"null"'),
        ("defaults: {context: {messages: null}}", "defaults.context.messages", "unlimited"),
        ("tenants:", "tenants", ""),
    ],
)
def test_null_is_no_value_and_never_a_zero_or_an_absence(only, text, path, meant):
    finding = only(text)
    assert finding.path == path
    assert finding.message == "there is no value here"
    assert "take the line out" in finding.hint
    assert finding.hint.partition("; did you mean ")[2] == (f"{meant}?" if meant else "")


# --------------------------------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize(
    ("text", "path", "hint"),
    [
        ("limits: {concurency: 2}", "limits.concurency", "did you mean `concurrency`?"),
        ("limit: {concurrency: 2}", "limit", "did you mean `limits`?"),
        ("tenants: {logs: {wieght: 2}}", "tenants.logs.wieght", "did you mean `weight`?"),
        ("defaults: {context: {mesages: 2}}", "defaults.context.mesages", "did you mean `messages`?"),
        ("tenants: {a: {stall: {min_char: 5}}}", "tenants.a.stall.min_char", "did you mean `min_chars`?"),
        ("defaults: {stall: {resume: {after: 1s, mx: 5s}}}", "defaults.stall.resume.mx", "did you mean `max`?"),
        ("defaults: {budgets: [{token: 5, per: day}]}", "defaults.budgets[0].token", "did you mean `tokens`?"),
        ("max_wait: 5m", "max_wait", "did you mean `limits.max_wait`?"),
        ("max_wiat: 5m", "max_wiat", "did you mean `limits.max_wait`?"),
        ("defaults: {min_chars: 5}", "defaults.min_chars", "did you mean `defaults.stall.min_chars`?"),
        ("weight: 5", "weight", "did you mean `defaults.weight` or `tenants.*.weight`?"),
        ("Limits: {}", "Limits", "did you mean `limits`?"),
    ],
)  # fmt: skip
def test_an_unknown_key_shows_the_nearest_one_or_where_it_belongs(only, text, path, hint):
    finding = only(text)
    assert finding.path == path
    assert f"`{path.rpartition('.')[2]}` is not a key" in finding.message
    assert finding.hint == hint


def test_an_unknown_key_like_no_other_shows_all_that_are_accepted(only):
    finding = only("share: {via: kernel, zzz: 1}")
    assert finding.hint == "accepted: via"


@pytest.mark.parametrize("key", ["records: {}", "adaptive: true", "metrics: {}"])
def test_keys_of_later_releases_are_not_accepted_yet(only, key):
    assert "is not a key" in only(key).message


@pytest.mark.parametrize(
    "text", ["endpoint: {base_url: demo, grant: {tokens: 1}}\nversion: 1", "version: 1\nendpoint: {base_url: demo}\n"]
)
def test_parts_of_later_releases_are_not_accepted_yet(found, text):
    shared = "share: {via: redis}"
    trim = "defaults: {context: {tokens: 5, on_exceeded: trim}}"
    paths = {finding.path for finding in found(f"{text}\n{shared}\n{trim}\n", head="")}
    assert {"share.via", "defaults.context.on_exceeded"} <= paths


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ("version: 1", "endpoint", 1),
        ("version: 1\nendpoint:\n  model: x", "endpoint.base_url", 2),
        ("endpoint: {base_url: demo}", "version", 1),
        ("version: 1\nendpoint: {base_url: demo}\nshare: {}", "share.via", 3),
        ("version: 1\nendpoint: {base_url: demo}\nlevels:\n  a: {reserve: 1}", "levels.a.level", 4),
        ("version: 1\nendpoint: {base_url: demo}\ndefaults: {stall: {resume: {}}}", "defaults.stall.resume.after", 3),
    ],
)  # fmt: skip
def test_a_missing_key_is_found_where_it_should_stand(only, text, path, line):
    finding = only(text, head="")
    assert (finding.path, finding.line) == (path, line)
    assert finding.message == f"`{path.rpartition('.')[2]}` is missing"
    assert finding.hint.startswith("add it; accepted: ")


@pytest.mark.parametrize("version", ["2", "0", "1.0", "'1'", "true", "null"])
def test_only_version_1_is_read(only, version):
    finding = only(f"version: {version}\nendpoint: {{base_url: demo}}\n", head="")
    assert (finding.path, finding.line, finding.column) == ("version", 1, 10)
    assert "accepted: 1" in finding.hint


@pytest.mark.parametrize("text", ["just text", "- a\n- b\n", "5", "---\n", "null"])
def test_what_is_no_section_is_no_policy(only, text):
    finding = only(text, head="")
    assert finding.path == ""
    assert "version: 1" in finding.hint


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("{per: day}", "too few keys"),
        ("{tokens: 1, requests: 1, per: day}", "too many keys"),
        ("{tokens: 1}", "`per` is missing"),
    ],
)
def test_a_budget_counts_exactly_one_thing_in_one_window(only, budget, message):
    finding = only(f"defaults: {{budgets: [{budget}]}}")
    assert finding.message == message
    assert finding.line == 3


def test_more_budgets_than_there_are_windows_are_refused(only):
    assert only("defaults: {budgets: [" + "{tokens: 1, per: day}, " * 16 + "]}").message == "more than 15 items"


def test_levels_need_at_least_one_and_take_at_most_ten(only, found):
    assert only("levels: {}").message == "too few keys"
    many = ", ".join(f"l{number}: {{level: {number % 10}}}" for number in range(11))
    assert "too many keys" in {finding.message for finding in found(f"levels: {{{many}}}")}


# --------------------------------------------------------------------------------------------------------------- names


ODD_NAMES = ["on", "no", "123", "null", "2024-01-01", "true", "~", "1.0", "<img src=x>", "é", "a b", "a.b"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_word_may_be_a_tenant(rules, name):
    assert list(rules(f"tenants: {{? {name} : {{weight: 3}}}}").tenants) == [name]


@pytest.mark.parametrize("name", ["''", "' a'", "'a '", "refuse", f"'{'x' * 101}'"])
def test_a_name_that_would_be_confused_is_refused_where_it_stands(only, name):
    finding = only(f"tenants:\n  ok: {{}}\n  {name}: {{}}\n")
    assert (finding.line, finding.column) == (5, 3)
    assert finding.message == "this name cannot be used"
    assert "accepted: a name" in finding.hint


@pytest.mark.parametrize("name", ["1", "'a b'", "''", "-x"])
def test_a_level_that_looks_like_a_number_is_refused(only, name):
    assert "begins with a letter" in only(f"levels: {{{name}: {{level: 1}}}}").hint


def test_a_path_puts_odd_names_in_quotes(only):
    assert only("tenants: {'my team': {weight: 0}}").path == 'tenants."my team".weight'
    assert only("tenants: {a.b: {weight: 0}}").path == 'tenants."a.b".weight'


# ------------------------------------------------------------------------------------------------------------- secrets

KEY = "sk-proj-Abc123def456GHI789jkl012"


@pytest.mark.parametrize(
    "text",
    [
        f"endpoint: {{base_url: demo, api_key: {KEY}}}",
        f"endpoint: {{base_url: demo, key: '{KEY}'}}",
        f"endpoint: {{base_url: demo, openai-api-key: {KEY}}}",
        f"endpoint: {{base_url: demo, authorization: Bearer {KEY}}}",
        "endpoint: {base_url: demo, password: hunter2secret}",
        "endpoint: {base_url: demo, token: abcdefgh-hunter2}",
        f"endpoint: {{base_url: demo, api_key_env: {KEY}}}",
        "endpoint: {base_url: demo, api_key_env: gsk_hunter2}",
        "endpoint: {base_url: demo, api_key_env: hunter2hunter2}",
        f"endpoint: {{base_url: demo, api_key_env: [{KEY}]}}",
        "endpoint: {base_url: 'https://me:hunter2@host/v1'}",
        "endpoint: {base_url: 'me:hunter2@host'}",
        "endpoint: {base_url: '${X:-https://me:hunter2@host/v1}'}",
        "endpoint: {base_url: 'https://host/v1?api_key=hunter2'}",
        "endpoint: {base_url: 'https://host/v1#hunter2'}",
        f"endpoint: {{base_url: {KEY}}}",
        f"endpoint: {KEY}",
        f"endpoint: {{base_url: demo, model: {KEY}}}",
        f"endpoint: {{base_url: demo}}\ntenants: {{{KEY}: {{weight: 0}}}}",
        f"endpoint: {{base_url: demo}}\n{KEY}: 1",
        f"endpoint: {{base_url: demo}} # {KEY}",
        f"endpoint: {{base_url: demo}}\nshare: {{via: '{KEY}'}}",
        f"endpoint: {{base_url: demo}}\nshare: {{via: Bearer {KEY}}}",
        f"endpoint: {{base_url: *{KEY.replace('-', '')}}}",
    ],
)
def test_a_secret_in_the_file_is_found_and_never_repeated(found, text):
    findings = found(f"version: 1\n{text}\n", head="", environ={"X": "demo"})
    shown = f"{PolicyError(findings=tuple(findings))} {findings!r}"
    assert "hunter2" not in shown
    assert KEY[8:] not in shown
    assert KEY.replace("-", "")[8:] not in shown


def test_a_key_in_the_file_is_told_which_line_to_write_instead(only):
    finding = only(f"version: 1\nendpoint:\n  base_url: demo\n  api_key: {KEY}\n", head="")
    assert (finding.line, finding.column, finding.path) == (4, 3, "endpoint.api_key")
    assert "`api_key_env: FAIRQ_API_KEY`" in finding.hint


def test_a_key_in_a_comment_is_found_where_it_stands(only):
    finding = only(f"\n# was: {KEY}\n")
    assert (finding.line, finding.column) == (4, 8)
    assert "replace the key" in finding.hint


def test_a_number_under_the_name_of_a_secret_is_only_a_wrong_key(only):
    assert "is not a key" in only("limits: {token: 5}").message


@pytest.mark.parametrize("name", ["sk-learn-docs-2024", "sk-learn", "rk-1", "hf-report-writer", "key-extractor"])
def test_a_tenant_may_be_called_like_the_beginning_of_a_key(rules, name):
    assert name in rules(f"tenants: {{{name}: {{}}}}").tenants


# ---------------------------------------------------------------------------------------------------------- all at once

MANY = """\
version: 2
endpoint: {base_url: ftp://x}
limits: {concurency: 2, queue: 4.0}
limits: {}
defaults: {weight: 0, weight: 1}
tenants:
  logs: {level: bach, stall: {action: puase}}
  docs: !x {}
zzz: 1
time_zone: Nowhere
"""


def test_everything_is_told_at_once_in_the_order_of_the_file(found):
    findings = found(MANY, head="")
    assert [(finding.line, finding.path) for finding in findings] == [
        (1, "version"),
        (2, "endpoint.base_url"),
        (3, "limits.concurency"),
        (3, "limits.queue"),
        (4, "limits"),
        (5, "defaults.weight"),
        (5, "defaults.weight"),
        (7, "tenants.logs.level"),
        (7, "tenants.logs.stall.action"),
        (8, "tenants.docs"),
        (9, "zzz"),
        (10, "time_zone"),
    ]


def test_a_finding_is_printed_as_compilers_print_it(only):
    assert str(only("limits: {max_wait: 30}")).startswith(
        "team.yaml:3:20: limits.max_wait: `30` is not accepted here ("
    )


def test_what_is_wrong_behind_two_aliases_is_told_for_both_paths(found):
    findings = found("tenants:\n  a: &a\n    weight: 0\n  b: *a\n")
    assert [(finding.line, finding.path) for finding in findings] == [(5, "tenants.a.weight"), (5, "tenants.b.weight")]


def test_a_flood_of_findings_is_cut_and_says_how_many_more_there_are(found):
    findings = found("".join(f"zz{number}: 1\n" for number in range(1_000)))
    assert len(findings) == 201
    assert findings[-1].message == "800 more problems"


def test_findings_of_the_reader_count_to_the_flood_as_well(found):
    findings = found("limits: {}\n" * 300)
    assert (len(findings), findings[-1].message) == (201, "99 more problems")


def test_a_long_value_is_cut(only):
    assert len(only(f"unknown_tenants: {'ab ' * 500}").message) < 100


def test_what_a_terminal_would_obey_is_shown_as_an_escape(only):
    # printable for YAML, not for a terminal
    assert "\\u200b" in only("unknown_tenants: a\u200bb").message


def test_the_error_counts_and_lists_its_findings():
    with pytest.raises(PolicyError, match=r"^3 problems in the policy\n  x\.yaml:1:1: ") as caught:
        policy.loads("a: 1", "x.yaml", environ={})
    assert len(caught.value.findings) == 3
