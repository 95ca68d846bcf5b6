"""Steps: propose and look at."""

from __future__ import annotations

import re

from django.http import HttpRequest, HttpResponse
from ninja import Router

from ledger import faultpoints, metrics
from ledger.api import access, addresses, replies, waiting
from ledger.api.answered import StepDocument
from ledger.api.asked import NewStep, line_fault
from ledger.api.bodies import read
from ledger.api.openapi import IDEMPOTENCY_KEY, PREFER, takes
from ledger.api.prefer import parse
from ledger.errors import InvalidArgs, MissingStepId
from ledger.queries import documents
from ledger.services import together
from ledger.services.proposals import AlternativeProposal, Proposal

router = Router(tags=["steps"])
# RFC 8941 section 3.3.3: what may stand between the quotes, and what is escaped there.
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
MAX_STEP_ID = 200


@router.post(
    "/sagas/{saga}/steps",
    response={200: StepDocument, 202: StepDocument},
    summary="Propose a step",
    openapi_extra=takes(NewStep, PREFER, IDEMPOTENCY_KEY, problems=(400, 409, 413, 422)),
    auth=access.TokenAuth(proves_later=True),
)
def propose_step(request: HttpRequest, saga: str) -> HttpResponse:
    """Accepted at most once, however often it is submitted.

    202: accepted. 200: it has finished (with `Idempotent-Replayed: true` when it was
    submitted before). 409: submitted before and not finished; the problem's `step` is the
    step. `Prefer: wait=N` waits up to N seconds for the end; `Prefer: respond-async` makes
    the 409 a 202.
    """
    with access.proof(request) as proof:
        bearer = access.agent(request)
        saga_id = access.owned(saga, "saga")
        asked = read(request, NewStep)
        proposal = to_proposal(asked, _step_id(request, asked))
        preference = parse(request.META.get("HTTP_PREFER", ""))
        with waiting.seat(preference, saga_id) as watch:
            answer = together.propose(saga_id, proposal, bearer=bearer, proof=proof)
            faultpoints.reached("P3")
            metrics.PROPOSALS.labels(answer.kind).inc()
            return replies.reply_to_proposal(request, answer, preference, watch)


def to_proposal(asked: NewStep, step_id: str) -> Proposal:
    """The service's value for what was sent."""
    return Proposal(
        step_id=step_id,
        tool=asked.tool,
        args=asked.args,
        reason=asked.reason,
        alternatives=tuple(AlternativeProposal(one.tool, one.args) for one in asked.alternatives),
        repeat_of=None if asked.repeat_of is None else access.owned(asked.repeat_of, "step"),
    )


def _step_id(request: HttpRequest, asked: NewStep) -> str:
    header = request.META.get("HTTP_IDEMPOTENCY_KEY")
    if header is None:
        if asked.step_id is None:
            raise MissingStepId("Give `step_id` in the body, or the header Idempotency-Key.")
        return asked.step_id
    key = _unquoted(header.strip())
    # A server hands over other bytes as nothing, or as other letters: neither may name a step.
    if not (key and key.isascii()):
        raise InvalidArgs(
            "The header Idempotency-Key is empty, or holds more than ASCII. Give the name in the "
            "field step_id, which takes every letter."
        )
    fault = line_fault(key) or (f"it has over {MAX_STEP_ID} characters" * (len(key) > MAX_STEP_ID))
    if fault:
        raise InvalidArgs(f"The header Idempotency-Key cannot be a step_id: {fault}.")
    if asked.step_id not in (None, key):
        raise InvalidArgs(
            "The header Idempotency-Key and the field step_id differ. Send one of them.",
            errors=[{"pointer": "/step_id", "detail": "Not the same as Idempotency-Key."}],
        )
    return key


def _unquoted(header: str) -> str:
    if quoted := _QUOTED.fullmatch(header):
        return re.sub(r"\\(.)", r"\1", quoted[1])
    if header.startswith('"'):
        raise InvalidArgs("The header Idempotency-Key opens a quote and does not close it.")
    return header


@router.get(
    "/steps/{step}",
    response=StepDocument,
    summary="Look at a step",
    openapi_extra=takes(None, PREFER, problems=(404,)),
)
def get_step(request: HttpRequest, step: str) -> HttpResponse:
    """The step as it is now; with `Prefer: wait=N`, as soon as it ends or gets stuck."""
    bearer, step_id = access.caller(request), access.owned(step, "step")

    def look() -> documents.Document:
        found = documents.step(
            step_id, absolute=addresses.absolute(request), agent_id=bearer.agent_id
        )
        if found is None:
            raise access.nothing("step")
        return found

    def settled() -> documents.Document | None:
        document = look()
        return document if documents.has_settled(document) else None

    preference = parse(request.META.get("HTTP_PREFER", ""))
    with waiting.seat(preference, step_id) as watch:
        if watch is None:
            return replies.reply(look())
        found = watch.wait(waiting.without_connection(settled), preference.wait_s)
        waited = {"Preference-Applied": f"wait={preference.wait_s}", "Vary": "Prefer"}
        return replies.reply(found if found is not None else look(), 200, waited)
