"""Server-sent events, read as they come.

The parser only watches: whoever hands bytes on hands on the same bytes. It follows the WHATWG standard (section
9.2.6, "Interpreting an event stream"), in which a line ends at LF, CR or CRLF and at nothing else. ``str.splitlines``
would also cut at U+2028, U+0085, VT and FF, that is in the middle of a JSON string.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MAX_EVENT", "Event", "Parser"]

MAX_EVENT = 8 * 2**20
"""Bytes of one event that are kept; what goes on for longer is no event but a defect, and is passed over."""

_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event: its `name` (empty when the stream gives none) and its `data`, lines joined by LF."""

    name: str
    data: str


class Parser:
    """Turn bytes, split anywhere, into events.

    A blank line ends an event. A CR ends its line at once, without waiting to see whether an LF follows.
    """

    __slots__ = ("_data", "_head", "_line", "_name", "_pending", "_size", "_skip_lf")

    def __init__(self) -> None:
        self._head = True
        self._skip_lf = False
        self._line: list[bytes] = []  # pieces of the line that has no end yet,
        self._pending = 0  # ... and how long they are
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that `chunk` completes."""
        if self._skip_lf and chunk:
            self._skip_lf = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        if b"\r" in chunk:
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        last = lines.pop()
        events: list[Event] = []
        if lines and self._line:
            lines[0] = self._completed(lines[0])
        for line in lines:
            self._read(line, events)
        if last:
            self._pending += len(last)
            if self._pending <= MAX_EVENT:
                self._line.append(last)
        return events

    def finish(self) -> list[Event]:
        """Return the event that the stream broke off in, if it carries data.

        The standard drops it. Whoever only wants to know what the server meant to say may read it all the same.
        """
        events: list[Event] = []
        if self._line:
            self._read(self._completed(b""), events)
        self._read(b"", events)
        return events

    def _completed(self, end: bytes) -> bytes:
        line = b"".join([*self._line, end])
        if self._pending > MAX_EVENT:
            self._size = self._pending
        self._line.clear()
        self._pending = 0
        return line

    def _read(self, line: bytes, events: list[Event]) -> None:
        if self._head:
            self._head = False
            line = line.removeprefix(_BOM)
        if line.startswith(b"data:"):
            self._add(line[6:] if line[5:6] == b" " else line[5:])
        elif not line:
            if self._data and self._size <= MAX_EVENT:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                events.append(Event(self._name.decode("utf-8", "replace"), data.decode("utf-8", "replace")))
            self._data.clear()
            self._name = b""
            self._size = 0
        elif line == b"data":
            self._add(b"")
        elif line.startswith(b"event:"):
            self._name = line[7:] if line[6:7] == b" " else line[6:]
        elif line == b"event":
            self._name = b""
        # comments, and fields that only matter to a client that reconnects, say nothing here

    def _add(self, value: bytes) -> None:
        self._size += len(value)
        if self._size <= MAX_EVENT:
            self._data.append(value)
