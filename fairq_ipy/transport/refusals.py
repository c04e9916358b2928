"""What an endpoint means by a refusal, and how this queue says its own.

One place decides which answers mean "later" (the call goes back to the queue) and which mean "no" (the caller gets them
as they are), how long "later" is, and what of a provider's error a person can read.
"""

from __future__ import annotations

import calendar
import email.utils
import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from fairq_ipy.errors import FairqError, StreamReclaimedError

__all__ = [
    "RawHeaders",
    "Synthetic",
    "busy",
    "busy_inside",
    "header",
    "provider_text",
    "refuses",
    "retry_after",
    "synthetic",
]

RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]
Synthetic: TypeAlias = tuple[int, list[tuple[bytes, bytes]], bytes]

READABLE: Final = 600
"""Characters of a provider's text that are shown."""

_TOO_MANY, _UNAVAILABLE, _OVERLOADED = 429, 503, 529  # 529 is how Anthropic says that it is overloaded
_BUSY_STATUS: Final = frozenset({_TOO_MANY, _UNAVAILABLE, _OVERLOADED})

# Words of a code or type that no wait will mend: the account is empty or closed.
_PERMANENT: Final = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "account_deactivated",
        "access_terminated",
        "insufficient_balance",
        "credit_balance_too_low",
    }
)
_BUSY_CODES: Final = frozenset(
    {
        "rate_limit_exceeded",
        "rate_limit_error",
        "too_many_requests",
        "overloaded_error",
        "server_overloaded",
        "overloaded",
    }
)
_VAGUE: Final = frozenset({"error", "server_error", "internal_error", "internal_server_error", "500", "502"})
# What a 503 says when it is a matter of load and not of repair; nginx's limits say "temporarily".
_BUSY_TEXT: Final = re.compile(
    r"busy|overload|capacity|too many|pending|queue|rate.?limit|throttl|temporar|try again|retry|loading|warming",
    re.IGNORECASE,
)

