"""Who may import whom, and what an import costs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

PURE = {
    "__future__", "abc", "bisect", "collections", "collections.abc", "dataclasses", "enum", "functools", "heapq",
    "http", "itertools", "math", "operator", "types", "typing",
}  # fmt: skip
"""What the core may import of the standard library: nothing that knows a clock, a thread, chance or the outside.
`http` by itself is only the names of its status codes."""

IMPURE = {"asyncio", "concurrent", "logging", "random", "select", "selectors", "socket", "subprocess", "threading"}
"""What importing the core may not load. `time` is built into the interpreter and always there; `PURE` keeps it out."""


def test_the_rooms_import_downwards_only(root: Path):
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        cwd=root, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout, done.stdout + done.stderr


def test_the_core_imports_nothing_but_itself_and_pure_parts_of_the_standard_library(sources):
    foreign = [
        f"{source.name}:{node.lineno}: {name}"
        for source in sources
        if source.name.startswith("fairq_ipy/core/")
        for node in ast.walk(source.tree)
        for name in imported(node)
        if name not in PURE and not name.startswith("fairq_ipy.core")
    ]
    assert not foreign


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["." * node.level + (node.module or "")]
    return []


@pytest.fixture(scope="module")
def bare() -> set[str]:
    """What an interpreter has loaded before it imports anything of ours."""
    return loaded("pass")


def loaded(statement: str) -> set[str]:
    """Run `statement` in a fresh interpreter and return the modules that are loaded then."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout))


def test_importing_the_core_loads_no_clock_thread_loop_or_third_party(bare):
    new = loaded("import fairq_ipy.core.scheduler") - bare
    tops = {name.partition(".")[0] for name in new}
    assert not tops & IMPURE
    assert not {top for top in tops if top not in sys.stdlib_module_names} - {"fairq_ipy"}
    assert "fairq_ipy.errors" not in new


def test_importing_the_package_loads_neither_http_nor_notebook_nor_loop(bare):
    new = loaded("import fairq_ipy") - bare
    tops = {name.partition(".")[0] for name in new}
    assert not {top for top in tops if top not in sys.stdlib_module_names} - {"fairq_ipy"}
    assert not tops & {"asyncio", "concurrent", "http", "json", "logging", "socket", "ssl", "threading", "urllib"}


def test_catching_an_error_costs_no_more_than_the_errors(bare):
    new = loaded("from fairq_ipy import errors") - bare
    assert {name for name in new if name.startswith("fairq_ipy")} == {"fairq_ipy", "fairq_ipy.errors"}


@pytest.mark.parametrize("room", ["cli", "demo", "notebook", "policy", "runtime", "session", "testing", "transport"])
def test_every_room_can_be_imported_first(room: str):
    # A cycle between modules shows only when the wrong one comes first.
    assert f"fairq_ipy.{room}" in loaded(f"import fairq_ipy.{room}")


def test_type_checkers_find_our_types(root: Path):
    assert (root / "fairq_ipy" / "py.typed").is_file()
