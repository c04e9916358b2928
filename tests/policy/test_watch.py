"""Each content is told once: a good one as settings, a bad one as an error, and nothing in between."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairq_ipy import policy
from fairq_ipy.errors import PolicyError
from fairq_ipy.policy import Settings, Watcher


def text(concurrency: object) -> str:
    return f"version: 1\nendpoint: {{base_url: demo}}\nlimits: {{concurrency: {concurrency}}}\n"


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "team.yaml"
    path.write_text(text(2), encoding="utf-8")
    return path


@pytest.fixture
def watcher(file) -> Watcher:
    return Watcher(file, policy.load(file).digest)


def slots(found: Settings | PolicyError | None) -> int:
    assert isinstance(found, Settings)
    return found.rules.limits.concurrency


def test_what_is_in_use_is_not_told_again(watcher):
    assert [watcher.check() for _ in range(3)] == [None, None, None]


def test_the_present_content_is_told_when_nothing_is_in_use(file):
    watcher = Watcher(file, None)
    assert slots(watcher.check()) == 2
    assert watcher.check() is None


def test_a_new_content_is_told_once_with_its_source(file, watcher):
    file.write_text(text(3), encoding="utf-8")
    found = watcher.check()
    assert slots(found) == 3
    assert found.source == file
    assert watcher.check() is None


def test_a_new_content_is_seen_though_time_and_size_stay_the_same(file, watcher):
    before = file.stat()
    file.write_text(text(3), encoding="utf-8")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    assert slots(watcher.check()) == 3


def test_a_new_time_without_a_new_content_is_nothing(file, watcher):
    os.utime(file, (1, 1))
    assert watcher.check() is None


def test_a_save_by_renaming_is_seen(file, watcher):
    draft = file.with_name(".team.yaml.swp")
    draft.write_text(text(3), encoding="utf-8")
    draft.replace(file)
    assert slots(watcher.check()) == 3


def test_a_link_that_is_turned_to_another_file_is_seen(tmp_path):
    # the way in which mounted configuration changes
    (tmp_path / "old.yaml").write_text(text(2), encoding="utf-8")
    (tmp_path / "new.yaml").write_text(text(3), encoding="utf-8")
    link = tmp_path / "team.yaml"
    link.symlink_to("old.yaml")
    watcher = Watcher(link, policy.load(link).digest)
    link.unlink()
    link.symlink_to("new.yaml")
    assert slots(watcher.check()) == 3


def test_a_bad_content_is_told_once_and_its_mending_once(file, watcher):
    file.write_text(text("many"), encoding="utf-8")
    broken = watcher.check()
    assert isinstance(broken, PolicyError)
    assert broken.findings[0].path == "limits.concurrency"
    assert watcher.check() is None
    file.write_text(text(5), encoding="utf-8")
    assert slots(watcher.check()) == 5
    assert watcher.check() is None


def test_a_bad_content_that_goes_back_to_the_one_in_use_is_told_as_mended(file, watcher):
    file.write_text(text("many"), encoding="utf-8")
    assert isinstance(watcher.check(), PolicyError)
    file.write_text(text(2), encoding="utf-8")
    assert slots(watcher.check()) == 2
    assert watcher.check() is None


def test_another_bad_content_is_told_again(file, watcher):
    file.write_text(text("many"), encoding="utf-8")
    assert isinstance(watcher.check(), PolicyError)
    file.write_text(text("more"), encoding="utf-8")
    second = watcher.check()
    assert isinstance(second, PolicyError)
    assert "more" in str(second)


def test_bytes_that_are_no_text_are_a_bad_content(file, watcher):
    file.write_bytes(b"\xff")
    assert isinstance(watcher.check(), PolicyError)


@pytest.mark.parametrize("vanish", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["gone", "empty"])
def test_a_moment_without_content_is_nothing(file, watcher, vanish):
    vanish(file)
    assert watcher.check() is None
    file.write_text(text(2), encoding="utf-8")
    assert watcher.check() is None


@pytest.mark.parametrize("vanish", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["gone", "empty"])
def test_a_save_that_is_seen_half_way_is_told_when_it_is_whole(file, watcher, vanish):
    vanish(file)
    assert watcher.check() is None
    file.write_text(text(3), encoding="utf-8")
    assert slots(watcher.check()) == 3


@pytest.mark.parametrize(
    ("vanish", "words"),
    [(Path.unlink, "no such file"), (lambda path: path.write_bytes(b""), "empty")],
    ids=["gone", "empty"],
)
def test_a_content_that_stays_away_is_told_once_and_its_return_once(file, watcher, vanish, words):
    vanish(file)
    assert watcher.check() is None
    missing = watcher.check()
    assert isinstance(missing, PolicyError)
    assert words in str(missing)
    assert watcher.check() is None
    file.write_text(text(2), encoding="utf-8")
    assert slots(watcher.check()) == 2
    assert watcher.check() is None


def test_two_moments_without_content_are_nothing_while_it_comes_back_between_them(file, watcher):
    for _ in range(3):
        file.unlink()
        assert watcher.check() is None
        file.write_text(text(2), encoding="utf-8")
        assert watcher.check() is None


def test_a_folder_in_its_place_is_told_when_it_stays(file, watcher):
    file.unlink()
    file.mkdir()
    assert watcher.check() is None
    assert isinstance(watcher.check(), PolicyError)
