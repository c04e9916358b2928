"""From the data of a good policy to the rules of the core: 0 and absent differ everywhere."""

from __future__ import annotations

import dataclasses

import pytest

from fairq_ipy import policy
from fairq_ipy.core.model import Adaptive, Backpressure, Budget, Context, Level, Limits, Policy, Stall, TenantPolicy
from fairq_ipy.policy import Endpoint
from fairq_ipy.policy.build import seconds


def test_what_a_policy_does_not_say_is_the_default_of_the_core(rules):
    assert rules("") == Policy()


def test_an_empty_section_says_nothing(rules):
    assert rules("limits: {}\nfairness: {}\nbackpressure: {}\ndefaults: {}\ntenants: {}\n") == Policy()


def test_every_key_reaches_the_rules(rules):
    text = """
limits:
  concurrency: 8
  queue: 20
  queue_per_tenant: 10
  max_wait: 5m
  first_token: 90s
  idle_stream: 500ms
  requests_per_minute: 60
  tokens_per_minute: 100_000
levels:
  later: {level: 5}
  sooner: {level: 0, reserve: 2}
starve_after: 20s
headroom_for: 10s
fairness: {prompt_weight: 0.5, output_weight: 3}
backpressure: {retries: 1, base: 2s, max_hold: 1h}
defaults:
  level: later
  weight: 2
  concurrency: 3
  queue: 4
  context: {messages: 20, tokens: 16_000}
  budgets: [{tokens: 200_000, per: day}, {requests: 5, per: minute}, {messages: 9, per: session}]
  on_exhausted: wait
  on_paused: refuse
  stall: {min_chars: 5, threshold: 4, action: evict, resume: {after: 60s, max: 10m}}
tenants:
  logs: {level: sooner}
default_tenant: someone
unknown_tenants: allow
share: {via: kernel}
"""
    defaults = TenantPolicy(
        level=5,
        weight=2.0,
        concurrency=3,
        queue=4,
        context=Context(messages=20, tokens=16_000),
        budgets=(Budget("tokens", 200_000, "day"), Budget("requests", 5, "minute"), Budget("messages", 9, "session")),
        on_exhausted="wait",
        on_paused="refuse",
        stall=Stall(min_chars=5, threshold=4, action="evict", resume_after=60.0, resume_max=600.0),
    )
    assert rules(text) == Policy(
        limits=Limits(8, None, 20, 10, 300.0, 60, 100_000, 90.0, 0.5),
        levels=(Level(0, "sooner", 2), Level(5, "later")),
        starve_after=20.0,
        headroom_for=10.0,
        backpressure=Backpressure(1, 2.0, 3600.0),
        defaults=defaults,
        tenants={"logs": dataclasses.replace(defaults, level=0)},
        default_tenant="someone",
        unknown_tenants="allow",
        prompt_weight=0.5,
        output_weight=3.0,
    )


# -------------------------------------------------------------------------------------------------------- 0 and absent


@pytest.mark.parametrize(
    ("text", "value"),
    [("{queue: 0}", 0), ("{queue: 7}", 7), ("{queue: unlimited}", None), ("{}", 100), ("{queue: '10_000'}", 10_000)],
)
def test_the_queue_may_have_no_room_or_no_bound(rules, text, value):
    assert rules(f"limits: {text}").limits.queue == value


@pytest.mark.parametrize(("text", "value"), [("{queue_per_tenant: 0}", 0), ("{}", None), ("{queue_per_tenant: 1}", 1)])
def test_one_tenants_part_of_the_queue_may_have_no_room_or_no_bound(rules, text, value):
    assert rules(f"limits: {text}").limits.queue_per_tenant == value


@pytest.mark.parametrize(("text", "value"), [("{messages: 0}", 0), ("{}", None), ("{messages: unlimited}", None)])
def test_no_messages_and_no_bound_on_messages_differ(rules, text, value):
    assert rules(f"defaults: {{context: {text}}}").defaults.context.messages == value


@pytest.mark.parametrize(("text", "value"), [("queue: 0", 0), ("weight: 1", None)])
def test_a_tenant_without_room_and_one_that_says_nothing_differ(rules, text, value):
    assert rules(f"tenants: {{a: {{{text}}}}}").tenants["a"].queue == value


