"""The approvals of the REST API. People only: an agent's token is refused at every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from approvals import queries, queries_policy, queries_rejections
from approvals.models import Approval
from approvals.rights import Person, who
from approvals.services import bulk, deciding, reopening
from approvals.services.clicks import Decided
from approvals.states import Answer, ApprovalState
from approvals.surface import Surface, address_of
from approvals.wire import (
    ApprovalInFull,
    ApprovalPage,
    BulkDocument,
    DecidedDocument,
    NewApproval,
    NewDecision,
    NewDecisions,
)
from ledger.api import access, addresses, replies
from ledger.api.bodies import read
from ledger.api.openapi import takes
from ledger.api.wishes import Cursor, Limit
from ledger.bearer import Bearer
from ledger.errors import Forbidden, InvalidArgs
from ledger.queries.documents import Document
from ledger.queries.paging import DEFAULT_LIMIT, page, uuid_cursor

router = Router(tags=["approvals"])

StateWish = ApprovalState | Literal[""]
Decide = Callable[..., Decided]
NO_OBJECT = {"pointer": "/args", "detail": "must be an object"}
_REPLAYED = {"Idempotent-Replayed": "true"}


def _takes_decision(body: type[NewDecision] = NewDecision) -> dict[str, Any]:
    described = takes(None, problems=(403, 404, 409, 410, 422))
    schema = {"schema": body.model_json_schema()}
    described["requestBody"] = {"required": True, "content": {"application/json": schema}}
    return described


@router.get(
    "/approvals",
    response=ApprovalPage,
    summary="List what people are asked",
    openapi_extra=takes(None, problems=(403, 422)),
)
def list_approvals(
    request: HttpRequest,
    state: Annotated[StateWish, Query("")],
    cursor: Annotated[Cursor, Query("")],
    limit: Annotated[Limit, Query(DEFAULT_LIMIT)],
    unroutable: Annotated[bool, Query(False)],
) -> HttpResponse:
    """For people. Newest first. `unroutable=true`: only what nobody can answer, on one page."""
    _, person = _person(request)
    if unroutable:
        lost = [one.request.pk for one in queries_policy.unroutable()]
        found = queries.requests().filter(pk__in=lost).order_by("expires_at", "id")
        documents = [_document(request, one, person) for one in found]
        return replies.reply({"items": documents, "next_cursor": None})
    found = queries.in_state(state)
    if after := uuid_cursor(cursor):
        found = found.filter(pk__lt=after)
    documents = [_document(request, one, person) for one in found[: limit + 1]]
    return replies.reply(page(documents, limit, lambda document: document["id"]))


@router.post(
    "/approvals/bulk",
    response=BulkDocument,
    summary="Answer several, each as it was seen",
    openapi_extra=takes(NewDecisions, problems=(403, 422)),
)
def decide_many(request: HttpRequest) -> HttpResponse:
    """For people. Each item is answered for itself: applied, skipped or failed."""
    bearer, _ = _person(request)
    sent = read(request, NewDecisions)
    items = [bulk.Item(access.owned(item.id, "approval"), item.args_digest) for item in sent.items]
    via = Surface("api-bulk", address_of(request.META))
    results = bulk.decide_all(bearer, Answer(sent.answer), items, reason=sent.reason, via=via)
    told = [
        {
            "id": str(one.item.request),
            "outcome": one.outcome,
            "detail": one.detail,
            "problem": one.problem or None,
        }
        for one in results
    ]
    return replies.reply({"items": told})


@router.get(
    "/approvals/{approval}",
    response=ApprovalInFull,
    summary="Look at one question",
    openapi_extra=takes(None, problems=(403, 404)),
)
def get_approval(request: HttpRequest, approval: str) -> HttpResponse:
    """For people: what was asked, what was answered, and whether you can."""
    _, person = _person(request)
    found = _find(access.owned(approval, "approval"))
    document = queries.in_full(found, person, addresses.absolute(request))
    told = queries_policy.told(found) | queries_rejections.told(found)
    return replies.reply(document | told)


@router.post(
    "/approvals/{approval}/approve",
    response=DecidedDocument,
    summary="Say yes to exactly this",
    openapi_extra=_takes_decision(NewApproval),
)
def approve(request: HttpRequest, approval: str) -> HttpResponse:
    """The digest is what you saw; if something else would run now, nothing is approved.

    With `args`, edited arguments: they supersede the request by a new one under a new digest,
    which has your yes and is what is answered. Others who are needed must agree to that one.
    """
    bearer, person = _person(request)
    approval_id = access.owned(approval, "approval")
    sent = read(request, NewApproval)
    if sent.args is None and "args" in sent.model_fields_set:
        raise InvalidArgs("args must be a JSON object, and this is null.", errors=[NO_OBJECT])
    decided = deciding.approve(
        bearer,
        approval_id,
        args_digest=sent.args_digest,
        reason=sent.reason,
        args=sent.args,
        via=_surface(request),
    )
    return _answer(request, decided, person)


@router.post(
    "/approvals/{approval}/reject",
    response=DecidedDocument,
    summary="Say no",
    openapi_extra=_takes_decision(),
)
def reject(request: HttpRequest, approval: str) -> HttpResponse:
    """With a reason. Until the step is started, a no also beats an earlier yes."""
    return _decide(request, approval, deciding.reject)


@router.post(
    "/approvals/{approval}/request-change",
    response=DecidedDocument,
    summary="Ask the agent for another version",
    openapi_extra=_takes_decision(),
)
def request_change(request: HttpRequest, approval: str) -> HttpResponse:
    """The agent gets the reason as its text, and the saga waits for its next version."""
    return _decide(request, approval, deciding.request_change)


@router.post(
    "/approvals/{approval}/reopen",
    response=DecidedDocument,
    summary="Let it be asked for again",
    openapi_extra=_takes_decision(),
)
def reopen(request: HttpRequest, approval: str) -> HttpResponse:
    """After a no: the agent may propose exactly this again, and people are asked again."""
    return _decide(request, approval, reopening.reopen)


def _decide(request: HttpRequest, approval: str, decide: Decide) -> HttpResponse:
    bearer, person = _person(request)
    approval_id = access.owned(approval, "approval")
    sent = read(request, NewDecision)
    decided = decide(
        bearer,
        approval_id,
        args_digest=sent.args_digest,
        reason=sent.reason,
        via=_surface(request),
    )
    return _answer(request, decided, person)


def _surface(request: HttpRequest) -> Surface:
    return Surface("api", address_of(request.META))


def _answer(request: HttpRequest, decided: Decided, person: Person) -> HttpResponse:
    """The request that the answer counts for: after an edit, the new one."""
    found = _find(decided.request)
    document = _document(request, found, person) | {"replayed": decided.replayed}
    return replies.reply(document, 200, _REPLAYED if decided.replayed else None)


def _person(request: HttpRequest) -> tuple[Bearer, Person]:
    """The caller, who must be a person."""
    bearer = access.caller(request)
    if bearer.is_agent:
        raise Forbidden("An agent's token can never see or decide approvals. A person must.")
    return bearer, who(bearer)


def _find(approval: UUID) -> Approval:
    found = queries.find(approval)
    if found is None:
        raise access.nothing("approval")
    return found


def _document(request: HttpRequest, found: Approval, person: Person) -> Document:
    return queries.document(found, person, addresses.absolute(request))
