"""How values, keys and places are named in findings, and what must never be repeated there."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable

from fairq_ipy.policy.tree import Listing, Node, Path, Section

LONGEST = 60
"""Characters of a foreign text that a finding repeats."""

_PLAIN = re.compile(r"[\w-]+")
_PREFIX = r"\b(?:sk|pk|rk|csk|gsk|xai|hf|ghp|gho|github_pat|glpat|nvapi|pplx|r8|tgp)[-_]"

_MAYBE_SECRET = re.compile(
    rf"{_PREFIX}\S{{4,}}|\bAIza\S{{8,}}|\bBearer\s+\S+|@"
    # a long run that mixes letters and digits, as keys without a known beginning do
    r"|(?<![\w-])(?=[A-Za-z_-]*[0-9])(?=[0-9_-]*[A-Za-z])[A-Za-z0-9_-]{24,}"
)
"""Generous, for it only decides what a finding leaves unsaid."""

SURELY_SECRET = re.compile(
    rf"{_PREFIX}(?:[\w-]{{0,40}}[-_])?(?=[A-Za-z]{{0,40}}[0-9])[A-Za-z0-9]{{16}}|\bAIza[\w-]{{30}}"
)
"""Strict, for it makes a finding: a tenant may be called ``sk-learn-docs-2024``."""

SECRET_NAME = re.compile(
    r"(?:.*[-_])?(?:api[-_]?)?(?:key|token|secret|password|passwd|pwd|authorization|bearer|credentials?)",
    re.IGNORECASE,
)
"""Keys under which people write secrets; to be matched in full."""


def cut(text: str) -> str:
    """Return `text` on one line, no longer than `LONGEST`, and without what may be a secret."""
    if _MAYBE_SECRET.search(text):
        return f"(a text of {len(text)} characters that may be a secret, not shown)"
    line = text if text.isprintable() else json.dumps(text)[1:-1]
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def shown(node: Node) -> str:
    """Return the words for a value in the middle of a sentence, as it was written."""
    if isinstance(node, Section):
        return "a section of keys"
    if isinstance(node, Listing):
        return "a list"
    if node.quoted:
        return f'the text "{cut(node.text)}"'
    return f"`{cut(node.text)}`" if node.text else "nothing"


def spelled(path: Path) -> str:
    """Return a path as ``tenants.logs.budgets[0].per``; names that are no plain words stand in quotes."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
            continue
        name = cut(step)
        name = name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)
        text += f".{name}" if text else name
    return text


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the one of `words` that looks like `word`, if one does; case counts for nothing."""
    lowered = {known.lower(): known for known in words}
    found = difflib.get_close_matches(word[:LONGEST].lower(), lowered, n=1)
    return lowered[found[0]] if found else None


def listed(words: Iterable[str]) -> str:
    """Return ``a, b or c``."""
    *head, last = words
    return f"{', '.join(head)} or {last}" if head else last
