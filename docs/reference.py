"""Write docs/policy.md, the reference of a policy's keys, from the schema that also checks them.

python docs/reference.py            write it
python docs/reference.py --check    say whether it is up to date
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "fairq_ipy" / "policy" / "schema.json"
REFERENCE = ROOT / "docs" / "policy.md"

Part = dict[str, Any]

HEAD = """\
# The policy, key by key

Generated from [`fairq_ipy/policy/schema.json`](../fairq_ipy/policy/schema.json), which also checks policies and lets
editors complete and explain them. The files in [`policies/`](../policies) show whole ones, commented.

- A time has a unit: `500ms`, `30s`, `5m`, `2h`, `1d`. A number may be written `10_000`.
- `0` means none at all; a key that is left out takes its default.
- A policy is looked for at the path that `load` is given, then in `FAIRQ_POLICY`, then as `policies/team.yaml` or
  `fairq.yaml` in the notebook's folder and those above it. Without one, the defaults below hold for the demo endpoint.
"""


class Row(NamedTuple):
    """One key."""

    path: str
    part: Part
    required: bool


def resolved(part: Part, schema: Part) -> Part:
    """Return `part` with what it refers to; its own words go first."""
    target: Part = schema
    for step in part.get("$ref", "#").removeprefix("#").strip("/").split("/"):
        target = target[step] if step else target
    return (target | part) if "$ref" in part else part


def rows(part: Part, schema: Part, path: str) -> Iterator[Row]:
    """Yield the keys below `part`, depth first, as a reader meets them."""
    required = part.get("required", ())
    for name, below in part.get("properties", {}).items():
        child = resolved(below, schema)
        yield Row(f"{path}{name}", child, name in required)
        yield from rows(child, schema, f"{path}{name}.")
    for kind in part.get("anyOf", ()):
        yield from rows(resolved(kind, schema), schema, path)
    if isinstance(named := part.get("additionalProperties"), dict):
        yield from rows(resolved(named, schema), schema, f"{path}NAME.")
    if isinstance(items := part.get("items"), dict):
        yield from rows(resolved(items, schema), schema, f"{path[:-1]}[].")


def shown(value: object) -> str:
    """Return a value as it stands in a policy, in one line."""
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return "`" + text.replace('"', "").replace("|", r"\|") + "`"


def table(found: list[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| key | what it says | default | such as |", "| --- | --- | --- | --- |"]
    for path, part, required in found:
        default = "*required*" if required else shown(part["default"]) if "default" in part else ""
        examples = ", ".join(shown(example) for example in part.get("examples", ())[:2])
        words = part.get("description", part.get("errorMessage", "")).replace("|", r"\|")
        lines.append(f"| `{path}` | {words} | {default} | {examples} |")
    return "\n".join(lines)


def reference() -> str:
    """Return the whole page."""
    schema: Part = json.loads(SCHEMA.read_text(encoding="utf-8"))
    plain: list[Row] = []
    sections: list[str] = []
    for name, below in schema["properties"].items():
        part = resolved(below, schema)
        inner = list(rows(part, schema, f"{name}."))
        # A tenant's entry takes the keys of `defaults`: the page says so instead of listing them twice.
        if not inner or name == "tenants":
            plain.append(Row(name, part, name in schema["required"]))
        else:
            sections.append(f"## {name}\n\n{part['description']}\n\n{table(inner)}\n")
    return "\n".join([HEAD, f"## At the top of the file\n\n{table(plain)}\n", *sections])


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description="Write docs/policy.md from the schema.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the page is out of date")
    page = reference()
    if not parser.parse_args().check:
        REFERENCE.write_text(page, encoding="utf-8")
        return 0
    if REFERENCE.is_file() and REFERENCE.read_text(encoding="utf-8") == page:
        return 0
    sys.stderr.write("docs/policy.md does not say what the schema says: `make docs` writes it anew\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
