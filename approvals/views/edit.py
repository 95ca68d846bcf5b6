"""Edit and approve, in two pages: the typed form, and what exactly would then run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from approvals import queries_rejections
from approvals.argsform import form
from approvals.argsread import read
from approvals.argsvalues import add_to, remove_from
from approvals.queries_pages import RequestRow
from approvals.services import deciding, editing, unmasking
from approvals.services.entitling import StepUpNeeded
from approvals.views import detail, differences, presence
from ledger import keys
from ledger.errors import InvalidArgs, PreviouslyRejected, RateLimited, SagaError
from ledger.jsontext import parse_json
from ledger.queries.shown import args_of
from ledger.states import Direction
from ledger.templatetags.values import folded_paths
from ledger.tools.schemas import ARGS
from ledger.views.people import bearer_of

NO_CHANGE = "Nothing was changed. To let exactly this run, approve the request itself."


def can_edit(row: RequestRow) -> bool:
    """Whether this person may put another version in the place of what is asked."""
    return row.is_open and row.can_decide and row.approval.direction == Direction.FORWARD


@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Each press of a button sends the whole form; only `approve` writes anything."""
    row = detail.row_of(request, approval_id)
    do = request.POST.get("do", "")
    if do == "approve":
        return _approve(request, row)
    if not can_edit(row):
        return redirect("approvals:approval-detail", approval_id)
    if request.method != "POST":
        return _form(request, row, row.args, {}, as_json=request.GET.get("as") == "json")
    if do == "back":
        return _form(request, row, _args(request), {}, as_json=False)
    value, faults = read(request.POST)
    verb, _, place = do.partition(":")
    as_json = request.POST.get("k:") == "json" and verb != "fields"
    if verb in ("add", "remove"):
        change = {"add": lambda: add_to(value, place, _schema(row))}
        value = change.get(verb, lambda: remove_from(value, place))()
        return _form(request, row, value, {}, as_json=as_json)
    if verb != "review":
        return _form(request, row, value, {}, as_json=as_json or verb == "json")
    return _review(request, row, value, faults, as_json=as_json)


def _review(
    request: HttpRequest, row: RequestRow, value: Any, faults: dict[str, str], *, as_json: bool
) -> HttpResponse:
    if faults:
        return _form(request, row, value, faults, as_json=as_json)
    try:
        found = editing.review(bearer_of(request), row.approval, value)
    except InvalidArgs as error:
        told = error.extra.get("errors") or []
        faults = {fault["pointer"].removeprefix(ARGS): fault["detail"] for fault in told}
        return _form(request, row, value, faults, as_json=as_json, refusal=error)
    except PreviouslyRejected as error:
        return _form(request, row, value, {}, as_json=as_json, refusal=error)
    if not found.is_news:
        return _form(request, row, value, {}, as_json=as_json, refusal=InvalidArgs(NO_CHANGE))
    return _reviewed(request, row, found)


def _reviewed(
    request: HttpRequest,
    row: RequestRow,
    found: editing.Review,
    refusal: SagaError | None = None,
) -> HttpResponse:
    others = sum(need["count"] for need in found.needs) - 1
    args = json.loads(found.args_text)
    shown = args_of(args, row.approval.tool, row.approval.tool_digest)
    sent = unmasking.as_shown(row.approval, args)
    context = _shared(row) | {
        "found": found,
        "lines": differences.changed(row.args, shown),
        "shown_text": json.dumps(shown, ensure_ascii=False),
        "sent_text": json.dumps(sent, ensure_ascii=False),
        "has_secrets": shown != args,
        "others": others,
        "groups": ", ".join(need["group"] for need in found.needs),
        "folded": folded_paths(shown),
        "needs_password": presence.needs_password(request, row.approval.blast_radius),
        "needs_understanding": row.approval.is_final,
        "reason": request.POST.get("reason", ""),
        "refusal": refusal,
        "wrong_password": presence.password_fault(refusal),
    }
    status = refusal.status if refusal else 200
    return render(request, "approvals/edit_review.html", context, status=status)


def _approve(request: HttpRequest, row: RequestRow) -> HttpResponse:
    """The yes to what the review showed, by its digest."""
    args = _args(request)
    try:
        said = unmasking.meant(row.approval, args)
        if keys.fingerprint(keys.canonical(said)) != request.POST.get("edited_digest"):
            raise InvalidArgs("This is not what the review showed. Edit it again.")
        if can_edit(row):
            shown = args_of(said, row.approval.tool, row.approval.tool_digest)
            detail.check_yes(request, row, shown)
        presence.step_up(request)
        decided = deciding.approve(
            bearer_of(request),
            row.id,
            args_digest=request.POST.get("args_digest", ""),
            reason=request.POST.get("reason", "").strip(),
            args=args,
            via=presence.surface(request),
        )
    except (InvalidArgs, StepUpNeeded, RateLimited) as error:
        row = detail.row_of(request, row.id)
        if not can_edit(row):
            return detail.page(request, row, refusal=error)
        try:
            found = editing.review(bearer_of(request), row.approval, args)
        except SagaError:
            return _form(request, row, args, {}, as_json=False, refusal=error)
        return _reviewed(request, row, found, error)
    except SagaError as error:
        return detail.page(request, detail.row_of(request, row.id), refusal=error)
    return redirect("approvals:approval-detail", decided.request)


def _args(request: HttpRequest) -> Any:
    try:
        found = parse_json(request.POST.get("args_text", "").encode("utf-8", "surrogatepass"))
    except SagaError:
        return {}
    return found if isinstance(found, dict) else {}


def _schema(row: RequestRow) -> Mapping[str, Any]:
    """Of the tool as it was when the step was proposed: that is what runs."""
    definition = row.step.tool_version.definition
    if definition.get("key", row.approval.tool) != row.approval.tool:
        return {}
    schema: Mapping[str, Any] = definition.get("args") or {}
    return schema


def _form(
    request: HttpRequest,
    row: RequestRow,
    value: Any,
    faults: Mapping[str, str],
    *,
    as_json: bool,
    refusal: SagaError | None = None,
) -> HttpResponse:
    parts = form(_schema(row), value, row.args, faults, as_json=as_json)
    context = _shared(row) | {
        "parts": parts,
        "as_json": parts[0].kind == "json",
        "faults": faults,
        "refusal": refusal,
        "lost": [where for where in faults if where not in {part.pointer for part in parts}],
    }
    status = refusal.status if refusal else 422 if faults else 200
    return render(request, "approvals/edit.html", context, status=status)


def _shared(row: RequestRow) -> dict[str, Any]:
    # After an edit of somebody else it is no longer the agent's version that is asked about.
    was_edited = queries_rejections.edited(row.approval) is not None
    return {
        "old": "Asked about now" if was_edited else "The agent proposed",
        "row": row,
        "step": row.step,
        "edit_url": reverse("approvals:edit", args=[row.id]),
        "detail_url": reverse("approvals:approval-detail", args=[row.id]),
    }
