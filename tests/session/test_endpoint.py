"""The endpoint of a session: its address, its key, and which requests are calls of it."""

from __future__ import annotations

import importlib
import threading
import urllib.request

import pytest

from fairq_ipy.errors import ConfigurationError
from fairq_ipy.session.governed import Governed

from .conftest import SOON, TEXT

DEMO = "version: 1\nendpoint: {base_url: demo}\nlimits: {concurrency: 3}\n"


@pytest.mark.parametrize(
    "base",
    ["http://host:8000/v1", "http://host:8000/v1/", "http://host:8000", "http://host:8000/", "HTTP://HOST:8000/v1"],
)
@pytest.mark.parametrize(
    "url",
    [
        "http://host:8000/v1/chat/completions",
        "http://host:8000/chat/completions",
        "http://HOST:8000/v1/chat/completions",
        "HTTP://host:8000/v1/chat/completions/",
        "http://host.:8000/v1//chat/completions",
        "http://user:key@host:8000/v1/chat/completions?api-version=1#x",
        "http://host:8000/v1/responses",
        "http://host:8000/v1/completions",
        "http://host:8000/v1/embeddings",
        "http://host:8000/v1/messages",
    ],
)
def test_calls_of_the_endpoint_are_recognised_however_they_are_written(base, url):
    assert Governed(base).covers("POST", url)
    assert Governed(base).covers("post", url)


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("GET", "http://host:8000/v1/chat/completions"),
        ("GET", "http://host:8000/v1/models"),
        ("POST", "http://host:8000/v1/models"),
        ("POST", "http://host:8000/v1/files"),
        ("POST", "http://host:8000/v1/messages/count_tokens"),
        ("POST", "http://host:8000/v1/threads/t1/messages"),
        ("POST", "http://host:8000/v1/responses/r1/cancel"),
        ("POST", "http://host:8000/v2/chat/completions"),
        ("POST", "http://host:8000/v1/v1/chat/completions"),
        ("POST", "http://host:8000/v1x/chat/completions"),
        ("POST", "http://host:8001/v1/chat/completions"),
        ("POST", "http://host/v1/chat/completions"),
        ("POST", "https://host:8000/v1/chat/completions"),
        ("POST", "http://other:8000/v1/chat/completions"),
        ("POST", "http://host:8000/V1/chat/completions"),
        ("POST", "http://host:8000/"),
        ("POST", "http://host:8000"),
        ("POST", "/v1/chat/completions"),
        ("POST", "http://[::1/v1/chat/completions"),
        ("POST", "http://host:port/v1/chat/completions"),
        ("POST", ""),
    ],
)
def test_everything_else_is_none_of_the_queues_business(method, url):
    assert not Governed("http://host:8000/v1").covers(method, url)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://host/v1", "http://host:80/v1/embeddings"),
        ("https://host:443/v1", "https://host/v1/embeddings"),
        ("http://[::1]:8000/v1", "http://[0:0:0:0:0:0:0:1]:8000/v1/embeddings"),
        ("http://[::1]/v1", "http://[::1]:80/embeddings"),
        ("https://gate/team/a/v1", "https://gate/team/a/v1/embeddings"),
        ("https://gate/team/a", "https://gate/team/a/v1/embeddings"),
    ],
)
def test_ports_addresses_and_prefixes_are_compared_by_what_they_mean(base, url):
    assert Governed(base).covers("POST", url)


def test_a_prefix_is_a_part_of_the_address():
    governed = Governed("https://gate/team/a/v1")
    assert not governed.covers("POST", "https://gate/team/b/v1/embeddings")
    assert not governed.covers("POST", "https://gate/v1/embeddings")
    assert not governed.covers("POST", "https://gate/team/ab/embeddings")


def test_a_policy_may_add_paths():
    governed = Governed("http://host/v1", ("rerank", "/audio/speech/"))
    assert governed.covers("POST", "http://host/v1/rerank")
    assert governed.covers("POST", "http://host/v1/audio/speech")
    assert not governed.covers("POST", "http://host/v1/audio")


