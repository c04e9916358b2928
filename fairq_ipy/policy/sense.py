"""What the schema cannot say: how the keys of one policy fit each other, and its environment.

Each check looks only at parts of the file in which the schema found nothing wrong, so that one slip makes one finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from fairq_ipy.core.model import Policy
from fairq_ipy.policy import address, variables
from fairq_ipy.policy.build import UNITS, count, level_numbers, limits, seconds
from fairq_ipy.policy.report import Report
from fairq_ipy.policy.tree import Mark, Node, Path, entry
from fairq_ipy.policy.wording import cut, listed, nearest


@dataclass(frozen=True, slots=True)
class Document:
    """A policy after the schema has seen it.

    Attributes:
        root: as written.
        data: without what the schema refused.
        bad: the paths that it refused.
        fillable: the paths at which ``${NAME}`` is filled in.
        environ: where the values come from.
    """

    root: Node
    data: Mapping[str, Any]
    bad: frozenset[Path]
    fillable: frozenset[Path]
    environ: Mapping[str, str]

    def sound(self, *path: str | int) -> bool:
        """Return whether nothing at, above or below `path` was refused."""
        return not any(bad[: len(path)] == path[: len(bad)] for bad in self.bad)

    def line(self, *path: str | int) -> int:
        """Return the line of the key at `path`."""
        return entry(self.root, path).key.line

    def section(self, *path: str) -> Mapping[str, Any]:
        """Return the section at `path`; empty when it is absent or was refused."""
        found: Any = self.data
        for step in path:
            found = found.get(step) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}


class Remark(NamedTuple):
    """One finding of a check; `on_key` points at the key rather than at its value."""

    path: Path
    message: str
    hint: str
    on_key: bool = False


def look(document: Document, report: Report) -> None:
    """Add what the checks find to `report`."""
    for check in _CHECKS:
        for path, message, hint, on_key in check(document):
            place = entry(document.root, path)
            mark: Mark = place.key if on_key else place.node.mark
            report.add(mark, path, message, hint)


def _variables(document: Document) -> Iterator[Remark]:
    """Find ``${...}`` where it is not filled in, is broken, or names what is not set."""
    places = listed(".".join(str(step) for step in path) for path in sorted(document.fillable))
    for path, text, is_key in _texts(document.data, ()):
        if "${" not in text:
            continue
        if is_key or path not in document.fillable:
            yield Remark(path, "variables are not filled in here", f"only {places} may have them", on_key=is_key)
        elif variables.is_broken(text):
            yield Remark(path, "a ${ begins here that is no variable", "accepted: ${NAME} or ${NAME:-default}")
        else:
            for name in variables.unset(text, document.environ):
                hint = f"set it, or give a default, such as ${{{name}:-{'demo' if path[-1] == 'base_url' else 'name'}}}"
                yield Remark(path, f"the environment variable {name} is not set, or is empty", hint)


def _texts(data: object, path: Path) -> Iterator[tuple[Path, str, bool]]:
    """Yield every text with its path, and whether it is a key."""
    if isinstance(data, str):
        yield path, data, False
    elif isinstance(data, list):
        for number, item in enumerate(data):
            yield from _texts(item, (*path, number))
    elif isinstance(data, dict):
        for key, value in data.items():
            yield (*path, key), key, True
            yield from _texts(value, (*path, key))


def _base_url(document: Document) -> Iterator[Remark]:
    """Find what is wrong with the endpoint's address once the environment's values are in it."""
    written = document.section("endpoint").get("base_url")
    if written is None or variables.is_broken(written) or variables.unset(written, document.environ):
        return
    url = variables.filled(written, document.environ)
    # a password in a default counts even while the variable is set
    found = address.problem(written) if "@" in written else address.problem(url)
    if found is not None:
        where = "" if url == written else f"with {listed(variables.names(written))} filled in, "
        yield Remark(("endpoint", "base_url"), where + found[0], found[1])


def _levels(document: Document) -> Iterator[Remark]:
    """Find two levels with one number."""
    seen: dict[int, str] = {}
    for name, level in document.section("levels").items():
        number = level.get("level")
        if number in seen:
            message = (
                f"the number {number} is taken by `{seen[number]}` in line {document.line('levels', seen[number])}"
            )
            yield Remark(("levels", name, "level"), message, "give each level a number of its own")
        elif number is not None:
            seen[number] = name


def _reserves(document: Document) -> Iterator[Remark]:
    """Find reserves that leave nothing to the levels after them."""
    if not document.sound("limits") or not document.sound("levels"):
        return
    found = limits(document.section("limits"))
    # Where the concurrency moves, a reserve larger than the moment's is cut to what leaves one slot.
    slots = found.concurrency if found.adaptive is None else found.adaptive.most
    levels = document.section("levels")
    reserves = {name: count(level.get("reserve", 0)) for name, level in levels.items()}
    hint = f"limits.concurrency is {slots}; together the levels may reserve up to {slots - 1}"
    if slots == 1:
        hint = "limits.concurrency is 1, and one slot cannot be kept free: leave `reserve` out"
    large = [name for name, reserve in reserves.items() if reserve >= slots]
    for name in large:
        yield Remark(("levels", name, "reserve"), "this leaves no slot to the levels after it", hint)
    before_last = [reserves[name] for name in list(level_numbers(document.data))[:-1] if name in reserves]
    if not large and sum(before_last) >= slots:
        yield Remark(("levels",), f"{sum(before_last)} reserved slots leave none to the last level", hint, on_key=True)


def _bounds(document: Document) -> Iterator[Remark]:
    """Find a concurrency that begins outside of its own bounds."""
    written = document.section("limits").get("concurrency") if document.sound("limits") else None
    if not isinstance(written, Mapping):
        return
    found = limits({"concurrency": written})
    bounds = found.adaptive
    if bounds is not None and not bounds.least <= found.concurrency <= bounds.most:
        message = f"start is {found.concurrency}, outside of {bounds.least} to {bounds.most}"
        yield Remark(("limits", "concurrency"), message, "accepted: min <= start <= max")


def _tenants_levels(document: Document) -> Iterator[Remark]:
    """Find levels that no one declared."""
    if not document.sound("levels"):
        return
    known = level_numbers(document.data)
    for path, tenant in _tenants(document):
        level = tenant.get("level")
        if isinstance(level, str) and level not in known:
            near = nearest(level, known)
            hint = f"did you mean `{near}`?" if near else f"accepted: {listed(known)}, or a number from 0 to 9"
            yield Remark((*path, "level"), f"there is no level `{cut(level)}`", hint)


def _budgets(document: Document) -> Iterator[Remark]:
    """Find two budgets that count the same."""
    for path, tenant in _tenants(document):
        seen: dict[tuple[str, str], int] = {}
        budgets = tenant.get("budgets", ()) if document.sound(*path, "budgets") else ()
        for number, budget in enumerate(budgets):
            what = (next(unit for unit in UNITS if unit in budget), budget["per"])
            if what in seen:
                line = document.line(*path, "budgets", seen[what])
                message = f"{what[0]} per {what[1]} have a budget already, in line {line}"
                yield Remark((*path, "budgets", number), message, "keep one of them")
            seen.setdefault(what, number)


def _resumes(document: Document) -> Iterator[Remark]:
    """Find a first rest that is longer than the longest."""
    for path, _ in _tenants(document):
        resume = document.section(*path, "stall", "resume")
        if "after" in resume and "max" in resume and seconds(resume["after"]) > seconds(resume["max"]):
            message = f"the first rest, {resume['after']}, is longer than the longest, {resume['max']}"
            yield Remark((*path, "stall", "resume"), message, "make max at least as long as after")


def _default_tenant(document: Document) -> Iterator[Remark]:
    """Find that nobody may ask who does not say who asks, though no one said so."""
    if document.data.get("unknown_tenants") != "refuse" or not document.sound("tenants"):
        return
    name = document.data.get("default_tenant", Policy().default_tenant)
    known = document.section("tenants")
    if not document.sound("default_tenant") or name == "refuse" or name in known:
        return
    place = "default_tenant" if "default_tenant" in document.data else "unknown_tenants"
    near = nearest(name, known)
    hint = f"did you mean `{near}`?" if near else f"name `{cut(name)}` under tenants, or write default_tenant: refuse"
    message = f"a call that names no tenant counts as `{cut(name)}`, and unknown tenants are refused"
    yield Remark((place,), message, hint)


def _time_zone(document: Document) -> Iterator[Remark]:
    name = document.data.get("time_zone", "UTC")
    if name == "UTC":  # needs no database
        return
    try:
        ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        known = available_timezones()
        hint = f"did you mean {near}?" if (near := nearest(name, known)) else "accepted: an IANA name, as Europe/Berlin"
        if not known:
            hint = "this machine has no time zones; `pip install tzdata` brings them"
        yield Remark(("time_zone",), f"there is no time zone `{cut(name)}`", hint)


def _tenants(document: Document) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield ``defaults`` and every tenant with its path, as they are written."""
    yield ("defaults",), document.section("defaults")
    for name in document.section("tenants"):
        yield ("tenants", name), document.section("tenants", name)


_CHECKS = (
    _variables,
    _base_url,
    _levels,
    _reserves,
    _bounds,
    _tenants_levels,
    _budgets,
    _resumes,
    _default_tenant,
    _time_zone,
)
