"""The ledger's pages. Every path needs a session; settings say so once, for all of them."""

from __future__ import annotations

from django.urls import path

from ledger.views import archives, attention, operations, registers, sagas, tools

app_name = "ledger"
urlpatterns = [
    path("sagas/", sagas.saga_list, name="saga-list"),
    path("sagas/<uuid:saga_id>/", sagas.saga_detail, name="saga-detail"),
    path("sagas/<uuid:saga_id>/export.jsonl", archives.export, name="saga-export"),
    path("sagas/<uuid:saga_id>/acknowledge", archives.acknowledge, name="acknowledge"),
    path("attention/", attention.attention, name="attention"),
    path("attention/<uuid:step_id>/resolve", attention.resolve, name="resolve"),
    path("attention/<uuid:step_id>/retry", attention.retry, name="retry"),
    path("tools/", tools.tools, name="tools"),
    path("tools/<str:key>/", tools.tool, name="tool"),
    path("tools/<str:key>/drill", tools.drill, name="drill"),
    path("attention/<uuid:step_id>/confirm", attention.confirm, name="confirm"),
    path("attention/<uuid:step_id>/skip", attention.skip, name="skip"),
    path("attention/<uuid:step_id>/acknowledge", attention.acknowledge, name="acknowledge"),
    path("agents/", registers.agents, name="agents"),
    path("operations/", operations.operations, name="operations"),
    path("operations/freezes", operations.freeze, name="freeze"),
    path("operations/freezes/<uuid:freeze_id>/lift", operations.lift, name="lift"),
    path("ledger/", registers.ledger, name="ledger"),
]
