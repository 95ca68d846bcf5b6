"""For machines that look after machines: alive, ready, and the numbers. No token."""

from __future__ import annotations

import functools
from collections.abc import Callable

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from ledger.metrics import REGISTRY

# A load balancer asks every few seconds and gives up after one or two.
REDIS_TIMEOUT_S = 1


@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """The process answers. It asks nothing of anybody: a dead database is no reason to kill it."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """200 when steps can be taken and worked on; 503 naming what is missing."""
    checks: dict[str, Callable[[], str]] = {
        "database": _database,
        "migrations": _migrations,
        "redis": _redis,
    }
    faults = {name: fault for name, check in checks.items() if (fault := check())}
    if faults:
        return JsonResponse({"status": "not ready", "faults": faults}, status=503)
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text: this process's requests, and the ledger's gauges."""
    return HttpResponse(generate_latest(REGISTRY), content_type=CONTENT_TYPE_LATEST)


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return _line(error)
    return ""


def _migrations() -> str:
    try:
        _all_applied()
    except DatabaseError as error:
        return _line(error)
    except _Pending as pending:
        return f"not applied: {pending}"
    return ""


class _Pending(Exception):
    """Names the first migrations that are missing."""


@functools.cache
def _all_applied() -> None:
    # Cached once true (an exception is not cached): a database is not unmigrated under us.
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if plan:
        raise _Pending(", ".join(f"{one.app_label}.{one.name}" for one, _ in plan[:3]))


def _redis() -> str:
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL,
            socket_connect_timeout=REDIS_TIMEOUT_S,
            socket_timeout=REDIS_TIMEOUT_S,
        ) as client:
            client.ping()
    except redis.RedisError as error:
        return _line(error)
    return ""


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
