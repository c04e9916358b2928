"""The public API as its users write it. Type-checked, never run."""

from fairq_ipy import errors


def what_a_refusal_says(refusal: errors.Refused) -> tuple[str, float | None]:
    return refusal.reason, refusal.retry_after
