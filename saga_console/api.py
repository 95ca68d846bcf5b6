"""Which routers make up the API of this installation, and where it and the probes live."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from django.urls import path, re_path

from ledger.api.build import build_api, urls_of
from ledger.api.door import framed, no_such_address
from ledger.api.health import healthz, metrics, readyz

# approvals stands on the ledger, so the ledger cannot name it: it is named here.
_ROUTERS = ("approvals.api",)

api = build_api(import_module(name).router for name in _ROUTERS if find_spec(name))

urlpatterns = [
    path("api/v1/", urls_of(api)),
    re_path(r"^api/", framed(no_such_address, "(none)")),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
]
