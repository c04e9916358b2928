"""How much a tenant may use per window: reserve at admission, settle on the receipt, refund what was not used.

A budget that is checked before a call and charged after it lets every parallel call through. Here what a call may use
at the most is set aside before it goes, so that parallel calls cannot slip past the last free unit, and the rest comes
back when the call has ended. A call that reached the endpoint uses its request and its messages, also when it failed
there; one that was refused there, or never sent, uses nothing.

The core has no calendar: whoever has one says when a window turned (`WindowTurned`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from fairq_ipy.core.messages import BudgetState
from fairq_ipy.core.model import Budget, Context, Receipt, Ticket

Verdict: TypeAlias = Literal["fits", "later", "exhausted", "never"]

_HARDNESS: Final[Mapping[Verdict, int]] = MappingProxyType({"fits": 0, "later": 1, "exhausted": 2, "never": 3})


class Meter:
    """One budget of one tenant. `reserved` is what running calls may still use."""

    __slots__ = ("budget", "reserved", "resets_at", "used")

    def __init__(self, budget: Budget, resets_at: float | None = None) -> None:
        self.budget = budget
        self.used = 0
        self.reserved = 0
        self.resets_at = resets_at

    def need(self, ticket: Ticket, tokens: int) -> int:
        """Return how much of this budget `ticket` sets aside."""
        match self.budget.unit:
            case "requests":
                return 1
            case "messages":
                return ticket.messages
            case _:
                return tokens

    def verdict(self, need: int) -> Verdict:
        """Say whether `need` fits now, may fit when running calls have settled, not in this window, or in no window."""
        limit = self.budget.limit
        if self.used + need <= limit and self.used < limit:
            return "fits" if self.used + self.reserved + need <= limit else "later"
        return "never" if need > limit or limit == 0 or self.budget.per == "session" else "exhausted"

    def state(self) -> BudgetState:
        """Return the picture of it."""
        budget = self.budget
        return BudgetState(budget.unit, budget.per, budget.limit, self.used, self.reserved, self.resets_at)

    def facts(self) -> dict[str, Any]:
        """Return what the error says when it is exhausted."""
        budget = self.budget
        return {
            "budget": f"{budget.unit} per {budget.per}",
            "limit": budget.limit,
            "used": self.used,
            "resets_at": self.resets_at,
        }


def meters(budgets: tuple[Budget, ...], before: tuple[Meter, ...], ends: Mapping[str, float]) -> tuple[Meter, ...]:
    """Return meters for `budgets`; what was used under the policy before stays used. Nothing is reserved yet."""
    used = {(meter.budget.unit, meter.budget.per): meter.used for meter in before}
    found = tuple(Meter(budget, ends.get(budget.per)) for budget in budgets)
    for meter in found:
        meter.used = used.get((meter.budget.unit, meter.budget.per), 0)
    return found


def tightest(all_meters: tuple[Meter, ...], ticket: Ticket, tokens: int) -> tuple[Verdict, Meter | None]:
    """Return the hardest verdict over all budgets, and the first one that gave it; ``None`` when it fits all."""
    hardest: Verdict = "fits"
    found: Meter | None = None
    for meter in all_meters:
        verdict = meter.verdict(meter.need(ticket, tokens))
        if verdict != "fits" and _HARDNESS[verdict] > _HARDNESS[hardest]:
            hardest, found = verdict, meter
    return hardest, found


def reserve(all_meters: tuple[Meter, ...], ticket: Ticket, tokens: int) -> None:
    """Set aside what `ticket` may use."""
    for meter in all_meters:
        meter.reserved += meter.need(ticket, tokens)


def settle(all_meters: tuple[Meter, ...], ticket: Ticket, tokens: int, receipt: Receipt | None) -> None:
    """Give back the reservation of `tokens`, and use what `receipt` says; ``None`` or ``unsent`` uses nothing."""
    sent = receipt is not None and receipt.outcome != "unsent"
    for meter in all_meters:
        need = meter.need(ticket, tokens)
        meter.reserved = max(0, meter.reserved - need)
        if sent and receipt is not None:
            tokens_used = receipt.prompt_tokens + receipt.output_tokens
            meter.used += tokens_used if meter.budget.unit == "tokens" else need


def too_large(context: Context, ticket: Ticket) -> dict[str, Any] | None:
    """Return what the error says when one request carries too much, or ``None``."""
    if context.messages is not None and ticket.messages > context.messages:
        return {"unit": "messages", "size": ticket.messages, "limit": context.messages}
    if context.tokens is not None and ticket.prompt_tokens > context.tokens:
        return {"unit": "tokens", "size": ticket.prompt_tokens, "limit": context.tokens}
    return None
