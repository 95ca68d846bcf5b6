"""An operator's stop and its end. What is in flight finishes and is recorded (rule 5.13)."""

from __future__ import annotations

import difflib
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q

from ledger import errors, storage
from ledger.models import Agent, Freeze, Saga, ToolVersion
from ledger.models.fields import ClockTimestamp
from ledger.reasons import needed
from ledger.services.forward import resume
from ledger.services.unit import Unit
from ledger.states import SagaState
from ledger.tools.installed import registry


@storage.transition
def freeze(
    scope: str, value: str, *, reason: str, expires_at: datetime | None = None, actor: str
) -> Freeze:
    """Stop everything, one tool, one agent (by name) or one saga (by id).

    Raises InvalidArgs with the faulty field.
    """
    if scope not in Freeze.SCOPES:
        _refuse("scope", f"must be one of {', '.join(Freeze.SCOPES)}")
    reason = needed(reason, why="everybody who is stopped by it reads it")
    if (scope == "all") != (value == ""):
        _refuse("value", "is needed for every scope but `all`, which takes none")
    if scope == "agent" and not Agent.objects.filter(name=value).exists():
        _refuse("value", f"no agent is named {value!r}")
    if scope == "tool":
        _require_tool(value)
    if expires_at is not None:
        _require_future(expires_at)
    if scope == "saga":
        value = _pause(value, reason, actor)
    return Freeze.objects.create(
        scope=scope, value=value, reason=reason, expires_at=expires_at, created_by=actor
    )


@storage.transition
def lift(freeze_id: UUID, *, actor: str) -> bool:
    """End a freeze; False when it was over already. Raises NotFound."""
    found = Freeze.objects.filter(pk=freeze_id).first()
    if found is None:
        raise errors.NotFound(f"There is no freeze {freeze_id}.")
    ended = Freeze.objects.filter(pk=freeze_id, lifted_at__isnull=True).update(
        lifted_at=ClockTimestamp(), lifted_by=actor
    )
    if ended and found.scope == "saga":
        _resume(UUID(found.value), actor)
    if ended:
        storage.execute("SELECT pg_notify('ledger_outbox', '')")
    return bool(ended)


def expired() -> list[UUID]:
    """The freezes whose time is over: each is then lifted, so that no saga stays paused for it."""
    due = storage.rows(
        "SELECT id FROM ledger_freeze WHERE lifted_at IS NULL AND expires_at <= clock_timestamp() "
        "ORDER BY expires_at"
    )
    return [row.id for row in due]


def active_freezes() -> Any:
    """Freezes in force now, newest first."""
    now = ClockTimestamp()
    return Freeze.objects.filter(
        Q(expires_at__isnull=True) | Q(expires_at__gt=now), lifted_at__isnull=True
    ).order_by("-id")


def _require_tool(key: str) -> None:
    """A stop with a slip of the pen in it would stop nothing, and say that it did."""
    known = {tool.key for tool in registry().all()}
    if key in known or ToolVersion.objects.filter(key=key).exists():
        return
    near = difflib.get_close_matches(key, known, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    _refuse("value", f"no tool is named {key!r}{meant}")


def _require_future(expires_at: datetime) -> None:
    """A stop that is over when it begins would stop nothing, and say that it did."""
    if storage.the_row("SELECT %s <= clock_timestamp() AS over", [expires_at]).over:
        _refuse("expires_at", "must be in the future")


def _pause(value: str, reason: str, actor: str) -> str:
    """Pause a saga, however its id is written; the id as every claim compares it."""
    try:
        saga_id = UUID(value)
    except ValueError:
        _refuse("value", "must be the id of a saga")
    if not Saga.objects.filter(pk=saga_id).exists():
        _refuse("value", f"there is no saga {value}")
    unit = Unit(actor)
    unit.lock([saga_id])
    saga = unit.sagas[saga_id]
    unit.entry(saga, "saga.frozen", reason=reason)
    if saga.state == SagaState.RUNNING:
        unit.move_saga(saga, SagaState.PAUSED, "saga.paused", why=reason)
    unit.flush()
    return str(saga_id)


def _resume(saga_id: UUID, actor: str) -> None:
    unit = Unit(actor)
    unit.lock([saga_id])
    saga = unit.sagas.get(saga_id)
    if saga is None:
        return  # it ended, and has left for the archive: nothing of it waits
    unit.entry(saga, "saga.thawed")
    resume(unit, saga)
    unit.flush()


def _refuse(field: str, why: str) -> None:
    raise errors.InvalidArgs(f"`{field}`: {why}.", errors=[{"pointer": f"/{field}", "detail": why}])
