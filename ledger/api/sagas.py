"""Sagas: open, look at, list, complete, abort; and their ledger."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from ninja import Query, Router

from ledger import faultpoints
from ledger.api import access, addresses, replies, waiting
from ledger.api.answered import EntryPage, SagaDocument, SagaPage
from ledger.api.asked import Because, NewSaga, Nothing
from ledger.api.bodies import read
from ledger.api.openapi import PREFER, takes
from ledger.api.prefer import parse
from ledger.api.steps import to_proposal
from ledger.api.wishes import Cursor, Limit, Name, SagaStateWish, Seq
from ledger.bearer import Bearer
from ledger.errors import InvalidArgs, MissingStepId, NotFound
from ledger.queries import archived, documents, listing, trace
from ledger.queries.paging import DEFAULT_LIMIT, uuid_cursor
from ledger.services import closing, opening
from ledger.services.proposals import Opening, Proposal

router = Router(tags=["sagas"])
TRACE = takes(None, problems=(404,))
TRACE["responses"][200] = {
    "description": "One event a line, in the order of the ledger (agentack, schema 2).",
    "content": {replies.JSON_LINES: {"schema": {"type": "string"}}},
}


@router.post(
    "/sagas",
    response={200: SagaDocument, 201: SagaDocument},
    summary="Open a saga",
    openapi_extra=takes(NewSaga, PREFER, problems=(400, 413, 422)),
)
def open_saga(request: HttpRequest) -> HttpResponse:
    """201: opened. 200: this agent opened the task before; the same saga, unchanged.

    With `steps` and `Prefer: wait=N` it answers when they have finished, or after N seconds.
    """
    bearer = access.agent(request)
    asked = read(request, NewSaga)
    preference = parse(request.META.get("HTTP_PREFER", ""))
    opened = opening.open_saga(_opening(asked), bearer=bearer)
    faultpoints.reached("P3")
    waited: dict[str, str] = {}
    if asked.steps and preference.wait_s:
        with waiting.seat(preference, opened.saga) as watch:
            if watch is not None:
                watch.wait(_settled(opened.saga), preference.wait_s)
                waited = preference.applied(waited=True)
    document = _found(request, opened.saga, bearer)
    place = {"Location": addresses.origin(request) + f"/api/v1/sagas/{opened.saga}"}
    replayed = {} if opened.created else replies.REPLAYED
    return replies.reply(document, 201 if opened.created else 200, place | replayed | waited)


def _settled(saga_id: UUID) -> Any:
    return waiting.without_connection(lambda: documents.steps_have_settled(saga_id) or None)


def _opening(asked: NewSaga) -> Opening:
    return Opening(
        task_id=asked.task_id,
        name=asked.name,
        metadata=asked.metadata,
        steps=tuple(_proposals(asked)),
        retry_budget=asked.retry_budget,
        webhook=asked.webhook or "",
    )


def _proposals(asked: NewSaga) -> list[Proposal]:
    seen: set[str] = set()
    proposals = []
    for index, step in enumerate(asked.steps):
        if step.step_id is None:
            raise MissingStepId(f"Give `step_id` for the step at /steps/{index}.")
        if step.step_id in seen:
            raise InvalidArgs(
                f"The step_id {step.step_id!r} is there twice. Each step needs its own.",
                errors=[{"pointer": f"/steps/{index}/step_id", "detail": "Already used."}],
            )
        seen.add(step.step_id)
        proposals.append(to_proposal(step, step.step_id))
    return proposals


@router.get(
    "/sagas",
    response=SagaPage,
    summary="List sagas, newest first",
    openapi_extra=takes(None, problems=(422,)),
)
def list_sagas(
    request: HttpRequest,
    task_id: Annotated[Name, Query("")],
    state: Annotated[SagaStateWish, Query("")],
    agent: Annotated[Name, Query("", description="An agent's name.")],
    cursor: Annotated[Cursor, Query("")],
    limit: Annotated[Limit, Query(DEFAULT_LIMIT)],
) -> HttpResponse:
    """An agent sees its own, an operator all. Archived ones are there when `task_id` is given."""
    found = listing.list_sagas(
        absolute=addresses.absolute(request),
        limit=limit,
        after=uuid_cursor(cursor),
        agent_id=access.caller(request).agent_id,
        agent=agent,
        task_id=task_id,
        state=state,
    )
    return replies.reply(found)


@router.get(
    "/sagas/{saga}",
    response=SagaDocument,
    summary="Look at a saga",
    openapi_extra=takes(None, problems=(404,)),
)
def get_saga(request: HttpRequest, saga: str) -> HttpResponse:
    """The saga with its steps, in order."""
    bearer = access.caller(request)
    return replies.reply(_found(request, access.owned(saga, "saga"), bearer))


@router.post(
    "/sagas/{saga}/complete",
    response=SagaDocument,
    summary="Say that no more steps come",
    openapi_extra=takes(Nothing, required=False, problems=(404, 409)),
)
def complete_saga(request: HttpRequest, saga: str) -> HttpResponse:
    """The saga completes once its steps have. Saying it again changes nothing."""
    bearer, saga_id = access.agent(request), access.owned(saga, "saga")
    if request.META.get("CONTENT_LENGTH") not in (None, "", "0"):
        read(request, Nothing)
    closing.complete(saga_id, bearer=bearer)
    return replies.reply(_found(request, saga_id, bearer))


@router.post(
    "/sagas/{saga}/abort",
    response=SagaDocument,
    summary="Turn a saga back",
    openapi_extra=takes(Because, problems=(403, 404, 409, 422)),
)
def abort_saga(request: HttpRequest, saga: str) -> HttpResponse:
    """What it did is undone in reverse order. Past its commitment point it cannot turn back."""
    bearer, saga_id = access.agent(request), access.owned(saga, "saga")
    asked = read(request, Because)
    closing.abort(saga_id, asked.reason, bearer=bearer)
    return replies.reply(_found(request, saga_id, bearer))


@router.get(
    "/sagas/{saga}/ledger",
    response=EntryPage,
    summary="Read a saga's ledger",
    openapi_extra=takes(None, problems=(404, 422)),
)
def list_entries(
    request: HttpRequest,
    saga: str,
    after: Annotated[Seq, Query(0, description="Entries after this number.")],
    cursor: Annotated[Seq, Query(0, description="The same as `after`.")],
    limit: Annotated[Limit, Query(DEFAULT_LIMIT)],
) -> HttpResponse:
    """Oldest first. `next_cursor` is the `after` of the next page."""
    saga_id, bearer = access.owned(saga, "saga"), access.caller(request)
    if not listing.saga_exists(saga_id, agent_id=bearer.agent_id):
        raise _not_here(saga_id, bearer)
    return replies.reply(listing.list_entries(saga_id, after=max(after, cursor), limit=limit))


@router.get(
    "/sagas/{saga}/trace.jsonl",
    summary="Read a saga as an approval-control trace",
    openapi_extra=TRACE,
)
def read_trace(request: HttpRequest, saga: str) -> StreamingHttpResponse:
    """What was proposed, shown to people, answered and sent: `agentack check` judges it.

    Told from the ledger alone. While the saga has not ended, `session_end` is missing.
    """
    saga_id, bearer = access.owned(saga, "saga"), access.caller(request)
    if not listing.saga_exists(saga_id, agent_id=bearer.agent_id):
        raise _not_here(saga_id, bearer)
    return StreamingHttpResponse(
        trace.lines(saga_id),
        content_type=replies.JSON_LINES,
        headers={"Content-Disposition": f'attachment; filename="{saga_id}.trace.jsonl"'},
    )


def _not_here(saga_id: UUID, bearer: Bearer) -> NotFound:
    """The entries of an archived saga are in its export; of others there is nothing."""
    found = archived.tombstone(saga_id, bearer.agent_id)
    if found is None:
        return access.nothing("saga")
    return NotFound(
        f"The saga {found.task_id!r} is archived: its entries are in {found.export}. An operator "
        "can put it back with `manage.py restore`.",
        export=found.export,
        archived_at=documents.stamp(found.at),
    )


def _found(request: HttpRequest, saga_id: UUID, bearer: Bearer) -> documents.Document:
    found = documents.saga(saga_id, absolute=addresses.absolute(request), agent_id=bearer.agent_id)
    if found is None:
        raise access.nothing("saga")
    return found
