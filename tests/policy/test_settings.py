from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairq_ipy import policy

POLICY = "version: 1\nendpoint: {base_url: demo}\n"


@pytest.fixture
def settings(tmp_path) -> policy.Settings:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "team.yaml").write_text(POLICY)
    return policy.load(tmp_path / "policies" / "team.yaml")


def test_a_policy_without_a_file_has_no_name():
    assert policy.builtin().name is None


@pytest.mark.parametrize(
    ("folder", "name"), [(".", "policies/team.yaml"), ("policies", "team.yaml"), ("a/b", "../../policies/team.yaml")]
)
def test_a_policy_is_named_from_the_folder_of_the_notebook(settings, tmp_path, monkeypatch, folder, name):
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / folder)
    assert settings.name == str(Path(name))


def test_a_policy_far_away_is_named_by_its_whole_path(settings, tmp_path, monkeypatch):
    (tmp_path / "a/b/c/d").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a/b/c/d")
    assert settings.name == str(settings.source)


def test_a_policy_has_its_whole_path_where_there_is_no_working_directory(settings, monkeypatch):
    def gone(_path):
        raise FileNotFoundError

    monkeypatch.setattr(os.path, "relpath", gone)
    assert settings.name == str(settings.source)


@pytest.mark.parametrize("mode", ["off", "warn", "route", "block"])
def test_the_guard_does_what_the_policy_says(mode):
    assert policy.loads(f"{POLICY}guard: {mode}\n", environ={}).guard == mode
