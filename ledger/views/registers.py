"""Pages that only list: agents, and the chains of the ledger."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from ledger.queries import archived, pages_operations, pages_sagas


def agents(request: HttpRequest) -> HttpResponse:
    return render(request, "ledger/agents.html", {"rows": pages_sagas.agents()})


def ledger(request: HttpRequest) -> HttpResponse:
    context = {
        "checkpoints": pages_operations.checkpoints(),
        "heads": pages_operations.chain_heads(),
        "exports": archived.exports(),
    }
    return render(request, "ledger/ledger.html", context)
