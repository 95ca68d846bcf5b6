"""The tools that a step may name."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from ledger.api import access, replies
from ledger.api.answered import ToolPage
from ledger.api.openapi import takes
from ledger.api.wishes import Limit, Name
from ledger.queries.paging import MAX_LIMIT, page
from ledger.tools.installed import registry

router = Router(tags=["tools"])


@router.get(
    "/tools",
    response=ToolPage,
    summary="List tools by name",
    openapi_extra=takes(None, problems=(422,)),
)
def list_tools(
    request: HttpRequest,
    cursor: Annotated[Name, Query("")],
    limit: Annotated[Limit, Query(MAX_LIMIT)],
) -> HttpResponse:
    """An agent sees those that its token may propose."""
    bearer = access.caller(request)
    tools = registry().all()
    seen = [tool for tool in tools if tool.key > cursor and bearer.may_use(tool.key)]
    items = [
        {
            "name": tool.key,
            "title": tool.title,
            "version": tool.version,
            "tier": tool.tier,
            "blast_radius": tool.blast_radius,
            "args_schema": tool.args_schema,
        }
        for tool in seen[: limit + 1]
    ]
    return replies.reply(page(items, limit, lambda tool: tool["name"]))
