"""Pages of what was archived, and a saga as a file that anybody can verify."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from uuid import UUID

from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render

from ledger.errors import InvalidArgs, NotFound
from ledger.exports import BadExport
from ledger.queries import archived
from ledger.services.acknowledging import acknowledge_residue
from ledger.services.exporting import write_one
from ledger.views.people import bearer_of, pressed, right_to_operate


def archived_saga(request: HttpRequest, saga_id: UUID) -> HttpResponse:
    """What is known here of a saga that has left. Raises Http404."""
    tombstone = archived.tombstone(saga_id)
    if tombstone is None:
        raise Http404("There is no saga with this id.")
    context = {
        "tombstone": tombstone,
        "steps": archived.step_tombstones(saga_id),
        "late": archived.late_words(saga_id),
        "is_there": (Path(tombstone.folder) / tombstone.export).exists(),
        **right_to_operate(request),
    }
    return render(request, "ledger/saga_archived.html", context)


def export(request: HttpRequest, saga_id: UUID) -> HttpResponseBase:
    """One saga as an export, wherever it is. All of it, so for those who may operate."""
    if not right_to_operate(request)["can_operate"]:
        return render(request, "403.html", status=403)
    # Without its name from here on: the disk has it back when the answer has been sent.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "export.jsonl"
        try:
            write_one(saga_id, path, actor=bearer_of(request).actor)
        except NotFound as error:
            raise Http404(error.detail) from None
        except BadExport as error:
            raise Http404(f"The export cannot be read: {error}") from None
        file: Any = path.open("rb")
    return FileResponse(
        file, as_attachment=True, filename=f"{saga_id}.jsonl", content_type="application/jsonl"
    )


@pressed("ledger:saga-list")
def acknowledge(request: HttpRequest, saga_id: UUID) -> str:
    reason = request.POST.get("reason", "").strip()
    if not reason:
        raise InvalidArgs("Say what became of it: the reason is kept in the ledger.")
    acknowledge_residue(saga_id, reason=reason, actor=bearer_of(request).actor)
    return "The residue is acknowledged; the saga may be archived when it is old."
