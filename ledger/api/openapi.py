"""The API object, and its description of itself.

Bodies are read by ledger/api/bodies.py and not by the framework, whose own reader takes
duplicate keys, NaN and 1e400 for JSON. So each operation says with `takes` what it reads,
and the document is completed here: bodies, headers, and the problems that may come back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.openapi.schema import REF_TEMPLATE
from ninja.operation import Operation
from pydantic import BaseModel

from ledger.api import answered
from ledger.errors import SagaError

PREFER: dict[str, Any] = {
    "in": "header",
    "name": "Prefer",
    "required": False,
    "schema": {"type": "string", "examples": ["wait=30", "respond-async"]},
    "description": "RFC 7240: `wait=N` (at most 60 s) · `respond-async`. "
    "`Preference-Applied` in the answer says what was done.",
}
IDEMPOTENCY_KEY: dict[str, Any] = {
    "in": "header",
    "name": "Idempotency-Key",
    "required": False,
    "schema": {"type": "string", "examples": ['"refund-1"']},
    "description": "May stand for `step_id`; quoted or bare.",
}
_EVERYWHERE = (401, 429, 503)
# What operations said that they read, of whichever app.
_bodies: dict[str, type[BaseModel]] = {}


def takes(
    body: type[BaseModel] | None,
    *headers: dict[str, Any],
    problems: Iterable[int] = (),
    required: bool = True,
) -> dict[str, Any]:
    """OpenAPI of an operation's body, extra headers, and problem statuses."""
    content = {"application/problem+json": {"schema": _ref(answered.Problem)}}
    described: dict[str, Any] = {
        "responses": {
            status: {"description": _titles(status), "content": content}
            for status in sorted({*problems, *_EVERYWHERE})
        }
    }
    if headers:
        described["parameters"] = list(headers)
    if body is not None:
        _bodies[body.__name__] = body
        described["requestBody"] = {
            "required": required,
            "content": {"application/json": {"schema": _ref(body)}},
        }
    return described


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": REF_TEMPLATE.format(model=model.__name__)}


def _titles(status: int) -> str:
    known = [e for e in SagaError.__subclasses__() if e.status == status]
    return " · ".join(f"`{error.type}`: {error.title}" for error in known) or "Try again soon"


class _NeverSent(HttpResponse):
    """What the framework has an operation fill in. Each of ours answers with one of its own, so one
    is enough for all requests, and nothing may be written into it."""

    _is_made = False

    def __init__(self) -> None:
        super().__init__()
        self._is_made = True

    def __setattr__(self, name: str, value: object) -> None:
        if self._is_made:
            raise TypeError("an operation answers with a response of its own: see replies.reply")
        super().__setattr__(name, value)


_NEVER_SENT = _NeverSent()


class ConsoleAPI(NinjaAPI):
    """django-ninja, with a schema that also knows what is read by hand."""

    _schema: Any = None

    def create_temporal_response(self, request: HttpRequest) -> HttpResponse:
        return _NEVER_SENT

    def get_openapi_operation_id(self, operation: Operation) -> str:
        """The view's own name: generated clients call their methods by it."""
        return operation.view_func.__name__

    def get_openapi_schema(self, **options: Any) -> Any:
        """Made on first use and kept: nothing in it changes while the process runs."""
        if self._schema is None:
            self._schema = self._completed(super().get_openapi_schema(**options))
        return self._schema

    @staticmethod
    def _completed(schema: Any) -> Any:
        components = schema["components"].setdefault("schemas", {})
        models: list[type[BaseModel]] = [*_bodies.values(), answered.Problem]
        for model in models:
            described = model.model_json_schema(ref_template=REF_TEMPLATE)
            components |= described.pop("$defs", {})
            components[model.__name__] = described
        return schema
