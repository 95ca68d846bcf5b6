"""The site map: what each app serves is said in the app's own urls."""

from __future__ import annotations

from importlib.util import find_spec

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

# The API first: each that does not know an address costs a request 0.03 ms.
_APPS = ("saga_console.api", "saga_console.edges", "approvals.urls", "ledger.urls")

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include(name)) for name in _APPS if find_spec(name)
]
# Last: the edges give the admin the console's own login.
urlpatterns += [path("admin/", admin.site.urls)]
