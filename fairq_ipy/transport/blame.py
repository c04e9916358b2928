"""From what the endpoint did to the error that a person reads: what happened, and what to do about it."""

from __future__ import annotations

import time
from typing import NamedTuple

from fairq_ipy.errors import EndpointError
from fairq_ipy.transport import refusals
from fairq_ipy.transport.host import Response

__all__ = ["Call", "broke_off", "no_answer", "out_of_reach", "refused", "said_error", "too_late"]

_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _SERVER = 401, 403, 404, 500


class Call(NamedTuple):
    """The call that went wrong.

    Attributes:
        url: where it went.
        key_from: environment variable that the key is read from; ``None`` without.
        has_key: whether there was a key in it.
        tenant: who asked; ``None`` when that is not known.
        ticket: its number; ``None`` likewise.
        attempts: how often it was sent.
    """

    url: str
    key_from: str | None = None
    has_key: bool = False
    tenant: str | None = None
    ticket: int | None = None
    attempts: int = 1


def refused(call: Call, response: Response) -> EndpointError:
    """Return the error for an answer of status 400 or more, whose body was read."""
    status: int = response.status_code
    said = refusals.provider_text(response.content, response.headers.get("content-type", ""))
    retry_after = refusals.retry_after(response.headers.raw, time.time())
    text = f"POST {call.url} answered {status}{f': {said}' if said else ' without a word'}"
    if status in {_UNAUTHORIZED, _FORBIDDEN}:
        if call.key_from is None:
            text += " (no key was sent: the policy names no endpoint.api_key_env)"
        else:
            text += f" (look at the key in {call.key_from}{'' if call.has_key else ', which is not set'})"
    elif status == _NOT_FOUND:
        hint = "" if "/v1/" in call.url else "; most endpoints want /v1 at the end of base_url"
        text += f" (are base_url and model right?{hint})"
    elif call.attempts > 1:
        text += f" (sent {call.attempts} times)"
    elif status >= _SERVER:
        text += " (the server's own trouble: try again later)"
    return _error(call, text, status=status, body=said, retry_after=retry_after)


def said_error(call: Call, error: object, partial: str) -> EndpointError:
    """Return the error for an error inside an answer of status 200."""
    said = refusals.error_text(error)
    return _error(
        call, f"{call.url} broke the answer off{_after(partial)}: {said}", status=200, body=said, partial=partial
    )


def broke_off(call: Call, partial: str, why: BaseException | None = None) -> EndpointError:
    """Return the error for an answer that ended in the middle."""
    reason = f": {why}" if why is not None and str(why) else ""
    text = f"the connection to {call.url} ended in the middle of the answer{_after(partial)}{reason}"
    return _error(call, text, status=200, partial=partial)


def no_answer(call: Call, said: str, content_type: str) -> EndpointError:
    """Return the error for a 200 that is no chat completion."""
    kind = content_type.partition(";")[0] or "no content type"
    what = f"{kind}: {said}" if said else "an empty body"
    text = f"{call.url} answered 200 with something that is no chat completion ({what}); is base_url right?"
    return _error(call, text, status=200, body=said)


def out_of_reach(call: Call, error: BaseException) -> EndpointError:
    """Return the error for a call that got no answer at all."""
    why = str(error) or type(error).__name__
    return _error(call, f"no answer from {call.url}: {why}; is the server running, and base_url right?")


def too_late(call: Call, timeout: float, partial: str) -> EndpointError:
    """Return the error for an answer that was not complete in time."""
    text = (
        f"no complete answer from {call.url} within {timeout:g} s{_after(partial)}; allow it more time, or ask for less"
    )
    return _error(call, text, partial=partial)


def _after(partial: str) -> str:
    return f" after {len(partial)} characters" if partial else ""


def _error(
    call: Call,
    text: str,
    *,
    status: int | None = None,
    body: str = "",
    partial: str = "",
    retry_after: float | None = None,
) -> EndpointError:
    return EndpointError(
        text,
        tenant=call.tenant,
        ticket=call.ticket,
        retry_after=retry_after,
        status=status,
        body=body,
        attempts=call.attempts,
        partial=partial,
    )
