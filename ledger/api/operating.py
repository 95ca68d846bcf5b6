"""What operators may do about a step that cannot go on by itself, and doing it.

Operators' tokens only; each act is carried out once (ledger/services/operating.py).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Router

from ledger.actions import Action, Offer
from ledger.api import access, addresses, replies
from ledger.api.answered import ActionsDocument, StepDocument
from ledger.api.asked import Answer, Confirmation, Resolution, Retry
from ledger.api.bodies import read
from ledger.api.openapi import takes
from ledger.errors import InvalidArgs
from ledger.queries import documents
from ledger.queries.answers import answers_of
from ledger.services import operating
from ledger.services.cases import Case, cases
from ledger.services.operating import Answered, Pressed

router = Router(tags=["steps"])
PROBLEMS = (403, 404, 409, 422)
# The call that carries out each act, and what its body says besides reason and question.
_CALLS: dict[Action, tuple[str, dict[str, Any]]] = {
    Action.HAPPENED: ("resolve_step", {"answer": "happened"}),
    Action.DID_NOT_HAPPEN: ("resolve_step", {"answer": "did_not_happen"}),
    Action.END_SAGA: ("resolve_step", {"answer": "end_saga"}),
    Action.RETRY: ("retry_step", {}),
    Action.EDIT: ("retry_step", {}),
    Action.CONFIRM: ("confirm_step", {}),
    Action.SKIP: ("skip_step", {}),
    Action.ACKNOWLEDGE: ("acknowledge_step", {}),
}


@router.get(
    "/steps/{step}/actions",
    response=ActionsDocument,
    summary="What an operator may do about a step",
    openapi_extra=takes(None, problems=(403, 404)),
)
def list_actions(request: HttpRequest, step: str) -> HttpResponse:
    """For operators: exactly the acts that are allowed now, with what each does and does not."""
    access.operator(request)
    step_id = access.owned(step, "step")
    case = cases([step_id]).get(step_id)
    if case is None:
        raise access.nothing("step")
    return replies.reply(_document(request, case))


def _document(request: HttpRequest, case: Case) -> dict[str, Any]:
    step, parked = case.step, case.parked
    told = answers_of(step.saga_id, step.step_id)
    return {
        "step": str(step.id),
        "state": step.state.value,
        "trouble": case.trouble,
        "why": case.why,
        "direction": case.facts.direction.value,
        "question": case.question,
        "actions": [_action(request, case, offer) for offer in case.offers],
        "confirms": {
            "tool": step.variant.tool,
            "recorded_version": step.variant.tool_version,
            "recorded_digest": step.variant.tool_digest,
            "version": parked.version,
            "tool_digest": parked.changed_to,
        }
        if parked is not None and parked.may_be_confirmed
        else None,
        "answers": [one.document() for one in told],
    }


def _action(request: HttpRequest, case: Case, offer: Offer) -> dict[str, Any]:
    name, fixed = _CALLS[offer.action]
    body = {**fixed, "question": case.question}
    if offer.action == Action.CONFIRM:
        body["tool_digest"] = case.confirms
    return {
        "action": offer.action.value,
        "label": offer.label,
        "does": offer.does,
        "does_not": offer.does_not,
        "method": "POST",
        "path": reverse(f"api:{name}", args=[case.step.id]),
        "body": body,
    }


@router.post(
    "/steps/{step}/resolve",
    response=StepDocument,
    summary="Say whether a step happened",
    openapi_extra=takes(Resolution, problems=PROBLEMS),
)
def resolve_step(request: HttpRequest, step: str) -> HttpResponse:
    """For operators: the word on a step that is unknown, stuck or parked."""
    bearer, step_id = access.operator(request), access.owned(step, "step")
    asked = read(request, Resolution)
    if asked.answer != "happened" and "result" in asked.model_fields_set:
        fault = {"pointer": "/result", "detail": "only with `happened`"}
        raise InvalidArgs("Only `happened` has a `result`.", errors=[fault])
    answered = operating.resolve(
        step_id,
        asked.answer,
        result=asked.result,
        reason=asked.reason,
        actor=bearer.actor,
        question=asked.question,
    )
    return _after(request, step_id, answered)


@router.post(
    "/steps/{step}/retry",
    response=StepDocument,
    summary="Try a step again",
    openapi_extra=takes(Retry, problems=PROBLEMS),
)
def retry_step(request: HttpRequest, step: str) -> HttpResponse:
    """For operators: another round of tries for a dead letter, or what waits starts now.

    With `args`, those are run instead: a new digest, through the gate. A step that is parked
    because its tool has changed runs under the code that is installed now.
    """
    bearer, step_id = access.operator(request), access.owned(step, "step")
    asked = read(request, Retry)
    answered = operating.retry(
        step_id,
        reason=asked.reason,
        actor=bearer.actor,
        question=asked.question,
        args=asked.args,
    )
    return _after(request, step_id, answered)


@router.post(
    "/steps/{step}/confirm",
    response=StepDocument,
    summary="Let a step run under changed code",
    openapi_extra=takes(Confirmation, problems=PROBLEMS),
)
def confirm_step(request: HttpRequest, step: str) -> HttpResponse:
    """For operators: a yes to the code with exactly this digest, for this step."""
    bearer, step_id = access.operator(request), access.owned(step, "step")
    asked = read(request, Confirmation)
    return _press(request, step_id, Action.CONFIRM, asked, bearer.actor, asked.tool_digest)


@router.post(
    "/steps/{step}/skip",
    response=StepDocument,
    summary="Give an undo up",
    openapi_extra=takes(Answer, problems=PROBLEMS),
)
def skip_step(request: HttpRequest, step: str) -> HttpResponse:
    """For operators: the effect stays in the world as residue; the saga goes on undoing."""
    bearer, step_id = access.operator(request), access.owned(step, "step")
    return _press(request, step_id, Action.SKIP, read(request, Answer), bearer.actor)


@router.post(
    "/steps/{step}/acknowledge",
    response=StepDocument,
    summary="Say that a contradicted step was dealt with",
    openapi_extra=takes(Answer, problems=PROBLEMS),
)
def acknowledge_step(request: HttpRequest, step: str) -> HttpResponse:
    """For operators: what a late answer said about a settled step was seen to by hand."""
    bearer, step_id = access.operator(request), access.owned(step, "step")
    return _press(request, step_id, Action.ACKNOWLEDGE, read(request, Answer), bearer.actor)


def _press(
    request: HttpRequest,
    step_id: UUID,
    action: Action,
    asked: Answer,
    actor: str,
    tool_digest: str = "",
) -> HttpResponse:
    pressed = Pressed(action, asked.reason, actor, asked.question, tool_digest=tool_digest)
    return _after(request, step_id, operating.press(step_id, pressed))


def _after(request: HttpRequest, step_id: UUID, answered: Answered) -> HttpResponse:
    found = documents.step(step_id, absolute=addresses.absolute(request))
    if found is None:
        raise access.nothing("step")
    return replies.reply(found, 200, replies.REPLAYED if answered.replayed else {})
