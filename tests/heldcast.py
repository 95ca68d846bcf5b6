"""Steps that were to be sent again, to find out, and are not: their yes is void meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ledger import storage
from ledger.actions import Action
from ledger.models import EffectClaim, Step
from ledger.outcomes import Done
from ledger.rows import SagaRow, StepRow
from ledger.services.cases import cases
from ledger.services.closing import abort
from ledger.services.reconciling import hold_for_operator
from ledger.services.settling import ask_again
from ledger.services.unit import Unit
from ledger.states import StepState
from tests.doubtcast import CUT, due_now
from tests.policycast import under
from tests.registered import registered
from tests.stage import Stage

TOOLS = """
[tools."orders.hold"]
version = "1"
tier = "compensatable"
blast_radius = "low"
effect_key = "hold:{args.id}"
downstream_idempotent = true
retries = 3
[tools."orders.hold".args]
type = "object"
properties = { id = { type = "string" }, amount = { type = "integer" } }
[tools."orders.hold".execute]
method = "POST"
url = "https://orders.example/hold"
[tools."orders.hold".compensate]
method = "POST"
url = "https://orders.example/release"
"""
RULE = """
[[rule]]
name = "{name}"
tool = "orders.hold"
direction = "{direction}"
verdict = "ask"
need = [ {{group = "approvers", count = 1}} ]
"""


@pytest.fixture(name="stage")
def a_stage(db: None, settings: Any, tmp_path: Path) -> Iterator[Stage]:
    rule = RULE.format(name="now", direction="forward")
    with registered(settings, tmp_path, TOOLS), under(rule):
        yield Stage()


def held_doubt(stage: Stage) -> tuple[UUID, UUID]:
    """A step whose approved attempt was cut off, and whose policy changed before the next."""
    saga = stage.saga()
    with under(RULE.format(name="then", direction="forward")):
        step = stage.propose(saga, "hold", "orders.hold", {"id": "7"})
        stage.decide(step)
        stage.answer(stage.claim(), CUT)
    due_now()
    assert stage.claim() == []
    return saga, step


def held_undo(stage: Stage) -> tuple[UUID, UUID]:
    """The same about an undo."""
    saga = stage.saga()
    with under(RULE.format(name="then", direction="compensate")):
        step = stage.propose(saga, "hold", "orders.hold", {"id": "7"})
        stage.answer(stage.claim(), Done({"id": "h1"}))
        abort(saga, "enough", bearer=stage.agent)
        stage.decide(step)
        stage.answer(stage.claim(), CUT)
    due_now()
    with under(RULE.format(name="now", direction="compensate")):
        assert stage.claim() == []
    return saga, step


def as_earlier_releases_left_it(step: UUID, *, asked: bool = False) -> None:
    """Stuck, though it is in doubt; and, tried again from there, with people."""
    _leave(step, asked=asked)


@storage.transition
def _leave(step: UUID, *, asked: bool) -> None:
    unit, saga, row = _locked(step)
    unit.move(row, StepState.STUCK, "step.stuck", error="its yes is void")
    hold_for_operator(unit, saga, row, "its yes is void")
    if asked:
        row.held_why = ""
        ask_again(unit, saga, row, "An operator tries it again.")
    unit.flush()


@storage.transition
def fail_it(step: UUID) -> None:
    """As no service may while a promise is open."""
    unit, _, row = _locked(step)
    row.error = {"code": "failed", "detail": "somebody forgot"}
    unit.move(row, StepState.FAILED, "step.failed", error="somebody forgot")
    unit.flush()


def _locked(step: UUID) -> tuple[Unit, SagaRow, StepRow]:
    unit = Unit("a test")
    unit.lock_with_steps([step])
    row = unit.steps[step]
    return unit, unit.sagas[row.saga_id], row


def offered(step: UUID) -> set[Action]:
    return {offer.action for offer in cases([step])[step].offers}


def keeps_its_effect(step: UUID) -> bool:
    return EffectClaim.objects.filter(step=step, released_at=None).exists()


def row_of(step: UUID) -> Step:
    return Step.objects.get(pk=step)