def test_a_session_governs_its_own_endpoint(session):
    assert session.base_url() == "http://127.0.0.1:9/v1"
    assert session.governs("POST", "http://127.0.0.1:9/v1/chat/completions")
    assert not session.governs("POST", "http://127.0.0.1:10/v1/chat/completions")


def test_clients_of_an_address_that_a_new_policy_left_still_come_through_the_queue(make_session, write):
    session = make_session()
    session.load(write(TEXT.replace("127.0.0.1:9", "127.0.0.1:10")))
    assert session.governs("POST", "http://127.0.0.1:10/v1/chat/completions")
    assert session.governs("POST", "http://127.0.0.1:9/v1/chat/completions")
    assert not session.governs("POST", "http://127.0.0.1:11/v1/chat/completions")


def test_no_address_covers_nothing():
    assert not Governed("").covers("POST", "http://host/v1/chat/completions")


# ------------------------------------------------------------------------------------------------------------- the key


def test_the_key_comes_from_the_environment(session, monkeypatch):
    assert session.api_key() is None
    monkeypatch.setenv("TEAM_KEY", "sk-123")
    assert session.api_key() == "sk-123"
    monkeypatch.setenv("TEAM_KEY", "")
    assert session.api_key() is None


def test_a_policy_without_a_key_sends_none(make_session, monkeypatch):
    monkeypatch.setenv("TEAM_KEY", "sk-123")
    assert make_session(TEXT.replace(", api_key_env: TEAM_KEY", "")).api_key() is None


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("sk-secret\r\n", "ends in a line break"),
        ("sk-secret\n", "ends in a line break"),
        (" sk-secret", "begins or ends with a blank"),
        ("sk-secret\t", "begins or ends with a blank"),
        ("sk secret", "holds a blank"),
        ("sk-sécret", "outside of ASCII"),
        ("sk-\x00secret", "holds a blank, a line break or a character"),
    ],
)
def test_a_key_that_no_header_can_carry_is_an_error_that_says_why_and_not_what(session, monkeypatch, key, problem):
    if "\x00" in key:  # no environment can hold it
        monkeypatch.setattr("os.environ", {"TEAM_KEY": key})
    else:
        monkeypatch.setenv("TEAM_KEY", key)
    with pytest.raises(ConfigurationError, match=problem) as refused:
        session.api_key()
    assert "TEAM_KEY" in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "secret" not in repr(refused.value.__dict__)


def test_nothing_that_a_session_shows_holds_the_key(session, monkeypatch):
    monkeypatch.setenv("TEAM_KEY", "sk-123")
    assert "sk-123" not in repr(session) + repr(session.settings)


# ---------------------------------------------------------------------------------------------------- the built-in one


def test_the_built_in_endpoint_starts_when_it_is_first_asked_for_and_once(make_session, monkeypatch):
    module = importlib.import_module("fairq_ipy.demo.endpoint")
    start, started = module.start, []

    def count(**options):
        started.append(options)
        return start(**options)

    monkeypatch.setattr(module, "start", count)
    session = make_session(DEMO)
    assert not session.governs("POST", "http://127.0.0.1:9/v1/chat/completions")
    assert not started
    urls, threads = set(), [threading.Thread(target=lambda: urls.add(session.base_url())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert started == [{"concurrency": 3}]
    (url,) = urls
    assert session.governs("POST", f"{url}/chat/completions")
    with urllib.request.urlopen(f"{url}/models", timeout=SOON) as answer:  # noqa: S310 - our own, on loopback
        assert answer.status == 200
    session.close()
    with pytest.raises(OSError, match=r"refused|reset"):
        urllib.request.urlopen(f"{url}/models", timeout=SOON)  # noqa: S310 - our own, on loopback
    with pytest.raises(ConfigurationError, match=r"fairq\.load"):
        session.base_url()
