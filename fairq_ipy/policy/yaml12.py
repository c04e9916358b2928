"""Reads YAML 1.2 from untrusted text into a tree that knows its lines.

PyYAML scans and parses; what its events mean is decided here, because its own composer and constructor follow YAML 1.1
(``on`` is true, ``010`` is 8, ``1:30`` is 90), keep the last of two equal keys, and follow aliases without a bound.

- Values: null, booleans and decimal numbers as YAML 1.2's core schema has them, and 10_000 in groups of three for the
  eye. Forms that readers disagree about (``010``, ``0x1F``, ``1e6``, ``.5``, ``.nan``, dates, ``1:30``) stay text,
  so that they meet a finding wherever a number belongs.
- Keys are text as it was written: a tenant may be called ``no``, ``123``, ``null`` or ``2024-01-01``.
- A merge key (``<<``) fills in what its section does not say; of several sources the first wins.
- Two equal keys, tags and control characters are findings; reading goes on after them. Syntax errors, a second
  document, an alias without its anchor, and sizes beyond the bounds below end it.

Nothing here recurses, and the bounds are checked while events arrive, so that hostile text is refused in milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from yaml.error import MarkedYAMLError
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner

from fairq_ipy.policy.report import Report
from fairq_ipy.policy.tree import START, Entry, Listing, Mark, Node, Path, Scalar, Section, Value
from fairq_ipy.policy.wording import cut

LONGEST = 256 * 1024
"""Characters; a policy of a thousand tenants has some 60,000."""
MOST = 50_000
"""Nodes, with every alias written out."""
DEEPEST = 32
"""Levels of nesting, through aliases too."""

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})|[1-9][0-9]{0,2}(?:_[0-9]{3}){1,5}")
_FLOAT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,18}")

# What no YAML text may hold, and three line breaks that editors do not count as such.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
# What a value must not hold even where an escape wrote it: controls, halves of characters, signs that turn text round.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")
_LINE_BREAK = re.compile(r"\r\n|\r|\n")

_HINTS = (
    (r"'\\t'", "indent with blanks, and put blanks between words; YAML has no tabs there"),
    ("mapping values are not allowed", "is the line indented as its neighbours are? text with a colon needs quotes"),
    ("could not find expected ':'", "every line is `key: value`; is a colon, or the blank after it, missing?"),
    ("block end", "keys of one section stand in one column"),
    ("cannot start any token", "text that begins with this sign needs quotes"),
    ("flow|unexpected end|quoted", "is a bracket, a brace or a quote never closed?"),
    ("incompatible YAML|directive", "take the line that begins with % out; policies are read as YAML 1.2"),
    (".", ""),
)


def decoded(raw: bytes, report: Report) -> str:
    """Return the characters of a file, which is UTF-8 on every machine.

    Raises:
        PolicyError: when it is not.
    """
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        report.refuse(START, "the file is in UTF-16", "save it as UTF-8")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        good = raw[: error.start].decode("utf-8")
        problem = f"the byte 0x{raw[error.start]:02X} is not UTF-8"
        report.refuse(place(good, len(good)), problem, "save the file as UTF-8")


def place(text: str, index: int) -> Mark:
    """Return the line and column of the character at `index`."""
    before = _LINE_BREAK.split(text[:index])
    return Mark(len(before), len(before[-1]) + 1)


def read(text: str, report: Report) -> Node:
    """Return the one document that `text` holds; findings that do not end the reading go to `report`.

    Raises:
        PolicyError: when the text cannot be read to its end.
    """
    text = text.removeprefix("\ufeff")
    if len(text) > LONGEST:
        report.refuse(START, f"the file has {len(text)} characters", f"a policy may have {LONGEST}")
    if found := _FORBIDDEN.search(text):
        name = f"U+{ord(found[0]):04X}"
        report.refuse(place(text, found.start()), f"the invisible character {name} stands here", "take it out")
    tree = _Builder(report).build(_events(text, report))
    if tree is None:
        report.refuse(START, "the file is empty", "`fairq init` writes a policy to begin with")
    return tree


class _Parser(Reader, Scanner, Parser):
    """PyYAML up to its events, without the layers that give them YAML 1.1's meaning."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)


