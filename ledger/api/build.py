"""Putting the API together. Which other apps add routers is said where the apps are chosen."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from django.http import Http404
from django.urls import URLPattern, re_path
from ninja import Router
from ninja.errors import HttpError, ValidationError

from ledger.api import freezes, operating, sagas, steps, tools
from ledger.api.access import TokenAuth
from ledger.api.door import framed, no_such_address
from ledger.api.openapi import ConsoleAPI
from ledger.api.problems import answer_error

DESCRIPTION = """Agents propose steps; the ledger runs each at most once, undoes them in reverse
order when a saga fails, and stops in front of what cannot be undone until a person has said yes.

Every step has an identity of your own choosing within its saga: submit it again, unchanged, as
often as you like. Errors are RFC 9457 problem documents. Times are RFC 3339 UTC."""


def build_api(routers: Iterable[Router] = ()) -> ConsoleAPI:
    """The API with the ledger's routers and those of other apps."""
    api = ConsoleAPI(
        title="Saga Console",
        version=_version(),
        description=DESCRIPTION,
        urls_namespace="api",
        auth=TokenAuth(),
        docs_url=None,
        openapi_url="/openapi.json",
    )

    # The framework has handlers of its own for these, and the most specific one wins.
    for kind in (Exception, Http404, HttpError, ValidationError):
        api.add_exception_handler(kind, answer_error)  # type: ignore[arg-type]
    ours = (steps.router, sagas.router, operating.router, tools.router, freezes.router)
    for router in (*ours, *routers):
        api.add_router("", router)
    return api


def _version() -> str:
    try:
        return version("saga-console")
    except PackageNotFoundError:  # run from a checkout
        return "0"


def urls_of(api: ConsoleAPI) -> tuple[list[URLPattern], str, str]:
    """The API's patterns for `path("api/v1/", …)`, each in its frame, and an end to all others."""
    patterns, app_name, namespace = api.urls
    found: list[Any] = list(patterns)
    for pattern in found:
        pattern.callback = framed(pattern.callback, str(pattern.pattern))
    found.append(re_path(r"", framed(no_such_address, "(none)")))
    return found, app_name, namespace
