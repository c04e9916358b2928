"""One right spelling of the endpoint's URL, or what is wrong with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairq_ipy.policy import address


@pytest.mark.parametrize(
    ("url", "right"),
    [
        ("demo", "demo"),
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1/", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1///", "http://localhost:8000/v1"),
        ("http://localhost", "http://localhost"),
        ("http://localhost/", "http://localhost"),
        ("HTTPS://API.Example.COM/V1", "https://api.example.com/V1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://[FE80::1]/v1", "http://[fe80::1]/v1"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://host:80/v1", "http://host/v1"),
        ("https://host:443/v1", "https://host/v1"),
        ("https://host:80/v1", "https://host:80/v1"),
        ("http://host:/v1", "http://host/v1"),
        ("https://gateway.example/team/a/openai/v1", "https://gateway.example/team/a/openai/v1"),
        ("http://bücher.example/v1", "http://bücher.example/v1"),
        ("http://my_host/v1", "http://my_host/v1"),
        ("http://host/v1/models-of-ours", "http://host/v1/models-of-ours"),
    ],
)
def test_a_good_address_has_one_right_spelling(url, right):
    assert address.problem(url) is None
    assert address.normal(url) == right
    assert address.normal(right) == right


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("localhost:8000/v1", "does not begin with http"),
        ("localhost", "does not begin with http"),
        ("//host/v1", "does not begin with http"),
        ("ftp://host/v1", "does not begin with http"),
        ("Demo", "does not begin with http"),
        ("demo/", "does not begin with http"),
        ("", "does not begin with http"),
        ("http://", "names no host"),
        ("http:///v1", "names no host"),
        ("http:host/v1", "names no host"),
        ("http://:8000/v1", "names no host"),
        ("http://host:0/v1", "names no host"),
        ("http://ho<st/v1", "names no host"),
        ("http://[::1", "cannot be read"),
        ("http://[::1]x/v1", "names no host"),
        ("http://::1:8000/v1", "cannot be read"),
        ("http://[zz]/v1", "cannot be read"),
        ("http://[v1.x]/v1", "names no host"),
        ("http://host:99999/v1", "cannot be read"),
        ("http://host:http/v1", "cannot be read"),
        ("http://me:pw@host/v1", "password"),
        ("http://me@host/v1", "password"),
        ("http://host/v1?x=1", "after ? or #"),
        ("http://host/v1#x", "after ? or #"),
        ("http://host/v1\n", "blank"),
        (" http://host/v1", "blank"),
        ("http://ho st/v1", "blank"),
        ("http://host/v1/chat/completions", "one kind of call"),
        ("http://host/v1/models/", "one kind of call"),
        ("http://host/v1/responses", "one kind of call"),
    ],
)
def test_a_bad_address_is_told_what_is_wrong_with_it(url, words):
    message, hint = address.problem(url)
    assert words in message
    assert hint


def test_the_address_of_one_call_shows_what_to_take_off():
    _, hint = address.problem("http://host/v1/chat/completions")
    assert hint.startswith("take /chat/completions off")


@given(st.text(max_size=60) | st.from_regex(r"https?://[^/]{0,20}(/.{0,10})?", fullmatch=True))
def test_any_text_is_either_bad_or_has_a_spelling_that_stays(url):
    if address.problem(url) is None:
        right = address.normal(url)
        assert address.problem(right) is None
        assert address.normal(right) == right