_SECONDS: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)s?")
_MARKUP: Final = re.compile(r"<(script|style|head)\b.*?</\1\s*>|<!--.*?-->|<[^<>]*>", re.IGNORECASE | re.DOTALL)
_TITLE: Final = re.compile(r"<title\b[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)


def header(headers: RawHeaders, name: bytes) -> list[str]:
    """Return all values of a header, in order; `name` in lower case."""
    return [value.decode("latin-1") for key, value in headers if key.lower() == name]


# ------------------------------------------------------------------------------------------------ the endpoint's word


def refuses(status: int) -> bool:
    """Return whether a status is one by which endpoints refuse what they do not want now."""
    return status in _BUSY_STATUS


def busy(status: int, headers: RawHeaders, body: bytes) -> bool:
    """Return whether an answer means "later": 429 and its like, unless it says that no wait will help."""
    if status not in _BUSY_STATUS:
        return False
    error = _error_of(body)
    if _words(error) & _PERMANENT:
        return False
    if status != _UNAVAILABLE:
        return True
    if not body.strip() or retry_after(headers, 0.0) is not None:
        return True
    return _BUSY_TEXT.search(body[:4096].decode("utf-8", "replace")) is not None


def busy_inside(error: object) -> bool:
    """Return whether an error inside an answer of status 200 means "later"."""
    words = _words(error)
    if words & _PERMANENT:
        return False
    if words & _BUSY_CODES or words & {str(status) for status in _BUSY_STATUS}:
        return True
    # an error of no kind, or of the server's own, is judged by its text
    return words <= _VAGUE and _BUSY_TEXT.search(_message(error)) is not None


def retry_after(headers: RawHeaders, now: float) -> float | None:
    """Return for how many seconds the endpoint wants to be left alone; ``None`` when it names no time that makes sense.

    Read are ``retry-after-ms``, ``retry-after`` (RFC 9110, section 10.2.3: seconds or a date; fractions and dates
    without a zone, taken as UTC, are common) and what LiteLLM's proxy passes on as ``llm_provider-retry-after``. Of
    several values the longest holds.

    Args:
        headers: of the answer.
        now: seconds since the epoch, to which a date is compared.
    """
    waits = [wait / 1000 for value in header(headers, b"retry-after-ms") for wait in _seconds(value)]
    for name in (b"retry-after", b"llm_provider-retry-after"):
        if waits:
            break
        for value in header(headers, name):
            waits.extend(_seconds(value) or _until(value, now))
    return max(waits, default=None)


def _seconds(value: str) -> list[float]:
    found = []
    for part in value.split(","):
        match = _SECONDS.fullmatch(part.strip())
        if match is not None and math.isfinite(wait := float(match[1])):
            found.append(wait)
    return found


def _until(value: str, now: float) -> Iterable[float]:
    try:
        date = email.utils.parsedate_tz(value)
        moment = None if date is None else calendar.timegm((*date[:6], 0, 1, 0)) - (date[9] or 0)
    except (ValueError, OverflowError, TypeError, IndexError):
        return ()
    return () if moment is None or moment <= now else (moment - now,)


def _error_of(body: bytes) -> object:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(content, list) and content:  # Google wraps its error in a list
        content = content[0]
    if isinstance(content, dict):
        return content.get("error") or content
    return content


def _words(error: object) -> set[str]:
    """Return the codes and types of an error, in lower case."""
    if isinstance(error, dict):
        nested = error.get("error")
        found = {str(error[key]).lower() for key in ("code", "type", "status") if error.get(key) is not None}
        return found | _words(nested) if isinstance(nested, dict) else found
    return {error.lower()} if isinstance(error, str) else set()


def provider_text(body: bytes, content_type: str = "", limit: int = READABLE) -> str:
    """Return what of a provider's answer a person can read, as plain text of at most `limit` characters."""
    error = _error_of(body)
    text = _message(error)
    if not text:
        text = body[: 64 * limit].decode("utf-8", "replace")
        if "html" in content_type or text.lstrip()[:1] == "<":
            title = _TITLE.search(text)
            text = _MARKUP.sub(" ", text)
            text = html.unescape(text if text.strip() or title is None else title[1])
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def error_text(error: object, limit: int = READABLE) -> str:
    """Return what of an error inside an answer a person can read."""
    return provider_text(json.dumps(error).encode(), "application/json", limit)


def _message(error: object) -> str:
    if isinstance(error, dict):
        for key in ("message", "detail", "error", "msg", "title"):
            found = _message(error.get(key))
            if found:
                return found
        return ""
    if isinstance(error, list):
        return "; ".join(filter(None, (_message(item) for item in error[:5])))
    return error if isinstance(error, str) else ""


# ------------------------------------------------------------------------------------------------------ our own word


def synthetic(error: FairqError, route: str = "") -> Synthetic:
    """Say an error of this queue as an SDK reads it: status, headers and a body in the endpoint's shape.

    The status is 429, and 504 for a server that fell silent before its answer. ``x-should-retry: false`` keeps the
    SDK from trying again by itself: the queue has already said when that makes sense.
    """
    status = 504 if isinstance(error, StreamReclaimedError) else _TOO_MANY
    content: dict[str, object]
    if route.rpartition("/")[2] == "messages":
        kind = "rate_limit_error" if status == _TOO_MANY else "timeout_error"
        content = {"type": "error", "error": {"type": kind, "message": str(error), "code": error.reason}}
    else:
        content = {"error": {"message": str(error), "type": "fairq", "param": None, "code": error.reason}}
    body = json.dumps(content).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-should-retry", b"false"),
        (b"x-fairq-reason", error.reason.encode()),
    ]
    if error.retry_after is not None and math.isfinite(error.retry_after):
        headers.append((b"retry-after", str(max(math.ceil(error.retry_after), 0)).encode()))
    if error.ticket is not None:
        headers.append((b"x-fairq-ticket", str(error.ticket).encode()))
    return status, headers, body
