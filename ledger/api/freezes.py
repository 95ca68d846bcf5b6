"""Freezes: the operators' stop."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from ledger.api import access, replies
from ledger.api.answered import FreezeDocument, FreezePage
from ledger.api.asked import NewFreeze, moment
from ledger.api.bodies import read
from ledger.api.openapi import takes
from ledger.api.wishes import Cursor, Limit
from ledger.queries import listing
from ledger.queries.paging import DEFAULT_LIMIT, uuid_cursor
from ledger.services import freezing

router = Router(tags=["freezes"])


@router.get(
    "/freezes",
    response=FreezePage,
    summary="List what is stopped now",
    openapi_extra=takes(None, problems=(403, 422)),
)
def list_freezes(
    request: HttpRequest,
    cursor: Annotated[Cursor, Query("")],
    limit: Annotated[Limit, Query(DEFAULT_LIMIT)],
) -> HttpResponse:
    """For operators. Newest first."""
    access.operator(request)
    return replies.reply(listing.list_freezes(limit=limit, after=uuid_cursor(cursor)))


@router.post(
    "/freezes",
    response={201: FreezeDocument},
    summary="Stop everything, a tool, an agent or a saga",
    openapi_extra=takes(NewFreeze, problems=(403, 422)),
)
def add_freeze(request: HttpRequest) -> HttpResponse:
    """For operators. Nothing new leaves; what is in flight finishes and is recorded."""
    bearer = access.operator(request)
    asked = read(request, NewFreeze)
    until = None if asked.expires_at is None else moment(asked.expires_at)
    added = freezing.freeze(
        asked.scope, asked.value or "", reason=asked.reason, expires_at=until, actor=bearer.actor
    )
    return replies.reply(listing.freeze(added.pk), 201)


@router.delete(
    "/freezes/{freeze}",
    response={204: None},
    summary="Lift a freeze",
    openapi_extra=takes(None, problems=(403, 404)),
)
def lift_freeze(request: HttpRequest, freeze: str) -> HttpResponse:
    """For operators. Lifting what is lifted changes nothing."""
    bearer, freeze_id = access.operator(request), access.owned(freeze, "freeze")
    freezing.lift(freeze_id, actor=bearer.actor)
    return HttpResponse(status=204)
