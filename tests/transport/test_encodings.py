"""Decoders for what a client may have asked for, with and without the packages that it takes."""

from __future__ import annotations

import gzip
import sys
import tracemalloc
from types import ModuleType
from typing import Any

import pytest

from fairq_ipy.transport import encodings


class BadFormatError(Exception):
    """What a fake package raises."""


class Shout:
    """A decompressor that turns small letters into large ones, and stumbles over digits."""

    def decompress(self, data: bytes) -> bytes:
        if data.isdigit():
            raise BadFormatError
        return data.upper()


class Process:
    """The same in the words of the package `brotli`."""

    def process(self, data: bytes) -> bytes:
        return Shout().decompress(data)


class Nested:
    """The same in the words of the package `zstandard`."""

    def decompressobj(self) -> Shout:
        return Shout()


def module(name: str, **names: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(names)
    return made


@pytest.mark.parametrize(
    ("coding", "package"),
    [
        ("br", module("brotli", Decompressor=Process, error=BadFormatError)),
        ("br", module("brotlicffi", Decompressor=Shout, error=BadFormatError)),
        ("zstd", module("zstandard", ZstdDecompressor=Nested, ZstdError=BadFormatError)),
        ("zstd", module("backports.zstd", ZstdDecompressor=Shout, ZstdError=BadFormatError)),
    ],
)
def test_a_package_that_is_there_is_used(monkeypatch: pytest.MonkeyPatch, coding: str, package: ModuleType):
    for name in ("brotli", "brotlicffi", "zstandard", "backports", "backports.zstd", "compression"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package.__name__.partition(".")[0], module("parent"))
    monkeypatch.setitem(sys.modules, package.__name__, package)
    decoder = encodings.decoder(f" {coding.upper()} ")
    assert decoder is not None
    assert decoder.feed(b"abc") == b"ABC"
    assert decoder.feed(b"123") == b""
    assert decoder.lost


@pytest.mark.parametrize("coding", ["br", "zstd", "what-ever"])
def test_what_is_not_there_is_none(monkeypatch: pytest.MonkeyPatch, coding: str):
    for name in ("brotli", "brotlicffi", "zstandard", "backports", "compression"):
        monkeypatch.setitem(sys.modules, name, None)
    assert encodings.decoder(coding) is None


def test_what_unpacks_to_more_than_the_bound_is_lost(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(encodings, "MAX_INFLATED", 3)
    package = module("brotli", Decompressor=Process, error=BadFormatError)
    monkeypatch.setitem(sys.modules, "brotli", package)
    decoder = encodings.decoder("br")
    assert decoder is not None
    assert decoder.feed(b"abc") == b"ABC"
    assert decoder.feed(b"d") == b""
    assert decoder.lost


def test_what_follows_the_end_of_a_document_is_not_gathered():
    decoder = encodings.decoder("gzip")
    assert decoder is not None
    assert decoder.feed(gzip.compress(b"{}")) == b"{}"
    tracemalloc.start()
    try:
        assert [decoder.feed(b"x" * 65536) for _ in range(50)] == [b""] * 50
        assert tracemalloc.get_traced_memory()[0] < 1_000_000, "zlib keeps what it does not use"
    finally:
        tracemalloc.stop()
