"""Pages that only list: tools, agents, and the chains of the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from ledger.queries import archived, pages_operations, pages_sagas
from ledger.tools.contract import Tool
from ledger.tools.installed import registry
from ledger.views.people import right_to_operate


@dataclass(frozen=True, slots=True)
class ToolLine:
    """One tool for people: registered here, or known from steps that once ran it."""

    key: str
    title: str
    version: str
    digest: str
    tier: str
    blast_radius: str
    schema: Mapping[str, Any]
    undo: str
    doubt: str = ""
    effect_key: str = ""
    resource: str = ""
    timeout_s: float = 0
    retries: int = 0
    is_registered: bool = True
    versions: Sequence[Any] = field(default=())


def _undo(tool: Tool) -> str:
    if tool.can_compensate:
        return "Undone by its own compensation."
    if tool.can_correct:
        return "Cannot be undone; a correction can be sent."
    return "Cannot be undone."


def _doubt(tool: Tool) -> str:
    ways = []
    if tool.can_probe():
        ways.append("looks at the target")
    if tool.downstream_idempotent:
        ways.append("sends again under the same key")
    return ", then ".join([*ways, "asks an operator"])


def _line(tool: Tool, versions: Sequence[Any]) -> ToolLine:
    return ToolLine(
        key=tool.key,
        title=tool.title,
        version=tool.version,
        digest=tool.digest,
        tier=tool.tier,
        blast_radius=tool.blast_radius,
        schema=tool.args_schema,
        undo=_undo(tool),
        doubt=_doubt(tool),
        effect_key=tool.effect_key or "",
        resource=tool.resource or "",
        timeout_s=tool.timeout_s,
        retries=tool.retries,
        versions=versions,
    )


def _unregistered(key: str, versions: Sequence[Any]) -> ToolLine:
    newest = versions[0]
    told = newest.definition
    return ToolLine(
        key=key,
        title=told.get("title") or key,
        version=newest.version,
        digest=newest.digest,
        tier=told.get("tier", ""),
        blast_radius=told.get("blast_radius", ""),
        schema=told.get("args", {}),
        undo="No longer registered here: its steps wait, parked, until it is again.",
        is_registered=False,
        versions=versions,
    )


def tools(request: HttpRequest) -> HttpResponse:
    known = pages_sagas.tool_versions()
    here = registry()
    lines = [_line(tool, known.get(tool.key, ())) for tool in here.all()]
    lines += [_unregistered(key, seen) for key, seen in known.items() if key not in here]
    return render(request, "ledger/tools.html", {"tools": lines})


def agents(request: HttpRequest) -> HttpResponse:
    return render(request, "ledger/agents.html", {"rows": pages_sagas.agents()})


def ledger(request: HttpRequest) -> HttpResponse:
    context = {
        "checkpoints": pages_operations.checkpoints(),
        "heads": pages_operations.chain_heads(),
        "exports": archived.exports(),
        **right_to_operate(request),
    }
    return render(request, "ledger/ledger.html", context)
