"""Holds a policy against ``schema.json``, and says where each thing stands that does not fit.

The schema is plain JSON Schema (draft 2020-12), so that editors complete and explain the file. It is evaluated here
rather than by the jsonschema package: that one imports every optional checker of formats it finds (seconds, in an
environment with JupyterLab), knows no lines, lets NaN and 4.0 pass where they must not, and says of a failed choice
only that it failed. A test holds this evaluation against that package, keyword by keyword.

Of the keywords only those in `ASSERTIONS` have a meaning here, and a test sees to it that the schema uses no others.
Three annotations are ours: ``errorMessage`` (the accepted form, which editors show as well), ``x-variables``
(``${NAME}`` is filled in), ``x-quiet`` (the value is never repeated in a finding).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias

from fairq_ipy.policy.tree import START, Listing, Mark, Node, Path, Scalar, Section, Value

Schema: TypeAlias = Mapping[str, Any]

ASSERTIONS = frozenset(
    {
        *("$ref", "type", "const", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum"),
        *("properties", "additionalProperties", "propertyNames", "required", "minProperties", "maxProperties"),
        *("items", "maxItems"),
    }
)


class Problem(NamedTuple):
    """One thing that does not fit.

    Attributes:
        path: where it is; for an unknown or a missing key the path of that key.
        mark: where a person should look.
        keyword: of the schema, the one that failed.
        schema: the schema that holds the keyword.
        node: the value; for a missing key the section that lacks it.
    """

    path: Path
    mark: Mark
    keyword: str
    schema: Schema
    node: Node


def text() -> str:
    """Return the schema as it is published."""
    return files("fairq_ipy.policy").joinpath("schema.json").read_text(encoding="utf-8")


class Checker:
    """Evaluates one schema.

    Args:
        root: the whole schema; references point into its ``$defs``.
    """

    def __init__(self, root: Schema) -> None:
        self.root = root

    @classmethod
    def of_policies(cls) -> Checker:
        """Return the checker for policy files."""
        return cls(json.loads(text()))

    def resolved(self, schema: Schema) -> Schema:
        """Return `schema` with its reference filled in; what stands beside the reference adds to it."""
        if "$ref" not in schema:
            return schema
        target = self.resolved(self.root["$defs"][schema["$ref"].removeprefix("#/$defs/")])
        return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}

    def problems(self, node: Node) -> Iterator[Problem]:
        """Yield all that does not fit, in the order of the file's sections."""
        yield from self._visit(node, self.root, (), START)

    def fits(self, scalar: Scalar, schema: Schema) -> bool:
        """Return whether a single value fits."""
        return _is_a(scalar, schema) and all(_holds(keyword, scalar, schema) for keyword in _OF_SCALARS)

    def variables(self) -> frozenset[Path]:
        """Return the paths of the values in which ``${NAME}`` is filled in."""
        return frozenset(path for path, schema in self.places() if schema.get("x-variables"))

    def places(self) -> Iterator[tuple[Path, Schema]]:
        """Yield every key that the schema names, with its schema; below names that are free there is a ``*``."""
        yield from self._places(self.root, ())

    def _places(self, schema: Schema, path: Path) -> Iterator[tuple[Path, Schema]]:
        below: list[tuple[Path, Schema]] = [((*path, key), part) for key, part in schema.get("properties", {}).items()]
        below += [
            ((*path, "*"), schema[keyword])
            for keyword in ("items", "additionalProperties")
            if isinstance(schema.get(keyword), Mapping)
        ]
        for place, part in below:
            full = self.resolved(part)
            yield place, full
            yield from self._places(full, place)

    def _visit(self, node: Node, schema: Schema, path: Path, mark: Mark) -> Iterator[Problem]:
        schema = self.resolved(schema)
        if not _is_a(node, schema):
            yield Problem(path, node.mark, "type", schema, node)
            return
        if isinstance(node, Scalar):
            if failed := [keyword for keyword in _OF_SCALARS if not _holds(keyword, node, schema)]:
                yield Problem(path, node.mark, failed[0], schema, node)
        elif isinstance(node, Listing):
            if len(node.items) > schema["maxItems"]:
                yield Problem(path, node.mark, "maxItems", schema, node)
            for number, item in enumerate(node.items):
                yield from self._visit(item, schema["items"], (*path, number), item.mark)
        else:
            yield from self._keys(node, schema, path, mark)
            yield from self._values(node, schema, path)

    def _keys(self, node: Section, schema: Schema, path: Path, mark: Mark) -> Iterator[Problem]:
        """Yield what is wrong with a section's set of keys."""
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        unknown = [key for key in node.entries if key not in known and others is False]
        missing = [key for key in schema.get("required", ()) if key not in node.entries]
        names = schema.get("propertyNames", {})
        for key in unknown:
            yield Problem((*path, key), node.entries[key].key, "additionalProperties", schema, node.entries[key].node)
        for key in missing:
            yield Problem((*path, key), mark, "required", schema, node)
        for key, (at, _) in node.entries.items():
            if not _holds("pattern", Scalar(key, key, quoted=True, mark=at), names):
                yield Problem((*path, key), at, "propertyNames", names, node)
        size = len(node.entries)
        # a section that lacks a key, or has a wrong one, has the wrong number of keys as a consequence
        if not unknown and not missing:
            for keyword, good in (
                ("minProperties", size >= schema.get("minProperties", size)),
                ("maxProperties", size <= schema.get("maxProperties", size)),
            ):
                if not good:
                    yield Problem(path, node.mark, keyword, schema, node)

    def _values(self, node: Section, schema: Schema, path: Path) -> Iterator[Problem]:
        """Yield what is wrong with a section's values."""
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        for key, (at, value) in node.entries.items():
            if key in known:
                yield from self._visit(value, known[key], (*path, key), at)
            elif isinstance(others, Mapping):
                yield from self._visit(value, others, (*path, key), at)


