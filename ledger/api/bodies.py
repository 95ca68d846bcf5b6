"""Reading a body: its size, its kind, strict JSON, then its shape. Nothing is stored before."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, TypeVar

from django.http import HttpRequest
from ninja.errors import HttpError
from pydantic import BaseModel, ValidationError

from ledger.api.problems import invalid
from ledger.errors import InvalidJson, TooLarge
from ledger.keys import parse_json

# A step is an intention, not a document store; a megabyte is a hundred times the usual.
MAX_BYTES = 1_000_000
Body = TypeVar("Body", bound=BaseModel)


def read(request: HttpRequest, shape: type[Body]) -> Body:
    """The body as `shape`.

    Raises TooLarge, InvalidJson or InvalidArgs, each saying what to change; 415 for
    another kind of content.
    """
    _check_kind(request)
    parsed = parse_json(_raw(request), max_bytes=MAX_BYTES)
    if not isinstance(parsed, dict):
        raise InvalidJson("The body must be a JSON object: {…}.")
    try:
        return shape.model_validate(parsed)
    except ValidationError as error:
        faults: list[Any] = error.errors(
            include_url=False, include_context=False, include_input=False
        )
        raise invalid(faults) from None


def _check_kind(request: HttpRequest) -> None:
    kind = (request.content_type or "").lower()
    if kind != "application/json" and not (
        kind.startswith("application/") and kind.endswith("+json")
    ):
        status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        raise HttpError(status, "Send the body with `Content-Type: application/json`.")


def _raw(request: HttpRequest) -> bytes:
    length = request.META.get("CONTENT_LENGTH") or ""
    if length.isdecimal():
        if int(length) > MAX_BYTES:
            raise TooLarge(f"The body has {length} bytes; at most {MAX_BYTES} are accepted.")
        return request.body
    if "chunked" not in request.META.get("HTTP_TRANSFER_ENCODING", "").lower():
        return request.body
    # Django reads nothing without a length. The server ends this stream where the body ends.
    stream: Any = request.META["wsgi.input"]
    parts, room = [], MAX_BYTES + 1
    while room > 0 and (part := stream.read(min(room, 65_536))):
        parts.append(part)
        room -= len(part)
    if room <= 0:
        raise TooLarge(f"The body is larger than {MAX_BYTES} bytes.")
    return b"".join(parts)
