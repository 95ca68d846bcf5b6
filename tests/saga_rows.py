"""Sagas in chosen states, written as the engine would: each state with the entry that tells it."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.db import connection, transaction
from django.utils import timezone

from ledger.models import Agent, Attempt, Saga, Step, ToolVersion
from ledger.states import SAGA_ENDED, SagaState, StepState

S = StepState
# The shortest legal way to each state.
PATHS: dict[StepState, tuple[StepState, ...]] = {
    S.WAITING: (S.WAITING,),
    S.AWAITING_APPROVAL: (S.AWAITING_APPROVAL,),
    S.CHANGE_REQUESTED: (S.AWAITING_APPROVAL, S.CHANGE_REQUESTED),
    S.QUEUED: (S.QUEUED,),
    S.EXECUTING: (S.QUEUED, S.EXECUTING),
    S.UNKNOWN: (S.QUEUED, S.EXECUTING, S.UNKNOWN),
    S.COMMITTED: (S.QUEUED, S.EXECUTING, S.COMMITTED),
    S.FAILED: (S.QUEUED, S.EXECUTING, S.FAILED),
    S.REJECTED: (S.AWAITING_APPROVAL, S.REJECTED),
    S.CANCELLED: (S.WAITING, S.CANCELLED),
    S.COMPENSATING: (S.QUEUED, S.EXECUTING, S.COMMITTED, S.COMPENSATING),
    S.COMPENSATED: (S.QUEUED, S.EXECUTING, S.COMMITTED, S.COMPENSATING, S.COMPENSATED),
    S.CORRECTED: (S.QUEUED, S.EXECUTING, S.COMMITTED, S.COMPENSATING, S.CORRECTED),
    S.STUCK: (S.QUEUED, S.EXECUTING, S.STUCK),
}
KINDS = {
    S.WAITING: "step.proposed",
    S.AWAITING_APPROVAL: "approval.requested",
    S.QUEUED: "step.queued",
    S.EXECUTING: "attempt.started",
    S.COMMITTED: "step.committed",
    S.COMPENSATING: "compensation.started",
}


def entry(saga: Saga, kind: str, step_id: str = "", actor: str = "clock", **payload: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO ledger_entry (saga_id, kind, step_id, actor, payload)"
            " VALUES (%s, %s, %s, %s, %s)",
            [saga.pk, kind, step_id, actor, json.dumps(payload, sort_keys=True)],
        )


def agent(name: str = "refund-desk") -> Agent:
    return Agent.objects.get_or_create(name=name)[0]


@transaction.atomic
def saga(name: str = "Refund order 8841", *, by: Agent | None = None, task_id: str = "") -> Saga:
    by = by or agent()
    opened = Saga.objects.create(
        agent=by,
        task_id=task_id or f"task-{uuid4().hex[:8]}",
        name=name,
        opened_digest=hashlib.sha256(name.encode()).hexdigest(),
        retry_budget=20,
        started_by=f"agent:{by.name}",
    )
    entry(opened, "saga.opened", actor=f"agent:{by.name}", state="running", name=name)
    return opened


def tool_version(key: str, tier: str, blast_radius: str, title: str) -> ToolVersion:
    definition = {"title": title, "tier": tier, "blast_radius": blast_radius, "args": {}}
    text = json.dumps([key, definition], sort_keys=True)
    made = {"key": key, "version": "1", "definition": definition}
    digest = hashlib.sha256(text.encode()).hexdigest()
    return ToolVersion.objects.get_or_create(digest=digest, defaults=made)[0]


@transaction.atomic
def step(
    of: Saga,
    step_id: str,
    state: StepState,
    *,
    tool: str = "payments.charge",
    title: str = "Charge a customer",
    tier: str = "compensatable",
    blast_radius: str = "medium",
    args: dict[str, Any] | None = None,
    result: Any = None,
    **fields: Any,
) -> Step:
    args = args or {"customer": "cus_81", "amount": 250_000, "currency": "eur"}
    text = json.dumps(args, sort_keys=True)
    of.refresh_from_db()
    path = PATHS[state]
    made = Step.objects.create(
        saga=of,
        step_id=step_id,
        position=of.step_count + 1,
        tool=tool,
        tool_version=tool_version(tool, tier, blast_radius, title),
        tier=tier,
        blast_radius=blast_radius,
        args_text=text,
        args=args,
        fingerprint=hashlib.sha256(text.encode()).hexdigest(),
        idempotency_key=hashlib.sha256(f"{of.pk}{step_id}".encode()).hexdigest(),
        verdict="ask" if S.AWAITING_APPROVAL in path else "allow",
        verdict_rule="default",
        policy_digest="0" * 64,
        state=path[0],
        **fields,
    )
    Saga.objects.filter(pk=of.pk).update(step_count=made.position)
    who = f"agent:{of.agent.name}"
    entry(of, "step.proposed", step_id, actor=who, state=path[0].value, tool=tool)
    for now in path[1:]:
        _move(of, made, now, result)
    return made


def _move(of: Saga, made: Step, now: StepState, result: Any) -> None:
    """One edge, with the attempt that belongs to it."""
    moment = timezone.now()
    made.state = now.value
    if now in (S.EXECUTING, S.COMPENSATING):
        made.attempts, made.fence = made.attempts + 1, made.fence + 1
        Attempt.objects.create(
            step=made,
            direction="forward" if now is S.EXECUTING else "compensate",
            fence=made.fence,
            token=uuid4(),
            idempotency_key=made.idempotency_key,
            shift_id=uuid4(),
            started_at=moment,
            lease_until=moment + timedelta(seconds=30),
        )
    else:
        outcome = {S.UNKNOWN: "unknown", S.FAILED: "failed", S.STUCK: "failed"}.get(now, "done")
        made.tries.filter(state="started").update(state=outcome, ended_at=moment)
    if now is S.COMMITTED:
        made.executed_at = moment
        made.executed_seq = Saga.objects.values_list("head_seq", flat=True).get(pk=of.pk) + 1
        made.result_text = json.dumps(result or {"id": "ch_3PqLw81"})
    if now in (S.FAILED, S.STUCK, S.UNKNOWN):
        made.error = {"error": "the target answered 500", "retryable": False}
    made.save()
    entry(of, KINDS.get(now, f"step.{now.value}"), made.step_id, state=now.value)


@transaction.atomic
def saga_state(of: Saga, *states: SagaState, why: str = "") -> None:
    for now in states:
        ended = timezone.now() if now in SAGA_ENDED else None
        Saga.objects.filter(pk=of.pk).update(
            state=now, ended_at=ended, ended_backward_why=why
        )
        entry(of, f"saga.{now.value}", state=now.value, why=why)
    of.refresh_from_db()
