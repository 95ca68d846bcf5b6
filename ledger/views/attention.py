from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from ledger.actions import Action
from ledger.errors import InvalidArgs
from ledger.keys import parse_json
from ledger.queries import pages_attention
from ledger.services import delivering, operating
from ledger.services.operating import Answered, Pressed, Resolution
from ledger.views import live
from ledger.views.acts import Remedy, remedies_for
from ledger.views.people import bearer_of, pressed, right_to_operate

# As for a body of the API.
MAX_BYTES = 1_000_000
ANSWERS: Mapping[Resolution, str] = {
    "happened": "Recorded: it happened.",
    "did_not_happen": "Recorded: it did not happen.",
    "end_saga": "The saga ends here.",
}


@dataclass(frozen=True, slots=True)
class Section:
    """Cases of one kind, each with what may be pressed about it by whoever looks."""

    name: str
    title: str
    soft: str
    rows: Sequence[tuple[pages_attention.Case, Remedy | None]]


_SECTIONS = (
    ("stuck", "Stuck", "not tried again by itself; the saga waits for your answer"),
    (
        "unknown",
        "In doubt",
        "nobody knows whether it happened; nothing is repeated until that is clear",
    ),
    ("parked", "Parked", "no code here may run it as it is; nothing is lost meanwhile"),
    (
        "contradicted",
        "Contradicted",
        "settled, and then a late answer said otherwise: look at the target",
    ),
)


def attention(request: HttpRequest) -> HttpResponse:
    """Everything that waits for a person on call; asked again every few seconds."""
    found = pages_attention.attention()
    remedies = remedies_for(case.step.pk for case in found.cases)
    mark = live.mark_of(
        [
            (case.step.pk, case.step.state, case.step.attempts, case.step.held_why)
            for case in [*found.cases, *found.change_requested]
        ]
        + [remedy.case.question for remedy in remedies.values()]
        + [message.pk for message in found.undelivered]
        + [word.attempt_id for word in found.buried]
    )
    if live.has_seen(request, mark):
        return live.unchanged()
    right = right_to_operate(request)
    shown = remedies if right["can_operate"] else {}
    sections = [
        Section(name, title, soft, [(case, shown.get(case.step.pk)) for case in cases])
        for name, title, soft in _SECTIONS
        if (cases := getattr(found, name))
    ]
    context = {"found": found, "sections": sections, "mark": mark, **right}
    return live.page_or_part(request, "ledger/attention.html", "live", context)


def _json(request: HttpRequest, field: str) -> Any:
    text = request.POST.get(field, "").strip()
    if not text:
        return None
    return parse_json(text.encode("utf-8", "surrogatepass"), max_bytes=MAX_BYTES)


@pressed("ledger:attention")
def resolve(request: HttpRequest, step_id: UUID) -> str:
    answer = next((one for one in ANSWERS if one == request.POST.get("answer")), None)
    if answer is None:
        raise InvalidArgs(f"The answer is one of {', '.join(ANSWERS)}.")
    answered = operating.resolve(
        step_id,
        answer,
        result=_json(request, "result") if answer == "happened" else None,
        **_who(request),
    )
    return _said(answered, ANSWERS[answer])


@pressed("ledger:attention")
def resend(_request: HttpRequest, message_id: UUID) -> str:
    delivering.try_again(message_id)
    return "The message is tried again."


@pressed("ledger:attention")
def retry(request: HttpRequest, step_id: UUID) -> str:
    edited = "args" in request.POST
    args = _json(request, "args") if edited else None
    if edited and not isinstance(args, dict):
        raise InvalidArgs("The arguments are a JSON object: {…}.")
    answered = operating.retry(step_id, args=args, **_who(request))
    return _said(
        answered,
        "It runs with the new arguments, once the gate lets it."
        if edited
        else "It is tried again.",
    )


@pressed("ledger:attention")
def confirm(request: HttpRequest, step_id: UUID) -> str:
    digest = request.POST.get("tool_digest", "")
    if not digest:
        raise InvalidArgs("Say which code you confirm: the form names it by its digest.")
    pressed_ = Pressed(Action.CONFIRM, tool_digest=digest, **_who(request))
    return _said(operating.press(step_id, pressed_), "It goes on under today's code.")


@pressed("ledger:attention")
def skip(request: HttpRequest, step_id: UUID) -> str:
    answered = operating.press(step_id, Pressed(Action.SKIP, **_who(request)))
    return _said(answered, "Skipped: its effect is listed as residue.")


@pressed("ledger:attention")
def acknowledge(request: HttpRequest, step_id: UUID) -> str:
    answered = operating.press(step_id, Pressed(Action.ACKNOWLEDGE, **_who(request)))
    return _said(answered, "Recorded, and off the list.")


def _who(request: HttpRequest) -> dict[str, Any]:
    """Who pressed, about which question, and why: the same of every form."""
    return {
        "reason": request.POST.get("reason", ""),
        "actor": bearer_of(request).actor,
        "question": request.POST.get("question", ""),
    }


def _said(answered: Answered, done: str) -> str:
    if not answered.replayed:
        return done
    if not answered.by:
        return "That is under way already; nothing more was started."
    by = answered.by.removeprefix("person:")
    return f"{by} has answered that already, in entry {answered.entry}; nothing was done twice."
