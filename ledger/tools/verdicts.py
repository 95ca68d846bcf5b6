"""What an HTTP answer, or its absence, says about the effect (design rule 5.7), as tables.

| what came | outcome |
|---|---|
| 2xx | Done; Unknown when it says JSON and is not, or broke off |
| 3xx | Unknown: a redirect is not followed, and 303 often follows a success |
| 429, 503 | Failed, retryable, Retry-After honoured |
| other 4xx | Failed, final |
| 5xx | Unknown |
| no connection, no free slot | Failed, retryable: nothing was sent |
| anything that broke after the connection stood | Unknown |
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from ledger.outcomes import Done, Failed, Outcome, Unknown
from ledger.tools.client import Answer

# Certainly before the first byte of the request was written.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
# Refused on this side, and no later try will differ.
NOT_SENDABLE = (httpx.UnsupportedProtocol, httpx.InvalidURL)
RETRYABLE_STATUSES = frozenset({429, 503})
MAX_ERROR_CHARS = 500


def of_answer(answer: Answer, now: datetime) -> Outcome:
    """The outcome of an answer that has at least a status; `now` is for Retry-After dates."""
    status = answer.status
    if 200 <= status < 300:
        return _of_success(answer)
    said = f"{status} {snippet(answer)}".strip()
    if status in RETRYABLE_STATUSES:
        return Failed(said, retryable=True, retry_after_s=retry_after_s(answer, now))
    if 400 <= status < 500:
        return Failed(said)
    if 300 <= status < 400:
        to = answer.headers.get("location", "nowhere")[:200]
        return Unknown(f"{status} redirect to {to}, which is not followed")
    return Unknown(said)


def _of_success(answer: Answer) -> Outcome:
    try:
        return Done(result_of(answer))
    except ValueError as error:
        return Unknown(f"{answer.status}, but the answer cannot be read: {error}")


def result_of(answer: Answer) -> Any:
    """The parsed JSON body, or `{"status", "text"}` when it is not JSON.

    Raises ValueError when the answer says that it is JSON and is not, or is incomplete.
    """
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    says_json = kind == "application/json" or kind.endswith("+json")
    empty = answer.status in (204, 205) and not answer.body
    if answer.broken and says_json:
        raise ValueError(answer.broken)
    if (says_json and not empty) or (not kind and answer.body and not answer.broken):
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            if says_json:
                raise ValueError(f"not JSON ({type(error).__name__})") from None
    cut = f"… [{answer.broken}]" if answer.broken else ""
    return {"status": answer.status, "text": answer.text + cut}


def of_error(error: Exception) -> Outcome:
    """The outcome of a request that brought no status at all."""
    name = type(error).__name__
    if isinstance(error, NOT_SENT):
        return Failed(f"not connected ({name}: {error})", retryable=True)
    if isinstance(error, NOT_SENDABLE):
        return Failed(f"cannot be sent ({name}: {error})")
    return Unknown(f"no answer after sending ({name}: {error})")


def retry_after_s(answer: Answer, now: datetime) -> float | None:
    """Seconds from a Retry-After header (RFC 9110, 10.2.3): a number or an HTTP date."""
    given = answer.headers.get("retry-after", "").strip()
    if given.isascii() and given.isdigit():
        return float(given[:9])
    try:
        at = parsedate_to_datetime(given)
    except (ValueError, TypeError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - now).total_seconds())


def snippet(answer: Answer) -> str:
    """The start of the body, on one line: what the target gave as its reason."""
    text = " ".join(answer.text.split())
    return text if len(text) <= MAX_ERROR_CHARS else text[:MAX_ERROR_CHARS] + "…"
