"""Which file holds the policy when nobody named one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairq_ipy import policy
from fairq_ipy.errors import PolicyError


@pytest.fixture
def project(tmp_path) -> Path:
    """A project with a notebook two folders down; what is above it belongs to others."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / "notebooks" / "deep").mkdir(parents=True)
    return tmp_path / "project"


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("version: 1\nendpoint: {base_url: demo}\n", encoding="utf-8")
    return path


def test_nothing_is_found_where_there_is_nothing(project):
    assert policy.find(project / "notebooks", {}) is None


@pytest.mark.parametrize("name", ["policies/team.yaml", "fairq.yaml"])
@pytest.mark.parametrize("folder", [".", "notebooks", "notebooks/deep"])
def test_the_folder_and_those_above_it_are_searched(project, folder, name):
    path = put(project / folder / name)
    assert policy.find(project / "notebooks" / "deep", {}) == path


def test_the_nearest_one_holds(project):
    put(project / "policies" / "team.yaml")
    near = put(project / "notebooks" / "fairq.yaml")
    assert policy.find(project / "notebooks" / "deep", {}) == near


def test_in_one_folder_the_teams_goes_first(project):
    put(project / "fairq.yaml")
    team = put(project / "policies" / "team.yaml")
    assert policy.find(project, {}) == team


def test_the_search_ends_at_the_top_of_the_project(project):
    put(project.parent / "fairq.yaml")
    assert policy.find(project / "notebooks", {}) is None


@pytest.mark.parametrize("variable", ["HOME", "USERPROFILE"])
def test_the_search_ends_at_the_home_folder(tmp_path, variable):
    home = tmp_path / "home"
    (home / "notes").mkdir(parents=True)
    put(tmp_path / "fairq.yaml")
    assert policy.find(home / "notes", {variable: str(home)}) is None
    path = put(home / "fairq.yaml")
    assert policy.find(home / "notes", {variable: str(home)}) == path


def test_the_search_ends_at_the_root(monkeypatch):
    monkeypatch.setattr(Path, "is_file", lambda _path: False)
    monkeypatch.setattr(Path, "exists", lambda _path: False)
    assert policy.find(Path("/a/b"), {}) is None


def test_a_relative_start_is_searched_from_the_present_folder(project, monkeypatch):
    path = put(project / "fairq.yaml")
    monkeypatch.chdir(project / "notebooks")
    assert policy.find(Path("deep"), {}) == path


def test_a_folder_of_that_name_is_no_policy(project):
    (project / "fairq.yaml").mkdir()
    assert policy.find(project, {}) is None


def test_a_link_that_leads_nowhere_is_no_policy(project):
    (project / "fairq.yaml").symlink_to(project / "gone.yaml")
    assert policy.find(project, {}) is None


def test_a_folder_that_may_not_be_entered_is_passed_by(project, monkeypatch):
    path = put(project / "fairq.yaml")
    is_file, exists = Path.is_file, Path.exists
    closed = project / "notebooks"

    def guarded(ask):
        def answer(self: Path) -> bool:
            if closed in self.parents:
                raise PermissionError(13, "Permission denied")
            return ask(self)

        return answer

    monkeypatch.setattr(Path, "is_file", guarded(is_file))
    monkeypatch.setattr(Path, "exists", guarded(exists))
    assert policy.find(closed, {}) == path


# -------------------------------------------------------------------------------------------------------- FAIRQ_POLICY


def test_the_environment_goes_first(project):
    put(project / "fairq.yaml")
    path = put(project.parent / "my policies" / "other.yaml")
    assert policy.find(project, {"FAIRQ_POLICY": str(path)}) == path


def test_a_relative_one_counts_from_the_notebooks_folder(project):
    path = put(project / "notebooks" / "p.yaml")
    assert policy.find(project / "notebooks", {"FAIRQ_POLICY": "p.yaml"}) == path


def test_its_tilde_is_the_home_folder(project, monkeypatch):
    monkeypatch.setenv("HOME", str(project))
    monkeypatch.setenv("USERPROFILE", str(project))
    path = put(project / "p.yaml")
    assert policy.find(project / "notebooks", {"FAIRQ_POLICY": "~/p.yaml"}) == path


def test_an_empty_one_names_nothing(project):
    path = put(project / "fairq.yaml")
    assert policy.find(project, {"FAIRQ_POLICY": ""}) == path


@pytest.mark.parametrize("name", ["gone.yaml", ".", "a\0b"])
def test_one_that_names_no_file_is_an_error_and_not_skipped(project, name):
    put(project / "fairq.yaml")
    with pytest.raises(PolicyError) as caught:
        policy.find(project, {"FAIRQ_POLICY": name})
    (finding,) = caught.value.findings
    assert "FAIRQ_POLICY" in finding.hint


def test_the_processs_environment_is_asked_unless_one_is_given(project, monkeypatch):
    path = put(project / "p.yaml")
    monkeypatch.setenv("FAIRQ_POLICY", str(path))
    assert policy.find(project) == path