# A boolean is no number, and 4.0 is no integer.
_TYPES: Mapping[type, tuple[str, ...]] = {
    Section: ("object",),
    Listing: ("array",),
    type(None): ("null",),
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
}

_ON_TEXT: Mapping[str, Callable[[str, Any], bool]] = {
    "pattern": lambda value, pattern: re.search(pattern, value) is not None,
    "minLength": lambda value, least: len(value) >= least,
    "maxLength": lambda value, most: len(value) <= most,
}
_ON_NUMBERS: Mapping[str, Callable[[float, Any], bool]] = {
    "minimum": lambda value, least: value >= least,
    "maximum": lambda value, most: value <= most,
}
_ON_ANY: Mapping[str, Callable[[Value, Any], bool]] = {
    "const": lambda value, only: type(value) is type(only) and value == only,
    "enum": lambda value, words: any(type(value) is type(word) and value == word for word in words),
}
_OF_SCALARS = (*_ON_ANY, *_ON_TEXT, *_ON_NUMBERS)


def _is_a(node: Node, schema: Schema) -> bool:
    allowed = schema["type"]
    names = _TYPES[type(node.value if isinstance(node, Scalar) else node)]
    return any(name in ([allowed] if isinstance(allowed, str) else allowed) for name in names)


def _holds(keyword: str, scalar: Scalar, schema: Schema) -> bool:
    """Return whether one keyword is content; each looks only at values of its own type."""
    if keyword not in schema:
        return True
    value, bound = scalar.value, schema[keyword]
    if keyword in _ON_ANY:
        return _ON_ANY[keyword](value, bound)
    if keyword in _ON_TEXT:
        return not isinstance(value, str) or _ON_TEXT[keyword](value, bound)
    return not isinstance(value, int | float) or isinstance(value, bool) or _ON_NUMBERS[keyword](value, bound)