def test_a_budget_of_0_allows_none(rules):
    budgets = "[{requests: 0, per: session}]"
    assert rules(f"defaults: {{budgets: {budgets}}}").defaults.budgets == (Budget("requests", 0, "session"),)


def test_0_retries_are_none(rules):
    assert rules("backpressure: {retries: 0}").backpressure.retries == 0


def test_level_0_is_a_level(rules):
    text = "levels: {first: {level: 0}, second: {level: 1}}\ntenants: {a: {level: 0}, b: {level: first}}"
    assert {name: tenant.level for name, tenant in rules(text).tenants.items()} == {"a": 0, "b": 0}


def test_a_reserve_of_0_reserves_nothing(rules):
    assert rules("levels: {a: {level: 1, reserve: 0}, b: {level: 2}}").levels[0].reserve == 0


@pytest.mark.parametrize(("text", "value"), [("off", None), ("5s", 5.0), ("1.5m", 90.0)])
def test_the_starvation_guard_may_be_off(rules, text, value):
    assert rules(f"starve_after: {text}").starve_after == value


@pytest.mark.parametrize(("text", "value"), [("off", 0.0), ("0s", 0.0), ("5s", 5.0)])
def test_headroom_may_be_off(rules, text, value):
    assert rules(f"headroom_for: {text}").headroom_for == value


@pytest.mark.parametrize("key", ["max_wait", "first_token", "idle_stream", "requests_per_minute", "tokens_per_minute"])
def test_a_limit_may_be_lifted(rules, key):
    assert getattr(rules(f"limits: {{{key}: unlimited}}").limits, key) is None


# -------------------------------------------------------------------------------------------------------------- levels


def test_levels_stand_in_the_order_of_their_numbers(rules):
    levels = rules("levels: {c: {level: 9}, a: {level: 0}, b: {level: 4}}").levels
    assert [(level.name, level.number) for level in levels] == [("a", 0), ("b", 4), ("c", 9)]


def test_a_tenant_that_names_no_level_gets_the_first(rules):
    read = rules("levels: {slow: {level: 8}, fast: {level: 3}}\ntenants: {a: {}}")
    assert (read.defaults.level, read.tenants["a"].level) == (3, 3)


def test_a_level_may_be_called_like_a_boolean(rules):
    assert rules("levels: {on: {level: 3}}\ndefaults: {level: on}").defaults.level == 3


# ------------------------------------------------------------------------------------------------------------- tenants

DEFAULTS = """
defaults:
  level: batch
  weight: 2
  context: {messages: 20, tokens: 16_000}
  budgets: [{tokens: 5, per: day}]
  stall: {min_chars: 5, threshold: 4, action: warn, resume: {after: 60s, max: 10m}}
"""


def test_a_tenant_takes_over_what_it_does_not_say(rules):
    read = rules(DEFAULTS + "tenants: {a: {weight: 3}}")
    assert read.tenants["a"] == dataclasses.replace(read.defaults, weight=3.0)


@pytest.mark.parametrize("entry", ["a:", "a: {}", "a: null"])
def test_a_tenant_that_says_nothing_is_one_all_the_same(rules, entry):
    read = rules(DEFAULTS + f"tenants:\n  {entry}\n")
    assert read.tenants == {"a": read.defaults}


def test_the_context_is_filled_in_key_by_key(rules):
    read = rules(DEFAULTS + "tenants: {a: {context: {messages: 0}}, b: {context: {tokens: unlimited}}}")
    assert read.tenants["a"].context == Context(messages=0, tokens=16_000)
    assert read.tenants["b"].context == Context(messages=20, tokens=None)


def test_the_stall_rule_is_filled_in_key_by_key(rules):
    read = rules(DEFAULTS + "tenants: {a: {stall: {threshold: 1}}}")
    assert read.tenants["a"].stall == Stall(5, 1, "warn", 60.0, 600.0)


def test_resume_is_replaced_as_a_whole(rules):
    read = rules(DEFAULTS + "tenants: {a: {stall: {resume: {after: 5s}}}, b: {stall: {resume: off}}}")
    assert read.tenants["a"].stall == Stall(5, 4, "warn", 5.0, Stall().resume_max)
    assert read.tenants["b"].stall == Stall(5, 4, "warn", None)


