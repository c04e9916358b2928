"""The policies that come along: right, explained, and as their comments say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairq_ipy import policy
from fairq_ipy.core.model import Context
from fairq_ipy.policy import Settings

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "policies").glob("*.yaml"))


def read(name: str) -> Settings:
    return policy.load(ROOT / "policies" / f"{name}.yaml", environ={})


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_is_right(file):
    assert policy.load(file, environ={}).endpoint.base_url == "demo"


def test_there_is_one_for_a_team_one_person_and_agents():
    assert [file.stem for file in FILES] == ["agents", "solo", "team"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_tells_editors_where_its_schema_is(file):
    first, _, _ = file.read_text(encoding="utf-8").partition("\n")
    schema = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert schema
    assert (file.parent / schema[1]).is_file()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_takes_the_endpoint_from_the_environment(file):
    settings = policy.load(file, environ={"FAIRQ_BASE_URL": "http://host:8000/v1/"})
    assert settings.endpoint.base_url == "http://host:8000/v1"
    assert settings.endpoint.api_key_env == "FAIRQ_API_KEY"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_explains_its_numbers(file):
    lines = file.read_text(encoding="utf-8").splitlines()
    assert sum(line.lstrip().startswith("#") for line in lines) >= 0.25 * sum(bool(line.strip()) for line in lines)


def test_the_teams_leaves_a_terse_classifier_alone():
    stall = read("team").rules.defaults.stall
    assert stall is not None
    assert stall.min_chars == 1


def test_the_values_that_the_teams_comments_name_are_those_that_hold_without_the_line():
    text = (ROOT / "policies" / "team.yaml").read_text(encoding="utf-8")
    bare = policy.builtin(environ={}).rules
    assert "(100 if left out)" in text
    assert bare.limits.queue == 100
    assert "(2m and 60s if left out)" in text
    assert (bare.limits.first_token, bare.limits.idle_stream) == (120.0, 60.0)
    assert "(3 and 2m if left out)" in text
    assert (bare.backpressure.retries, bare.backpressure.max_hold) == (3, 120.0)
    assert bare.limits.queue_per_tenant is bare.limits.max_wait is bare.limits.requests_per_minute is None
    assert (bare.starve_after, bare.headroom_for) == (30.0, 60.0)


def test_the_lines_that_the_teams_comments_offer_are_right():
    text = (ROOT / "policies" / "team.yaml").read_text(encoding="utf-8")
    offered = re.sub(r"^( *)# (\w+: \S+)$", r"\1\2", text, flags=re.MULTILINE)
    assert offered.count("\n") == text.count("\n")
    settings = policy.loads(offered, environ={})
    assert settings.endpoint.model == "demo-small"
    assert settings.rules.limits.requests_per_minute == 60


def test_a_person_goes_before_the_agents_and_is_not_bound_as_they_are():
    rules = read("agents").rules
    person = rules.tenants["notebook"]
    assert person.level < rules.defaults.level < rules.tenants["indexer"].level
    assert (person.context, person.budgets, person.stall) == (Context(), (), None)


def test_the_agents_that_share_a_shape_differ_in_their_weight():
    tenants = read("agents").rules.tenants
    assert tenants["reviewer"].context == tenants["refactorer"].context
    assert (tenants["reviewer"].weight, tenants["refactorer"].weight) == (2.0, 1.0)


def test_the_one_persons_changes_little():
    rules = read("solo").rules
    assert rules.limits.concurrency == 1
    assert rules.tenants["experiments"].level == 2
