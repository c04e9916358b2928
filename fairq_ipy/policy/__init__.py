"""READS: turns a YAML policy into the rules of the core, and says all that is wrong with one.

From text to rules: `yaml12` (text to a tree that knows its lines), `schema` (the tree against ``schema.json``),
`explain` (what is wrong in words), `sense` (how the keys fit each other and the environment), `build` (rules of the
core). `loader` puts them in a row, `discovery` says which file, `watch` says when it changed.
"""

from fairq_ipy.policy.discovery import find
from fairq_ipy.policy.loader import builtin, load, loads
from fairq_ipy.policy.settings import Endpoint, Settings
from fairq_ipy.policy.watch import Watcher

__all__ = ["Endpoint", "Settings", "Watcher", "builtin", "find", "load", "loads"]
