"""The schema is JSON Schema as everybody else reads it, and says the same as the rules of the core."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairq_ipy import policy
from fairq_ipy.core.model import Backpressure, Context, Limits, Policy, Stall, TenantPolicy
from fairq_ipy.policy import schema, yaml12
from fairq_ipy.policy.report import Report
from fairq_ipy.policy.tree import Path, plain

ANNOTATIONS = {"$schema", "$defs", "title", "description", "examples", "default"}
OURS = {"errorMessage", "x-variables", "x-quiet"}


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    return json.loads(schema.text())


@pytest.fixture(scope="module")
def reference(published) -> Any:
    """The same schema in the hands of the jsonschema package, with types as strict as ours."""
    # imported here, because it takes seconds where JupyterLab is installed
    from jsonschema import Draft202012Validator, validators

    strict = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: isinstance(value, int) and not isinstance(value, bool),
            "number": lambda _, value: isinstance(value, int | float) and not isinstance(value, bool),
        }
    )
    Draft202012Validator.check_schema(published)
    return validators.extend(Draft202012Validator, type_checker=strict)(published)


def parts(schema_: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every schema in a schema."""
    yield schema_
    for key, value in schema_.items():
        if key in {"properties", "$defs"}:
            for part in value.values():
                yield from parts(part)
        elif key in {"items", "additionalProperties", "propertyNames"} and isinstance(value, dict):
            yield from parts(value)


# ------------------------------------------------------------------------------------------------------- the document


def test_it_uses_no_keyword_that_our_evaluation_does_not_know(published):
    used = {key for part in parts(published) for key in part}
    assert used <= schema.ASSERTIONS | ANNOTATIONS | OURS
    assert used >= schema.ASSERTIONS, "a keyword that nothing uses need not be evaluated"


def test_what_stands_beside_a_reference_never_takes_the_place_of_an_assertion(published):
    for part in parts(published):
        if "$ref" in part:
            target = published["$defs"][part["$ref"].removeprefix("#/$defs/")]
            assert not (part.keys() & target.keys() & schema.ASSERTIONS - {"$ref"})


def test_every_section_knows_all_its_keys(published):
    open_sections = [part for part in parts(published) if "properties" in part and part["additionalProperties"]]
    assert not open_sections


def test_every_key_explains_itself_and_shows_examples():
    for path, part in schema.Checker.of_policies().places():
        assert part["errorMessage"], path
        assert part["type"], path
        assert part["type"] != "array" or {"items", "maxItems"} <= part.keys(), path
        assert part.get("description") or path[-1] == "*", path
        assert part.get("examples"), path


def test_every_pattern_is_bound_at_both_ends(published):
    patterns = [part["pattern"] for part in parts(published) if "pattern" in part]
    assert patterns
    assert all(pattern.startswith("^") and pattern.endswith("$") for pattern in patterns)


def test_every_example_is_accepted(published, reference):
    for part in parts(published):
        for example in part.get("examples", ()):
            errors = list(reference.evolve(schema=part).iter_errors(example))
            assert not errors, (part, example)


def test_variables_are_filled_in_at_two_places():
    assert schema.Checker.of_policies().variables() == {("endpoint", "base_url"), ("endpoint", "model")}


# ------------------------------------------------------------------------------------------- the rules of the core

NOT_IN_THE_CORE = {
    "version", "share.via", "time_zone",
    *("endpoint.base_url", "endpoint.api_key_env", "endpoint.model", "endpoint.paths", "endpoint.stream_usage"),
}  # fmt: skip

MADE_FROM = {
    Limits: "limits",
    Backpressure: "backpressure",
    TenantPolicy: "defaults",
    Context: "defaults.context",
    Stall: "defaults.stall",
}
RENAMED = {
    "limits.adaptive": "limits.concurrency.max",
    "stall.resume_after": "stall.resume.after",
    "stall.resume_max": "stall.resume.max",
}


def spelled_out() -> set[str]:
    return {".".join(map(str, path)) for path, _ in schema.Checker.of_policies().places()}


@pytest.mark.parametrize("kind", MADE_FROM, ids=MADE_FROM.values())
def test_every_rule_of_the_core_can_be_written(kind):
    for field in dataclasses.fields(kind):
        path = f"{MADE_FROM[kind]}.{field.name}"
        for old, new in RENAMED.items():
            path = path.replace(old, new)
        assert path in spelled_out()


