"""From a file, a text or nothing to settings."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from pathlib import Path

import pytest

from fairq_ipy import policy
from fairq_ipy.core.model import Policy
from fairq_ipy.errors import Finding, PolicyError
from fairq_ipy.policy import Endpoint

GOOD = "version: 1\nendpoint: {base_url: demo}\n"


def refused(path: Path | str) -> Finding:
    with pytest.raises(PolicyError) as caught:
        policy.load(path)
    (finding,) = caught.value.findings
    assert finding.file == os.fspath(path)
    return finding


def test_a_file_is_read_with_its_source_and_its_digest(tmp_path):
    path = tmp_path / "team.yaml"
    path.write_bytes(GOOD.encode())
    settings = policy.load(path)
    assert settings.source == path
    assert settings.digest == hashlib.sha256(GOOD.encode()).hexdigest()
    assert (settings.endpoint, settings.rules, settings.time_zone) == (Endpoint("demo"), Policy(), "UTC")


@pytest.mark.parametrize("name", ["my team.yaml", "ä ☃.yaml", "a'b.yaml", "-x.yaml"])
def test_a_path_keeps_its_blanks_and_signs(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(GOOD, encoding="utf-8")
    assert policy.load(name).source == tmp_path / name


def test_a_relative_path_stays_right_after_the_folder_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text(GOOD, encoding="utf-8")
    settings = policy.load("p.yaml")
    monkeypatch.chdir("/")
    assert settings.source == tmp_path / "p.yaml"


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "p.yaml").write_text(GOOD, encoding="utf-8")
    assert policy.load("~/p.yaml").source == tmp_path / "p.yaml"


def test_a_mark_at_the_start_and_windows_line_ends_change_nothing(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert policy.load(path).rules == Policy()


def test_a_file_that_is_not_there_is_a_finding(tmp_path):
    finding = refused(tmp_path / "no.yaml")
    assert (finding.line, finding.column, finding.message) == (1, 1, "there is no such file")
    assert "fairq init" in finding.hint


def test_a_folder_is_a_finding(tmp_path):
    assert refused(tmp_path).message == "this is a folder"


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_a_name_that_no_file_can_have_is_a_finding(name):
    assert "cannot be read" in refused(name).message


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are others there")
def test_a_file_that_cannot_be_read_is_a_finding(tmp_path, monkeypatch):
    def forbidden(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbidden)
    assert refused(tmp_path / "p.yaml").message == "the file cannot be read: Permission denied"


def test_a_home_folder_that_is_not_there_is_a_finding():
    finding = refused("~nobody-of-that-name/p.yaml")
    assert "cannot be read" in finding.message


def test_bytes_that_are_not_utf_8_are_a_finding(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_bytes(GOOD.encode() + b"# caf\xe9\n")
    finding = refused(path)
    assert (finding.line, finding.column) == (3, 6)


def test_a_file_that_is_no_policy_at_all_is_refused_after_its_beginning(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_bytes(b"a" * 3_000_000)
    assert "characters" in refused(path).message


@pytest.mark.parametrize("text", [GOOD, "\ufeff" + GOOD, GOOD.replace("\n", "\r\n")])
def test_a_text_has_no_source_but_a_digest(text):
    settings = policy.loads(text)
    assert settings.source is None
    assert len(settings.digest) == 64


def test_half_a_character_is_a_finding_and_no_crash():
    with pytest.raises(PolicyError, match="U\\+D800"):
        policy.loads(GOOD + "# \ud800")


def test_the_environment_is_the_processs_own_unless_one_is_given(monkeypatch):
    monkeypatch.setenv("FAIRQ_BASE_URL", "http://from.process/v1")
    text = GOOD.replace("demo", "'${FAIRQ_BASE_URL:-demo}'")
    assert policy.loads(text).endpoint.base_url == "http://from.process/v1"
    assert policy.loads(text, environ={}).endpoint.base_url == "demo"


# ----------------------------------------------------------------------------------------------------- without a file


def test_without_a_file_the_demo_endpoint_and_the_defaults_hold():
    settings = policy.builtin()
    assert settings.endpoint == Endpoint("demo", "FAIRQ_API_KEY")
    assert settings.rules == Policy()
    assert (settings.source, settings.time_zone) == (None, "UTC")


def test_without_a_file_there_are_two_slots_two_levels_and_no_bounds():
    rules = policy.builtin().rules
    assert rules.limits.concurrency == 2
    assert {level.name: level.number for level in rules.levels} == {"interactive": 1, "batch": 2}
    assert rules.defaults.stall is None
    assert rules.defaults.budgets == ()


def test_without_a_file_the_environment_names_the_endpoint():
    environ = {"FAIRQ_BASE_URL": "http://host:8000/v1/"}
    assert policy.builtin(environ=environ).endpoint.base_url == "http://host:8000/v1"


def test_without_a_file_a_wrong_environment_is_told():
    with pytest.raises(PolicyError, match="FAIRQ_BASE_URL"):
        policy.builtin(environ={"FAIRQ_BASE_URL": "host:8000"})


def test_the_error_survives_a_pickle():
    with pytest.raises(PolicyError) as caught:
        policy.loads("a: 1")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.findings == caught.value.findings
    assert str(copy) == str(caught.value)
