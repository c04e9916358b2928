"""The tree says where each thing stands."""

from __future__ import annotations

import pytest

from fairq_ipy.policy import yaml12
from fairq_ipy.policy.report import Report
from fairq_ipy.policy.tree import Mark, Node, entry, plain


@pytest.fixture
def tree() -> Node:
    return yaml12.read("a:\n  - 1\n  - b: 2\nc: {d: 3}\n", Report("team.yaml"))


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [((), (1, 1), (1, 1)), (("a",), (1, 1), (2, 3)), (("a", 1), (3, 5), (3, 5)), (("a", 1, "b"), (3, 5), (3, 8))],
)
def test_a_path_leads_to_a_key_and_its_value(tree, path, key, value):
    found = entry(tree, path)
    assert (found.key, found.node.mark) == (Mark(*key), Mark(*value))


@pytest.mark.parametrize("path", [("x",), ("a", "b"), ("c", 0), ("c", "d", "e")])
def test_a_path_that_leads_nowhere_is_an_error(tree, path):
    with pytest.raises(KeyError):
        entry(tree, path)


def test_the_data_is_what_was_written(tree):
    assert plain(tree) == {"a": [1, {"b": 2}], "c": {"d": 3}}


def test_a_key_can_be_left_out(tree):
    assert plain(tree, frozenset({("c", "d")})) == {"a": [1, {"b": 2}], "c": {}}


def test_a_list_is_left_out_with_its_item(tree):
    assert plain(tree, frozenset({("a", 0)})) == {"c": {"d": 3}}


def test_the_key_of_an_item_can_be_left_out(tree):
    assert plain(tree, frozenset({("a", 1, "b")})) == {"a": [1, {}], "c": {"d": 3}}
