from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from approvals import queries_pages
from approvals.queries_pages import RequestRow
from approvals.services import bulk
from approvals.services.bulk import Item, Result
from approvals.states import Answer
from approvals.views import presence
from approvals.views.viewer import person_of
from ledger.errors import InvalidArgs, SagaError
from ledger.views.people import bearer_of

_WORDS = {Answer.APPROVE: "Approve", Answer.REJECT: "Reject"}


@require_http_methods(["GET", "HEAD", "POST"])
def decide_many(request: HttpRequest) -> HttpResponse:
    """First the list of what was ticked, as it was seen; then, on a second press, the answers.

    Only a POST decides; whoever opens or reloads this address is shown the inbox.
    """
    if request.method != "POST":
        return redirect("approvals:inbox")
    try:
        answer, items = _asked(request)
    except InvalidArgs as error:
        return _show(request, None, [], refusal=error)
    if request.POST.get("sure") != "yes":
        return _show(request, answer, items)
    try:
        presence.step_up(request)
        results = bulk.decide_all(
            bearer_of(request),
            answer,
            items,
            reason=request.POST.get("reason", "").strip(),
            via=presence.surface(request, bulk=True),
        )
    except SagaError as error:
        return _show(request, answer, items, refusal=error)
    return _show(request, answer, items, results=results)


def _asked(request: HttpRequest) -> tuple[Answer, list[Item]]:
    """What was ticked: ids with the digests that were on the page. Raises InvalidArgs."""
    try:
        answer = Answer(request.POST.get("answer", ""))
        items = [
            Item(UUID(request_id), digest)
            for one in request.POST.getlist("item")
            for request_id, _, digest in [one.partition(":")]
        ]
    except ValueError:
        raise InvalidArgs("This form cannot be read; go back to the inbox.") from None
    if answer not in _WORDS:
        raise InvalidArgs("In bulk the answer is approve or reject.")
    if not items:
        raise InvalidArgs("Nothing was ticked. Go back and tick what you want to answer.")
    if len(items) > bulk.MAX_ITEMS:
        raise InvalidArgs(f"At most {bulk.MAX_ITEMS} at once.")
    return answer, items


def _show(
    request: HttpRequest,
    answer: Answer | None,
    items: Sequence[Item],
    *,
    refusal: SagaError | None = None,
    results: Sequence[Result] = (),
) -> HttpResponse:
    found = queries_pages.these([item.request for item in items], person_of(request)).rows
    rows = {row.id: row for row in found}
    told = {result.item.request: result for result in results}
    lines = [
        (item, rows.get(item.request), _hurdle(answer, item, rows), told.get(item.request))
        for item in items
    ]
    radii = {row.approval.blast_radius for row in found if not _hurdle(answer, row_item(row), rows)}
    context = {
        "answer": answer,
        "verb": _WORDS[answer] if answer else "",
        "lines": lines,
        "able": sum(1 for _, _, hurdle, _ in lines if not hurdle),
        "counts": [
            (outcome, sum(1 for one in results if one.outcome == outcome))
            for outcome in ("applied", "skipped", "failed")
        ],
        "is_done": bool(results),
        "needs_password": any(presence.needs_password(request, radius) for radius in radii),
        "refusal": refusal,
        "wrong_password": presence.password_fault(refusal),
        "reason": request.POST.get("reason", ""),
    }
    status = refusal.status if refusal else 200
    return render(request, "approvals/bulk.html", context, status=status)


def row_item(row: RequestRow) -> Item:
    """A request as a page shows it now."""
    return Item(row.id, row.approval.args_digest)


def _hurdle(answer: Answer | None, item: Item, rows: dict[UUID, RequestRow]) -> str:
    """Why pressing would do nothing about this one, or ''. The service has the last word."""
    row = rows.get(item.request)
    if row is None:
        return "There is no such request."
    if row.approval.args_digest != item.args_digest:
        return "What would run is no longer what you were shown."
    alone = bulk.why_alone(row.approval) if answer == Answer.APPROVE else ""
    return row.why_not or alone