def _events(text: str, report: Report) -> Iterator[Event]:
    """Yield PyYAML's events; the one place where its errors become ours."""
    parser = _Parser(text)
    try:
        while parser.check_event():
            yield parser.get_event()  # type: ignore[no-untyped-call]  # the stubs leave it out
    except MarkedYAMLError as error:
        problem = str(error.problem)
        hint = next(hint for pattern, hint in _HINTS if re.search(pattern, f"{problem} {error.context}"))
        since = f", in what began in line {error.context_mark.line + 1}" if error.context_mark else ""
        report.refuse(_mark(error.problem_mark), f"this is not YAML: {problem}{since}", hint)
    except (ValueError, OverflowError):
        # "\UFFFFFFFF" and a directive with thousands of digits reach chr() and int() unchecked
        report.refuse(_mark(parser.get_mark()), "this is not YAML: a number or an escape that is too large")


class _YamlMark(Protocol):
    """The mark of either of PyYAML's parsers; both count from 0."""

    line: int
    column: int


def _mark(mark: _YamlMark | None) -> Mark:
    return START if mark is None else Mark(mark.line + 1, mark.column + 1)


def resolved(text: str) -> Value:
    """Return what YAML 1.2 makes of text without quotes, as far as readers agree about it."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


@dataclass(slots=True)
class _Key:
    """A key that waits for its value; without a name when it is unusable and the value is dropped."""

    name: str | None
    mark: Mark
    merges: bool = False


@dataclass(slots=True)
class _Open:
    """A list or section whose end has not come."""

    mark: Mark
    anchor: str | None
    is_section: bool
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    merged: list[Node] = field(default_factory=list)
    merged_at: Mark | None = None
    key: _Key | None = None
    size: int = 1
    height: int = 1

    def close(self) -> Node:
        if not self.is_section:
            return Listing(tuple(self.items), self.mark, self.size, self.height)
        filled: dict[str, Entry] = {}
        for source in reversed(self.merged):
            if isinstance(source, Section):
                filled.update(source.entries)
        return Section({**filled, **self.entries}, self.mark, self.size, self.height)


class _Builder:
    """Builds the tree from events with a stack of its own."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._stack: list[_Open] = []
        self._anchors: dict[str, Node | None] = {}  # None: it is still open
        self._total = 0
        self._root: Node | None = None

    def build(self, events: Iterator[Event]) -> Node | None:
        for event in events:
            match event:
                case DocumentStartEvent():
                    self._document(event)
                case ScalarEvent():
                    self._place(self._scalar(event))
                case AliasEvent():
                    self._place(self._alias(event))
                case SequenceStartEvent() | MappingStartEvent():
                    self._open(event)
                case _ if self._stack and not isinstance(event, NodeEvent):
                    self._close()
                case _:
                    pass  # the marks of the stream and of the document's end
        return self._root

    def _document(self, event: DocumentStartEvent) -> None:
        mark = _mark(event.start_mark)
        if self._root is not None:
            self._report.refuse(mark, "a second document begins here", "a policy is one document; take the --- out")
        if event.version is not None and event.version != (1, 2):
            wanted = ".".join(str(part) for part in event.version)
            hint = "take the line that begins with % out"
            self._report.add(mark, (), f"this asks for YAML {wanted}; policies are read as YAML 1.2", hint)

    def _scalar(self, event: ScalarEvent) -> Scalar:
        mark = _mark(event.start_mark)
        self._tag(event, mark)
        self._count(1, mark)
        text, quoted = event.value, event.style is not None
        if found := _CONTROL.search(text):
            what = "a line break" if found[0] in "\r\n" else f"the control character U+{ord(found[0]):04X}"
            self._report.add(mark, self._path(), f"{what} stands in this text", "take it out")
            text = _CONTROL.sub("\ufffd", text)
        node = Scalar(text if quoted else resolved(text), text, quoted, mark)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: AliasEvent) -> Node:
        mark = _mark(event.start_mark)
        anchor = str(event.anchor)
        name = cut(anchor)
        if anchor not in self._anchors:
            self._report.refuse(mark, f"the alias *{name} has no anchor &{name} before it")
        node = self._anchors[anchor]
        if node is None:
            self._report.refuse(mark, f"the alias *{name} stands inside of what it repeats")
        self._count(node.size, mark)
        self._deepen(node.height, mark)
        return node

    def _open(self, event: SequenceStartEvent | MappingStartEvent) -> None:
        mark = _mark(event.start_mark)
        self._tag(event, mark)
        self._count(1, mark)
        self._deepen(1, mark)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._stack.append(_Open(mark, event.anchor, isinstance(event, MappingStartEvent)))

    def _close(self) -> None:
        done = self._stack.pop()
        node = done.close()
        if done.anchor is not None:
            self._anchors[done.anchor] = node
        self._place(node)

    def _place(self, node: Node) -> None:
        """Put a finished node where it belongs: the root, the next item, a key, or the value of a key."""
        if not self._stack:
            self._root = node
            return
        top = self._stack[-1]
        top.size += node.size
        top.height = max(top.height, node.height + 1)
        if not top.is_section:
            top.items.append(node)
        elif top.key is None:
            top.key = self._named(node)
        else:
            self._value(top, top.key, node)
            top.key = None

    def _named(self, node: Node) -> _Key:
        """Return the key that `node` is."""
        if not isinstance(node, Scalar):
            self._report.add(node.mark, self._path(), "a list or a section cannot be a key", "a key is a word")
            return _Key(None, node.mark)
        if not node.text and not node.quoted:
            self._report.add(node.mark, self._path(), "a colon without a key", "write the key before the colon")
            return _Key(None, node.mark)
        return _Key(node.text, node.mark, merges=node.text == "<<" and not node.quoted)

    def _value(self, top: _Open, key: _Key, node: Node) -> None:
        if key.name is None:
            return
        earlier = top.merged_at if key.merges else top.entries[key.name].key if key.name in top.entries else None
        if earlier is not None:
            message = f"the key `{cut(key.name)}` stands twice: here and in line {earlier.line}"
            self._report.add(key.mark, self._path(), message, "keep one of them")
        elif key.merges:
            top.merged_at = key.mark
            top.merged = self._sources(node)
        else:
            top.entries[key.name] = Entry(key.mark, node)

    def _sources(self, node: Node) -> list[Node]:
        """Return the sections that a merge key names."""
        sources: list[Node] = list(node.items) if isinstance(node, Listing) else [node]
        for source in sources:
            if not isinstance(source, Section):
                hint = "write `<<: *name`, with `&name` at a section further up"
                self._report.add(source.mark, self._path(), "only sections can be merged", hint)
        return sources

    def _tag(self, event: ScalarEvent | SequenceStartEvent | MappingStartEvent, mark: Mark) -> None:
        if event.tag is not None:
            message = f"the tag `{cut(event.tag.replace('tag:yaml.org,2002:', '!!'))}` stands here"
            self._report.add(mark, self._path(), message, "a policy has no tags; quotes make a text of a number")

    def _count(self, more: int, mark: Mark) -> None:
        self._total += more
        if self._total > MOST:
            message = f"up to here there are more than {MOST} values, aliases written out"
            self._report.refuse(mark, message, "shorten it")

    def _deepen(self, more: int, mark: Mark) -> None:
        if len(self._stack) + more > DEEPEST:
            self._report.refuse(mark, f"more than {DEEPEST} levels are nested in each other here", "shorten it")

    def _path(self) -> Path:
        """Return the path of what is being read."""
        steps: list[str | int] = []
        for frame in self._stack:
            if not frame.is_section:
                steps.append(len(frame.items))
            elif frame.key is not None and frame.key.name is not None:
                steps.append(frame.key.name)
        return tuple(steps)