def test_the_defaults_that_editors_show_are_those_that_hold(rules):
    # Write every default of the schema into a policy: nothing may change.
    tree: dict[str, Any] = {}
    for path, part in schema.Checker.of_policies().places():
        if "default" in part and "*" not in path and path[0] not in {"endpoint", "time_zone"}:
            section = tree
            for step in path[:-1]:
                section = section.setdefault(step, {})
                if not isinstance(section, dict):
                    break
            else:
                section.setdefault(str(path[-1]), part["default"])
    assert "queue" in tree["limits"]
    assert tree["defaults"]["stall"] == "off"
    assert rules("".join(f"{key}: {json.dumps(value)}\n" for key, value in tree.items())) == Policy()


def test_the_defaults_of_a_stall_rule_that_editors_show_are_those_that_hold(rules):
    shown = {
        path[-1]: part["default"]
        for path, part in schema.Checker.of_policies().places()
        if path[:2] == ("defaults", "stall") and "default" in part and len(path) == 3
    }
    assert set(shown) == {"min_chars", "threshold", "action", "resume"}
    assert rules(f"defaults: {{stall: {json.dumps(shown)}}}").defaults.stall == Stall()


def test_the_longest_rest_that_editors_show_is_the_one_that_holds(rules):
    stall = rules("defaults: {stall: {resume: {after: 1s, max: 15m}}}").defaults.stall
    assert stall == rules("defaults: {stall: {resume: {after: 1s}}}").defaults.stall


def test_what_editors_show_beside_the_rules_is_what_holds(published):
    read = policy.loads("version: 1\nendpoint: {base_url: demo}\n", environ={})
    assert read.time_zone == published["properties"]["time_zone"]["default"]
    assert read.guard == published["properties"]["guard"]["default"]
    assert read.endpoint.paths == tuple(published["properties"]["endpoint"]["properties"]["paths"]["default"])
    assert read.endpoint.stream_usage is published["properties"]["endpoint"]["properties"]["stream_usage"]["default"]


# ------------------------------------------------------------------------------------------- held against jsonschema

NAMES = sorted({str(path[-1]) for path, _ in schema.Checker.of_policies().places()} - {"*"})

scalars = (
    st.sampled_from(
        [
            *(
                0,
                1,
                2,
                9,
                10,
                -1,
                10**12,
                1.0,
                4.5,
                0.0005,
                True,
                False,
                None,
                "",
                "demo",
                "off",
                "unlimited",
                "refuse",
            ),
            *("30s", "0s", "5m", "1.5h", "30", "10_000", "10_00", "day", "allow", "wait", "pause", "kernel", "UTC"),
            *("FAIRQ_KEY", "sk-1", "batch", " a", "a ", "a/b", "x" * 300),
        ]
    )
    | st.integers(-(10**15), 10**15)
    | st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), max_size=12)
)
keys = st.sampled_from(NAMES) | st.sampled_from(["a", "b b", "", "refuse", "Level", "10"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)


@st.composite
def shaped(draw: st.DrawFn, part: dict[str, Any] | None = None, depth: int = 0) -> Any:
    """Draw data that mostly has the shape of a policy, so that the wrong parts lie deep."""
    checker = schema.Checker.of_policies()
    part = checker.resolved(checker.root if part is None else part)
    if depth > 6 or draw(st.integers(0, 9)) == 0:
        return draw(values)
    if "properties" in part or isinstance(part.get("additionalProperties"), dict):
        known = part.get("properties", {})
        chosen = draw(st.lists(st.sampled_from(sorted(known)), unique=True)) if known else ["a", "b"]
        left_out = draw(st.sampled_from([(), (), ("per",), ("level",), ("version",)]))
        chosen = sorted({*chosen, *part.get("required", ())} - set(left_out))
        others = part.get("additionalProperties")
        data = {name: draw(shaped(known.get(name, others), depth + 1)) for name in chosen}
        if draw(st.integers(0, 9)) == 0:
            data[draw(keys)] = draw(values)
        return data
    if "items" in part:
        return draw(st.lists(shaped(part["items"], depth + 1), max_size=3))
    return draw(st.sampled_from(part.get("examples", ["a"])) | scalars)


def blamed_by_us(data: object) -> set[Path]:
    report = Report("x")
    tree = yaml12.read(json.dumps(data), report)
    assert plain(tree) == data
    problems = schema.Checker.of_policies().problems(tree)
    return {
        problem.path[:-1] if problem.keyword in {"additionalProperties", "required", "propertyNames"} else problem.path
        for problem in problems
    }


@given(shaped() | values)
def test_it_blames_the_same_places_as_the_jsonschema_package(reference, data):
    assert blamed_by_us(data) == {tuple(error.absolute_path) for error in reference.iter_errors(data)}


def test_a_good_policy_is_blamed_by_neither(reference):
    example = {"version": 1, "endpoint": {"base_url": "demo"}, "limits": {"queue": "10_000"}}
    assert blamed_by_us(example) == set()
    assert reference.is_valid(example)