def test_the_stall_rule_may_be_off_for_one(rules):
    read = rules(DEFAULTS + "tenants: {a: {stall: off}}")
    assert read.tenants["a"].stall is None
    assert read.defaults.stall is not None


def test_the_stall_rule_may_be_on_for_one(rules):
    read = rules("defaults: {stall: off}\ntenants: {a: {stall: {}}, b: {stall: {threshold: 9}}, c: {}}")
    assert read.tenants["a"].stall == Stall()
    assert read.tenants["b"].stall == Stall(threshold=9)
    assert read.tenants["c"].stall is None


def test_budgets_are_replaced_as_a_whole(rules):
    read = rules(DEFAULTS + "tenants: {a: {budgets: []}, b: {budgets: [{requests: 1, per: hour}]}, c: {}}")
    assert read.tenants["a"].budgets == ()
    assert read.tenants["b"].budgets == (Budget("requests", 1, "hour"),)
    assert read.tenants["c"].budgets == read.defaults.budgets


def test_a_first_rest_longer_than_the_usual_longest_makes_that_as_long(rules):
    assert rules("defaults: {stall: {resume: {after: 1h}}}").defaults.stall == Stall(resume_after=3600, resume_max=3600)


def test_a_limit_of_the_defaults_may_be_lifted_for_one(rules):
    read = rules("defaults: {concurrency: 1}\ntenants: {a: {concurrency: unlimited}}")
    assert (read.defaults.concurrency, read.tenants["a"].concurrency) == (1, None)


def test_a_call_without_a_tenant_may_be_refused(rules):
    assert rules("default_tenant: refuse").default_tenant is None


def test_the_rules_cannot_be_changed_afterwards(rules):
    tenants = rules("tenants: {a: {}}").tenants
    with pytest.raises(TypeError):
        tenants["b"] = TenantPolicy()  # type: ignore[index]  # that is the point


# ------------------------------------------------------------------------------------------------------------ endpoint


def endpoint(text: str, **environ: str) -> Endpoint:
    return policy.loads(f"version: 1\nendpoint: {text}\n", environ=environ).endpoint


def test_an_endpoint_that_says_nothing_else_sends_no_key():
    assert endpoint("{base_url: demo}") == Endpoint("demo")


def test_every_key_of_the_endpoint_is_read():
    text = "{base_url: 'HTTP://Host:80/v1/', api_key_env: MY_KEY, model: m, paths: [/rerank/, a/b], stream_usage: true}"
    assert endpoint(text) == Endpoint("http://host/v1", "MY_KEY", "m", ("rerank", "a/b"), stream_usage=True)


def test_the_base_url_and_the_model_take_the_environments_values():
    text = "{base_url: 'http://${HOST}:${PORT:-8000}/v1', model: '${MODEL:-small}-${MODEL:-small}'}"
    assert endpoint(text, HOST="h").base_url == "http://h:8000/v1"
    assert endpoint(text, HOST="h", PORT="9").base_url == "http://h:9/v1"
    assert endpoint(text, HOST="h", MODEL="big").model == "big-big"


def test_what_a_variable_holds_is_not_filled_in_again():
    assert endpoint("{base_url: demo, model: '${MODEL}'}", MODEL="${HOME}").model == "${HOME}"


def test_a_model_that_the_environment_may_leave_out_is_none():
    assert endpoint("{base_url: demo, model: '${MODEL:-}'}").model is None


def test_a_dollar_alone_is_a_dollar():
    assert endpoint("{base_url: demo, model: $MODEL}", MODEL="x").model == "$MODEL"


# ----------------------------------------------------------------------------------------------------------- durations


@pytest.mark.parametrize(
    ("text", "value"),
    [("500ms", 0.5), ("30s", 30.0), ("0.5s", 0.5), ("5m", 300.0), ("1.5h", 5400.0), ("1d", 86400.0), ("0s", 0.0)],
)
def test_durations_are_seconds(text, value):
    assert seconds(text) == value


def test_a_concurrency_with_bounds_is_found_within_them(rules):
    limits = rules("limits: {concurrency: {start: 2, max: 1_000}}").limits
    assert (limits.concurrency, limits.adaptive) == (2, Adaptive(1, 1000))
    assert rules("limits: {concurrency: {start: 4, min: 3, max: 5}}").limits.adaptive == Adaptive(3, 5)
    assert rules("limits: {concurrency: 4}").limits.adaptive is None
