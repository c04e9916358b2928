"""The policy as it was written: values that know where they stand.

JSON-like data forgets its lines and columns, and findings need them. So the reader makes this tree, the schema and the
checks across keys walk it, and only what passed all of them becomes plain data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

Value: TypeAlias = str | int | float | bool | None
Path: TypeAlias = tuple[str | int, ...]


class Mark(NamedTuple):
    """A place in the file; both count from 1."""

    line: int
    column: int


START = Mark(1, 1)


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value.

    Attributes:
        value: what YAML 1.2 makes of it.
        text: its characters, without quotes.
        quoted: whether quotes, or a block sign, make it text whatever it looks like.
        mark: where it begins.
    """

    value: Value
    text: str
    quoted: bool
    mark: Mark
    size: int = 1
    height: int = 1


@dataclass(frozen=True, slots=True)
class Listing:
    """A list.

    Attributes:
        items: its values.
        mark: where it begins.
        size: nodes in it with every alias written out, itself included.
        height: levels of nesting, itself included.
    """

    items: tuple[Node, ...]
    mark: Mark
    size: int
    height: int


class Entry(NamedTuple):
    """One key of a section: where the key stands, and its value."""

    key: Mark
    node: Node


@dataclass(frozen=True, slots=True)
class Section:
    """Keys with their values; `size` and `height` as in a `Listing`. Keys are text as it was written."""

    entries: Mapping[str, Entry]
    mark: Mark
    size: int
    height: int


Node: TypeAlias = Scalar | Listing | Section


def plain(node: Node, without: frozenset[Path] = frozenset(), path: Path = ()) -> Any:  # noqa: ANN401 - it is JSON
    """Return the data of `node`, leaving out every key whose path is in `without`.

    An item that is to be left out takes its whole list along: the others would change their numbers.
    """
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Listing):
        return [plain(item, without, (*path, number)) for number, item in enumerate(node.items)]
    return {
        key: plain(entry.node, without, (*path, key))
        for key, entry in node.entries.items()
        if not _left_out((*path, key), entry.node, without)
    }


def _left_out(path: Path, node: Node, without: frozenset[Path]) -> bool:
    """Return whether `path` is one of `without`, or is a list one of whose items is."""
    if path in without:
        return True
    return isinstance(node, Listing) and any((*path, number) in without for number in range(len(node.items)))


def entry(root: Node, path: Path) -> Entry:
    """Return where the key at the end of `path` stands, and its value; for a list's item both are the item's."""
    found = Entry(root.mark, root)
    for step in path:
        match found.node, step:
            case Section(entries=entries), str():
                found = entries[step]
            case Listing(items=items), int():
                found = Entry(items[step].mark, items[step])
            case _:
                raise KeyError(path)
    return found
