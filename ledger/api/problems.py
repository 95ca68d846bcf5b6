"""Every refusal as one kind of document: RFC 9457, `application/problem+json`.

A problem of the product has a type that ends in a word of ledger/errors.py and never
changes. What only repeats an HTTP status (400 for a foreign Host, 405, 406, 415, 500, 503) is
`about:blank`, as RFC 9457 section 4.2.1 has it.
"""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import Any

from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from ninja.errors import HttpError, ValidationError

from ledger import storage
from ledger.errors import InvalidArgs, NotFound, SagaError, StepInFlight, TooLarge
from ledger.jsontext import pointer

TYPE_PREFIX = "urn:saga-console:problem/"
CONTENT_TYPE = "application/problem+json"
# A restarted Postgres is back in about this; the same step may be sent again without fear.
RETRY_AFTER_S = 2
# A row was held for longer than `lock_timeout` (case P1).
LOCK_NOT_AVAILABLE = "55P03"

log = logging.getLogger(__name__)


def problem(error: SagaError) -> HttpResponse:
    """The document of one of the product's own errors, with its headers."""
    return _document(
        error.status,
        {
            **error.extra,
            "type": TYPE_PREFIX + error.type,
            "title": error.title,
            "status": error.status,
            "detail": error.detail,
        },
        error.headers,
    )


def plain_problem(
    status: HTTPStatus, detail: str, headers: dict[str, str] | None = None
) -> HttpResponse:
    """The document of a refusal that means no more than its HTTP status."""
    members = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
    }
    return _document(status.value, members, headers or {})


def _document(status: int, members: dict[str, Any], headers: dict[str, str]) -> HttpResponse:
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    # A text that came from a request may hold half a character; it must not break the answer.
    raw = text.encode("utf-8", "backslashreplace")
    return HttpResponse(raw, status=status, content_type=CONTENT_TYPE, headers=headers)


def answer_error(request: HttpRequest, error: Exception) -> HttpResponse:
    """The last stop of every exception of the API: never HTML, never a bare 500."""
    match error:
        case SagaError():
            return problem(error)
        case ValidationError():
            return problem(invalid(error.errors))
        case RequestDataTooBig() | TooManyFieldsSent():
            return problem(TooLarge("The request is too large."))
        case Http404():
            return problem(NotFound("There is nothing at this address."))
        case HttpError():
            return plain_problem(HTTPStatus(error.status_code), str(error))
        case OperationalError() if storage.sqlstate(error) == LOCK_NOT_AVAILABLE:
            return problem(_busy())
        case DatabaseError() | InterfaceError() if storage.is_away(error):
            log.warning("%s %s: %s", request.method, request.path, error)
            return plain_problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "The ledger cannot be reached now. Send exactly the same request again: "
                "a step that was already accepted is not accepted twice.",
                {"Retry-After": str(RETRY_AFTER_S)},
            )
    kind = "database" if isinstance(error, DatabaseError) else "internal"
    log.error("%s error in %s %s", kind, request.method, request.path, exc_info=error)
    return plain_problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "This is a fault of the console and was logged. What was asked may or may not have "
        "been accepted: send exactly the same request again to find out.",
    )


def _busy() -> StepInFlight:
    return StepInFlight(
        "Another request is changing this saga now. Send exactly the same request again.",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )


def invalid(faults: list[dict[str, Any]]) -> InvalidArgs:
    """What pydantic found wrong, by JSON Pointer; the values themselves are not repeated."""
    found = [
        # Before the words of a check of ours it puts what kind of exception had them.
        {"pointer": _pointer(fault["loc"]), "detail": fault["msg"].removeprefix("Value error, ")}
        for fault in _once(faults)[:20]
    ]
    first = found[0]
    return InvalidArgs(f"At {first['pointer'] or 'the top'}: {first['detail']}.", errors=found)


def _once(faults: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of a place that takes one of several kinds the first fault: one for each kind is found."""
    places: dict[str, dict[str, Any]] = {}
    for fault in faults:
        places.setdefault(_pointer(fault["loc"]), fault)
    return list(places.values())


def _pointer(path: tuple[int | str, ...]) -> str:
    """Without the names that are not part of what was sent: ninja's in front, a kind's behind."""
    if path and path[0] in ("query", "path"):
        return pointer(path[1:2])
    return pointer(path[1:] if path and path[0] == "body" else path)
