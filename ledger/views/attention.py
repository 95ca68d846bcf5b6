from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from ledger.errors import InvalidArgs
from ledger.keys import parse_json
from ledger.queries import pages_attention
from ledger.services import delivering, operating
from ledger.services.operating import Resolution
from ledger.views import live
from ledger.views.people import bearer_of, pressed, right_to_operate

MAX_RESULT_BYTES = 1_000_000
ANSWERS: Mapping[Resolution, str] = {
    "happened": "Recorded: it happened.",
    "did_not_happen": "Recorded: it did not happen.",
    "end_saga": "The saga ends here.",
}


def attention(request: HttpRequest) -> HttpResponse:
    """Everything that waits for a person on call; asked again every few seconds."""
    found = pages_attention.attention()
    cases = [*found.stuck, *found.unknown, *found.change_requested]
    mark = live.mark_of(
        [(case.step.pk, case.step.state, case.step.attempts) for case in cases]
        + [(message.pk, message.parked_why) for message in found.parked]
        + [message.pk for message in found.undelivered]
    )
    if live.has_seen(request, mark):
        return live.unchanged()
    context = {"found": found, "mark": mark, **right_to_operate(request)}
    return live.page_or_part(request, "ledger/attention.html", "live", context)


def _reason(request: HttpRequest) -> str:
    reason = request.POST.get("reason", "").strip()
    if not reason:
        raise InvalidArgs("Say why: the reason is kept in the ledger for whoever comes after you.")
    return reason


def _result(request: HttpRequest) -> Any:
    text = request.POST.get("result", "").strip()
    if not text:
        return None
    return parse_json(text.encode("utf-8", "surrogatepass"), max_bytes=MAX_RESULT_BYTES)


@pressed("ledger:attention")
def resolve(request: HttpRequest, step_id: UUID) -> str:
    answer = next((one for one in ANSWERS if one == request.POST.get("answer")), None)
    if answer is None:
        raise InvalidArgs(f"The answer is one of {', '.join(ANSWERS)}.")
    operating.resolve(
        step_id,
        answer,
        result=_result(request) if answer == "happened" else None,
        reason=_reason(request),
        actor=bearer_of(request).actor,
    )
    return ANSWERS[answer]


@pressed("ledger:attention")
def resend(_request: HttpRequest, message_id: UUID) -> str:
    delivering.try_again(message_id)
    return "The message is tried again."


@pressed("ledger:attention")
def retry(request: HttpRequest, step_id: UUID) -> str:
    operating.retry(step_id, reason=_reason(request), actor=bearer_of(request).actor)
    return "It will be tried again."
