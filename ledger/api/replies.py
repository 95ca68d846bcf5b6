"""Writing answers, and the four ways in which a submitted step is answered (design section 4)."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest, HttpResponse

from ledger.api import addresses, waiting
from ledger.api.prefer import Preference
from ledger.errors import StepInFlight
from ledger.queries import documents
from ledger.services.proposals import Answer
from ledger.states import StepState
from ledger.wake import Watch

# One JSON document a line; the type that its readers go by, though nobody has registered it.
JSON_LINES = "application/jsonl"
REPLAYED = {"Idempotent-Replayed": "true"}
# Workers answer in milliseconds, people in minutes.
RETRY_AFTER_S = 1
RETRY_AFTER_PEOPLE_S = 15
_WAITS_FOR_PEOPLE = frozenset(
    {StepState.AWAITING_APPROVAL, StepState.CHANGE_REQUESTED, StepState.STUCK}
)


def reply(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> HttpResponse:
    """A JSON answer."""
    raw = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    return HttpResponse(raw, status=status, content_type="application/json", headers=headers)


def step_address(request: HttpRequest, document: dict[str, Any]) -> str:
    return addresses.origin(request) + f"/api/v1/steps/{document['id']}"


def reply_to_proposal(
    request: HttpRequest, answer: Answer, preference: Preference, watch: Watch | None
) -> HttpResponse:
    """202 accepted · 200 finished, replayed or waited for · 409 in flight.

    `watch` is a watch on the saga from before the proposal, or None for not waiting.
    """
    document = _await(request, answer, preference, watch)
    applied = preference.applied(waited=watch is not None)
    place = {"Location": step_address(request, document)}
    if documents.is_finished(document):
        replayed = {} if answer.kind == "accepted" else REPLAYED
        return reply(document, 200, place | replayed | applied)
    retry = {"Retry-After": str(retry_after_s(document))}
    if answer.kind == "accepted" or preference.respond_async:
        return reply(document, 202, place | retry | applied)
    raise StepInFlight(
        f"The step was submitted before and is {document['state']}. Do not submit it under "
        "another name: ask again, or send Prefer: wait=30 to be told when it ends.",
        headers=place | retry | applied,
        step=document,
    )


def _await(
    request: HttpRequest, answer: Answer, preference: Preference, watch: Watch | None
) -> dict[str, Any]:
    def read() -> dict[str, Any]:
        found = documents.step(
            answer.step,
            absolute=addresses.absolute(request),
            effect_of=answer.effect_of,
            row=None if watch is None else watch.brought(),
        )
        assert found is not None  # what is archived is still answered for
        if found["args"] is None and answer.args is not None:
            found["args"] = answer.args
        return found

    def settled() -> dict[str, Any] | None:
        document = read()
        return document if documents.has_settled(document) else None

    if watch is None or answer.kind == "replayed":
        return read()
    if answer.kind == "accepted":
        found = waiting.for_a_new_step(watch, settled, preference.wait_s, step=answer.step)
        return found if found is not None else read()
    if answer.effect_of is not None:
        # Another saga's step answers: the watch on this saga would never hear of it.
        watch.follow(answer.step)
    look = waiting.without_connection(settled)
    found = watch.wait(look, preference.wait_s, about=answer.step)
    return found if found is not None else read()


def retry_after_s(document: dict[str, Any]) -> int:
    """Seconds after which asking again may be worth it."""
    return RETRY_AFTER_PEOPLE_S if document["state"] in _WAITS_FOR_PEOPLE else RETRY_AFTER_S
