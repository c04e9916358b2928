"""Watching a compressed body: bounded, incremental decoders for what a client may have asked for.

gzip and deflate come with Python. Brotli and zstd are there exactly when the packages are installed that httpx itself
uses for them; without, the client does not offer them, and an answer that is sent so all the same is metered by size.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NamedTuple

__all__ = ["MAX_INFLATED", "Decoder", "decoder"]

MAX_INFLATED: Final = 64 * 2**20
"""Bytes that one answer may unpack to while it is watched; beyond, it is metered by size."""

_STEP: Final = 2**20


class _Codec(NamedTuple):
    inflate: Callable[[bytes], bytes]
    error: type[Exception]


class Decoder:
    """One body's decoder: `feed` it the bytes as they come.

    Attributes:
        lost: whether it gave up, because the bytes are not what they were said to be or unpack to too much.
    """

    __slots__ = ("_codec", "_left", "lost")

    def __init__(self, codec: _Codec) -> None:
        self._codec = codec
        self._left = MAX_INFLATED
        self.lost = False

    def feed(self, data: bytes) -> bytes:
        """Return what `data` unpacks to; nothing any more once the decoder is lost."""
        if self.lost:
            return b""
        try:
            text = self._codec.inflate(data)
        except self._codec.error:
            self.lost = True
            return b""
        self._left -= len(text)
        if self._left < 0:
            self.lost = True
            return b""
        return text


def decoder(encoding: str) -> Decoder | None:
    """Return a new decoder for the name of one content coding; ``None`` when there is none for it here."""
    make = _CODECS.get(encoding.strip().lower())
    codec = make() if make is not None else None
    return None if codec is None else Decoder(codec)


def _zlib(wbits: int) -> _Codec:
    state = zlib.decompressobj(wbits)

    def inflate(data: bytes) -> bytes:
        if state.eof:  # what follows the end is not part of the document, and zlib would gather it
            return b""
        parts = [state.decompress(data, _STEP)]
        size = len(parts[0])
        while state.unconsumed_tail and size <= MAX_INFLATED:
            parts.append(state.decompress(state.unconsumed_tail, _STEP))
            size += len(parts[-1])
        return b"".join(parts)

    return _Codec(inflate, zlib.error)


def _deflate() -> _Codec:
    """Return a codec for what servers call deflate: with the zlib header, as the RFC says, or without."""
    codec: _Codec | None = None

    def inflate(data: bytes) -> bytes:
        nonlocal codec
        if codec is None and data:
            bare = data[0] & 0x0F != 8  # noqa: PLR2004 - the method number of RFC 1950, section 2.2
            codec = _zlib(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS)
        return codec.inflate(data) if codec is not None else b""

    return _Codec(inflate, zlib.error)


def _brotli() -> _Codec | None:
    module = _first("brotli", "brotlicffi")
    if module is None:
        return None
    state: Any = module.Decompressor()
    return _Codec(getattr(state, "decompress", None) or state.process, module.error)


def _zstd() -> _Codec | None:
    module = _first("compression.zstd", "backports.zstd", "zstandard")
    if module is None:
        return None
    state: Any = module.ZstdDecompressor()
    if hasattr(state, "decompressobj"):
        state = state.decompressobj()
    return _Codec(state.decompress, module.ZstdError)


def _first(*names: str) -> ModuleType | None:
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


_CODECS: Final[dict[str, Callable[[], _Codec | None]]] = {
    "gzip": lambda: _zlib(zlib.MAX_WBITS | 16),
    "x-gzip": lambda: _zlib(zlib.MAX_WBITS | 16),
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
