"""Turns the data of a policy that passed every check into the rules of the core.

A key that is absent takes the default of the core's own dataclass, and nothing here says ``or``: 0 stays 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, get_args

from fairq_ipy.core.model import (
    Adaptive,
    Backpressure,
    Budget,
    Context,
    Level,
    Limits,
    Policy,
    Stall,
    TenantPolicy,
    Unit,
)
from fairq_ipy.policy.address import normal
from fairq_ipy.policy.settings import Endpoint
from fairq_ipy.policy.variables import filled

Data: TypeAlias = Mapping[str, Any]
Readers: TypeAlias = Mapping[str, Callable[[Any], Any]]

BUILT_IN_LEVELS = Policy().levels
"""What holds when a policy names no levels."""
UNITS: tuple[Unit, ...] = get_args(Unit)
"""What a budget may count."""

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BY_KEY = ("context", "stall")
"""Sections of a tenant that are filled in key by key from the same section of ``defaults``."""


def endpoint(data: Data, environ: Mapping[str, str]) -> Endpoint:
    """Return the endpoint of a policy's data."""
    section = data["endpoint"]
    model = section.get("model")
    name = None if model is None else filled(model, environ)
    return Endpoint(
        base_url=normal(filled(section["base_url"], environ)),
        api_key_env=section.get("api_key_env"),
        model=None if name == "" else name,  # ${NAME:-}: none, unless the environment names one
        paths=tuple(path.strip("/") for path in section.get("paths", ())),
        stream_usage=section.get("stream_usage", False),
    )


def rules(data: Data) -> Policy:
    """Return the rules of a policy's data."""
    levels = level_numbers(data)
    facts = _read(data, _TOP)
    if "levels" in data:
        named = [Level(level["level"], name, count(level.get("reserve", 0))) for name, level in data["levels"].items()]
        facts["levels"] = tuple(sorted(named, key=lambda level: level.number))
    tenants = {name: tenant(for_tenant(data, name), levels) for name in data.get("tenants", {})}
    return Policy(
        **facts,
        **_read(data.get("fairness", {}), {"prompt_weight": float, "output_weight": float}),
        defaults=tenant(data.get("defaults", {}), levels),
        tenants=MappingProxyType(tenants),
    )


def level_numbers(data: Data) -> dict[str, int]:
    """Return the number of each level that has a name, the first level first."""
    if "levels" not in data:
        return {level.name: level.number for level in BUILT_IN_LEVELS}
    numbers = {name: level["level"] for name, level in data["levels"].items()}
    return dict(sorted(numbers.items(), key=lambda item: item[1]))


def for_tenant(data: Data, name: str) -> Data:
    """Return what holds for one tenant: its own entry over ``defaults``."""
    defaults: Data = data.get("defaults", {})
    own: Data = data["tenants"][name] if data["tenants"][name] is not None else {}
    merged = {**defaults, **own}
    for key in _BY_KEY:
        both = [section[key] for section in (defaults, own) if isinstance(section.get(key), Mapping)]
        if isinstance(merged.get(key), Mapping):
            merged[key] = {name: value for section in both for name, value in section.items()}
    return merged


def tenant(data: Data, levels: Mapping[str, int]) -> TenantPolicy:
    """Return the rules of one tenant, or of all that are not named."""
    level = data.get("level", min(levels.values()))
    return TenantPolicy(**{**_read(data, _TENANT), "level": level if isinstance(level, int) else levels[level]})


def seconds(text: str) -> float:
    """Return the seconds of a duration such as ``500ms`` or ``1.5h``."""
    number = text.rstrip("mshd")
    return float(number) * _SECONDS[text[len(number) :]]


def count(value: int | str) -> int:
    """Return a count. In quotes "10_000" is one too: to most editors 10_000 is text, and the schema serves both."""
    return int(value)


def _unless(word: str, read: Callable[[Any], Any], instead: float | None = None) -> Callable[[Any], Any]:
    """Return a reader for values that may also be the word that lifts the limit or switches the rule off."""
    return lambda value: instead if value == word else read(value)


def _read(section: Data, readers: Readers) -> dict[str, Any]:
    """Return the facts that are there; what is absent is left to the dataclass that takes them."""
    return {key: read(section[key]) for key, read in readers.items() if key in section}


def limits(section: Data) -> Limits:
    """Return the limits; a concurrency with bounds is found within them."""
    facts = _read(section, _LIMITS)
    slots = section.get("concurrency")
    if isinstance(slots, Mapping):
        facts["concurrency"] = count(slots["start"])
        facts["adaptive"] = Adaptive(count(slots.get("min", Adaptive().least)), count(slots["max"]))
    elif slots is not None:
        facts["concurrency"] = count(slots)
    return Limits(**facts)


def _budget(data: Data) -> Budget:
    unit = next(unit for unit in UNITS if unit in data)
    return Budget(unit, count(data[unit]), data["per"])


def _stall(data: Data) -> Stall:
    facts = _read(data, {"min_chars": count, "threshold": count, "action": str})
    if isinstance(resume := data.get("resume"), Mapping):
        facts["resume_after"] = seconds(resume["after"])
        facts["resume_max"] = max(Stall().resume_max, facts["resume_after"])
        if "max" in resume:
            facts["resume_max"] = seconds(resume["max"])
    return Stall(**facts)


_LIMITS: Readers = {
    "queue": _unless("unlimited", count),
    "queue_per_tenant": _unless("unlimited", count),
    "max_wait": _unless("unlimited", seconds),
    "first_token": _unless("unlimited", seconds),
    "idle_stream": _unless("unlimited", seconds),
    "requests_per_minute": _unless("unlimited", count),
    "tokens_per_minute": _unless("unlimited", count),
}
_BACKPRESSURE: Readers = {"retries": count, "base": seconds, "max_hold": seconds}
_CONTEXT: Readers = {"messages": _unless("unlimited", count), "tokens": _unless("unlimited", count)}
_TENANT: Readers = {
    "weight": float,
    "concurrency": _unless("unlimited", count),
    "queue": count,
    "context": lambda section: Context(**_read(section, _CONTEXT)),
    "budgets": lambda items: tuple(_budget(item) for item in items),
    "on_exhausted": str,
    "on_paused": str,
    "stall": _unless("off", _stall),
}
_TOP: Readers = {
    "limits": limits,
    "starve_after": _unless("off", seconds),
    "headroom_for": _unless("off", seconds, instead=0.0),
    "backpressure": lambda section: Backpressure(**_read(section, _BACKPRESSURE)),
    "default_tenant": _unless("refuse", str),
    "unknown_tenants": str,
}
