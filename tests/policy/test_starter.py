"""The first policy of a team, written where there was none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairq_ipy import policy
from fairq_ipy.errors import PolicyError
from fairq_ipy.policy import schema, starter

ROOT = Path(__file__).resolve().parents[2]


def test_it_is_the_teams_policy_but_for_the_place_of_the_schema():
    ours = (ROOT / "policies" / "team.yaml").read_text(encoding="utf-8").splitlines()
    assert starter.text().splitlines()[1:] == ours[1:]


def test_it_is_right():
    assert policy.loads(starter.text(), environ={}).endpoint.base_url == "demo"


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("HTTPS://Host/v1/", "https://host/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://host/a%20b/v1", "http://host/a%20b/v1"),
        ("demo", "demo"),
        ("${TEAM_URL:-demo}", "demo"),
    ],
)
def test_the_endpoint_stands_in_it_as_it_was_given(url, read):
    text = starter.text(url)
    assert policy.loads(text, environ={}).endpoint.base_url == read
    assert text.count("\n") == starter.text().count("\n")


def test_a_variable_need_not_be_set_yet():
    assert "base_url: ${TEAM_URL}\n" in starter.text("${TEAM_URL}")


@pytest.mark.parametrize(
    "url", ["localhost:8000", "", "http://me:pw@host/v1", "http://h/v1\nfoo: 1", "x: y", "'", "no"]
)
def test_what_is_no_endpoint_is_refused(url):
    with pytest.raises(PolicyError):
        starter.text(url)


def test_it_is_written_with_its_schema_beside_it(tmp_path):
    path = tmp_path / "my policies" / "team.yaml"
    assert starter.write(path) == [path, path.with_name("fairq.schema.json")]
    assert path.read_text(encoding="utf-8") == starter.text()
    assert json.loads(path.with_name("fairq.schema.json").read_text(encoding="utf-8")) == json.loads(schema.text())
    assert "$schema=fairq.schema.json" in path.read_text(encoding="utf-8").splitlines()[0]


def test_what_is_there_stays(tmp_path):
    path = tmp_path / "team.yaml"
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError):
        starter.write(path)
    assert path.read_text(encoding="utf-8") == "mine"
    assert not path.with_name("fairq.schema.json").exists()


def test_a_schema_that_is_there_stays(tmp_path):
    beside = tmp_path / "fairq.schema.json"
    beside.write_text("{}", encoding="utf-8")
    assert starter.write(tmp_path / "team.yaml") == [tmp_path / "team.yaml"]
    assert beside.read_text(encoding="utf-8") == "{}"


def test_what_is_there_is_overwritten_when_that_is_asked(tmp_path):
    path = tmp_path / "team.yaml"
    path.write_text("mine", encoding="utf-8")
    path.with_name("fairq.schema.json").write_text("{}", encoding="utf-8")
    assert len(starter.write(path, overwrite=True)) == 2
    assert path.read_text(encoding="utf-8") == starter.text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fairq.schema.json", "team.yaml"]


def test_nothing_is_written_for_a_wrong_endpoint(tmp_path):
    with pytest.raises(PolicyError):
        starter.write(tmp_path / "policies" / "team.yaml", endpoint="localhost:8000")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stop", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_overwriting_that_fails_leaves_what_was_there(tmp_path, monkeypatch, stop):
    path = tmp_path / "team.yaml"
    path.write_text("mine", encoding="utf-8")

    def failing(_path, _target):
        raise stop

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(type(stop)):
        starter.write(path, overwrite=True)
    assert path.read_text(encoding="utf-8") == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_where_a_folder_is_needed_is_told(tmp_path):
    (tmp_path / "policies").write_text("", encoding="utf-8")
    with pytest.raises(NotADirectoryError):
        starter.write(tmp_path / "policies" / "team.yaml")
