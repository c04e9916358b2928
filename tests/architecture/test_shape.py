"""What each file may be: short, named for what it holds, without state of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

LONGEST_FILE = 400
LONGEST_FUNCTION = 60
"""A screen."""

NAMELESS = {"base", "common", "helpers", "helper", "lib", "manager", "misc", "util", "utils"}

EMPTY_CONTAINERS = {"bytearray", "Counter", "defaultdict", "deque", "dict", "list", "OrderedDict", "set", "count"}
SYNCHRONISERS = {"Barrier", "Condition", "Event", "Lock", "Queue", "RLock", "Semaphore", "SimpleQueue", "Thread"}
MUTATORS = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove",
    "setdefault", "update",
}  # fmt: skip

HOLDS_THE_SESSION = "fairq_ipy/session"
"""The composition root: the one session of a kernel has to hang somewhere, and hangs here."""


def test_every_file_is_short(sources):
    long = {source.name: lines for source in sources if (lines := source.text.count("\n")) >= LONGEST_FILE}
    assert not long


def test_every_function_fits_a_screen(sources):
    long = {
        f"{source.name}:{node.lineno} {node.name}": lines
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - body_starts(node)) > LONGEST_FUNCTION
    }
    assert not long


def body_starts(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The line on which a function's code starts: its parameters and its docstring are no code."""
    documented = ast.get_docstring(node) is not None
    first = node.body[0]
    return (first.end_lineno or 0) + 1 if documented else first.lineno


def test_every_module_is_named_for_what_it_holds(sources):
    nameless = [source.name for source in sources if NAMELESS & set(source.path.stem.split("_"))]
    assert not nameless


def test_every_module_says_what_it_is_for(sources):
    silent = [source.name for source in sources if not ast.get_docstring(source.tree)]
    assert not silent


def test_exceptions_are_defined_in_one_place(sources):
    elsewhere = [
        f"{source.name}: {node.name}"
        for source in sources
        if source.name != "fairq_ipy/errors.py"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
        and any(re.search(r"(Error|Exception|Refused|Warning|Exit)$", ast.unparse(base)) for base in node.bases)
    ]
    assert not elsewhere


def test_every_exemption_says_why(sources):
    # ruff and mypy hold that each names its code; that a reason follows is held here.
    bare = [
        f"{source.name}:{number}"
        for source in sources
        for number, line in enumerate(source.text.splitlines(), 1)
        if (found := re.search(r"# (?:noqa: [A-Z0-9, ]+|type: ignore\[[\w, -]+\]|pragma: no \w+)(.*)", line))
        and len(found[1].strip(" -#")) < len("HTTP")
    ]
    assert not bare


# --------------------------------------------------------------------------------------------------------------- state


def test_no_module_keeps_state(sources):
    found = [
        f"{source.name}:{line}: {what}"
        for source in sources
        if not source.name.startswith(HOLDS_THE_SESSION)
        for line, what in state_of(source.tree)
    ]
    assert not found


def test_state_is_recognised():
    kinds = {
        "seen = []": "holds an empty container",
        "import threading\nlock = threading.Lock()": "holds a synchroniser",
        "names = {'a': 1}\ndef f():\n    names['b'] = 2": "changes names",
        "names = {'a': 1}\ndef f():\n    names.update(b=2)": "changes names",
        "x = 1\ndef f():\n    global x\n    x = 2": "global x",
    }
    for code, what in kinds.items():
        assert [what for _, what in state_of(ast.parse(code))] == [what], code
    innocent = "NAMES = {'a': 1}\ndef f(NAMES):\n    other = []\n    other.append(NAMES['a'])\n    return other"
    assert not list(state_of(ast.parse(innocent)))


def state_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and kind of what a module keeps between calls."""
    names: set[str] = set()
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names.update(target.id for target in targets if isinstance(target, ast.Name) and target.id != "__all__")
        value = node.value
        if isinstance(value, ast.List | ast.Dict | ast.Set) and not getattr(value, "elts", getattr(value, "keys", ())):
            yield node.lineno, "holds an empty container"
        elif isinstance(value, ast.Call):
            called = ast.unparse(value.func).rpartition(".")[2]
            if called in EMPTY_CONTAINERS and not value.args:
                yield node.lineno, "holds an empty container"
            elif called in SYNCHRONISERS:
                yield node.lineno, "holds a synchroniser"
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield node.lineno, f"global {', '.join(node.names)}"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from changes(node, names - own_names(node))


def changes(function: ast.AST, names: set[str]) -> Iterator[tuple[int, str]]:
    """Yield where a function changes what one of the module's `names` holds."""
    for node in ast.walk(function):
        changed = None
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            changed = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            changed = node.func.value
        if isinstance(changed, ast.Name) and changed.id in names:
            yield node.lineno, f"changes {changed.id}"


def own_names(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    """The names that are local to a function."""
    arguments = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    stored = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return arguments | stored
