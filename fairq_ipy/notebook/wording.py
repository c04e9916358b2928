"""Numbers, times and states in plain words: used by each thing that is shown, so that all say the same."""

from __future__ import annotations

from fairq_ipy.core.messages import Place, Snapshot, TenantSnapshot
from fairq_ipy.notebook.document import Chip, Tone

__all__ = ["count", "hold_words", "level_name", "place_words", "plural", "seconds", "state_chip"]

_TONES: dict[str, Tone] = {
    "idle": "idle",
    "running": "good",
    "waiting": "busy",
    "probing": "busy",
    "paused": "warn",
    "stalled": "warn",
    "over_budget": "bad",
}

_REASONS = {
    "slot": "for a free slot",
    "hold": "since the endpoint asked for a rest",
    "paused": "since it is paused (%fairq resume)",
    "stalled": "since its last answers carried nothing (%fairq resume)",
    "budget": "for its budget",
    "rate": "for the rate limit",
    "headroom": "so that others keep a free slot",
    "concurrency": "for an earlier call of the same tenant",
    "offer": "for its turn",
}

_MILLI, _TENTH, _TEN, _MINUTE, _HOUR, _DAY = 0.001, 0.1, 10, 60, 3600, 86_400


def seconds(value: float) -> str:
    """Return a span of time as people say it: ``40 ms``, ``0.42 s``, ``12 s``, ``3 min 5 s``, ``2 h 10 min``."""
    if value < _TENTH:
        return f"{value * 1000:.0f} ms" if value >= _MILLI else "0 s"
    if value < _TEN:
        return f"{value:.2f} s" if value < 1 else f"{value:.1f} s"
    whole = round(value)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return _two(whole, _MINUTE, "min", 1, "s")
    if whole < _DAY:
        return _two(whole, _HOUR, "h", _MINUTE, "min")
    return _two(whole, _DAY, "d", _HOUR, "h")


def _two(value: int, large: int, large_name: str, small: int, small_name: str) -> str:
    """Return whole seconds in two units, or in one where that says it all."""
    rest = value % large // small
    return f"{value // large} {large_name}" + (f" {rest} {small_name}" if rest else "")


def count(value: int) -> str:
    """Return a number with its thousands apart."""
    return f"{value:,}"


def plural(value: int, one: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def state_chip(tenant: TenantSnapshot) -> Chip:
    """Return the one word for a tenant's state."""
    return Chip(tenant.state.replace("_", " "), _TONES.get(tenant.state, "idle"))


def hold_words(snapshot: Snapshot, now: float) -> str:
    """Return why nothing is admitted, or nothing. `now` is on the core's clock."""
    if snapshot.paused:
        return "everything is paused; %fairq resume goes on"
    if snapshot.held_until is not None and snapshot.held_until > now:
        return f"the endpoint asked for a rest: {seconds(snapshot.held_until - now)} to go"
    return snapshot.why_held


def place_words(place: Place, now: float) -> str:
    """Return where a call stands and what it waits for. `now` is on the core's clock."""
    parts = [f"waits {_REASONS.get(place.why, 'for its turn')}"]
    if place.until is not None and place.until > now:
        parts.append(f"{seconds(place.until - now)} to go")
    parts.append("next in the queue" if place.ahead <= 0 else f"{plural(place.ahead, 'call')} ahead")
    return ", ".join(parts)


def level_name(number: int, names: dict[int, str]) -> str:
    """Return a level as its name and number, or as its number alone."""
    return f"{names[number]} ({number})" if number in names else str(number)
