"""A step that runs under another version of its tool has that version's tier and blast radius: the
gate judges it as that, and what follows from a pivot follows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ledger import errors
from ledger.models import Saga, Step
from ledger.queries import trace
from ledger.services import operating
from ledger.services.closing import abort
from ledger.services.verifying import verify
from ledger.tools.installed import registry
from tests import deploys
from tests.approvalcast import behind_the_ledger
from tests.deploys import Till, a_till, booking, state_of, step_of
from tests.doubtcast import CUT, ONA, due_now
from tests.policycast import under
from tests.shop import assert_verifies, kinds
from tests.stage import Stage, a_stage

__all__ = ["a_stage", "a_till"]

PIVOTS = """
[[rule]]
name = "pivots"
tier = "pivot"
verdict = "{verdict}"
"""
CHARGES = """
[[rule]]
name = "charges"
tool = "payments.charge"
verdict = "ask"
"""


def confirmed(till: Till, saga: UUID) -> None:
    """The code has become a pivot's, and an operator has confirmed it."""
    till.release("2", tier="pivot")
    till.work()
    assert "Its tier is pivot now and was compensatable." in step_of(saga).held_why
    operating.retry(step_of(saga).pk, reason="I read it", actor=ONA)


def declared(till: Till, saga: UUID) -> None:
    """The code has become a pivot's, and its author says that it may run what the old one ran."""
    till.release("2", tier="pivot", compatible_with=["1"])


HOW = pytest.mark.parametrize("becomes_a_pivot", [confirmed, declared])
Becomes = Callable[[Till, UUID], None]


def work(till: Till) -> None:
    """All that is due, and what became due by it without a call."""
    for _ in range(2):
        due_now()
        till.work()


@HOW
def test_what_has_become_a_pivot_is_one(till: Till, becomes_a_pivot: Becomes) -> None:
    saga = till.open(booking("one"))
    becomes_a_pivot(till, saga)
    work(till)
    step = step_of(saga)
    assert (step.state, step.tier, till.effects()) == ("committed", "pivot", 1)
    assert step.tool_version_id == registry().get("till.book").digest
    assert Saga.objects.get(pk=saga).pivot_position == 1
    with pytest.raises(errors.SagaEnded):
        abort(saga, "no", bearer=till.agent)
    # Nobody had to be asked, so a judge of approval controls misses no request.
    assert trace.NO_REQUEST not in b"".join(trace.lines(saga)).decode()
    assert_verifies()


@HOW
def test_what_has_become_a_pivot_needs_the_yes_of_people_if_a_pivot_does(
    till: Till, becomes_a_pivot: Becomes
) -> None:
    with under(PIVOTS.format(verdict="ask")):
        saga = till.open(booking("one"))
        becomes_a_pivot(till, saga)
        work(till)
    assert (step_of(saga).state, till.effects()) == ("awaiting_approval", 0)
    assert kinds(saga, "approval.requested") == [("approval.requested", "one")]
    assert_verifies()


def test_what_has_become_a_pivot_that_the_policy_denies_does_not_run(
    till: Till,
) -> None:
    with under(PIVOTS.format(verdict="deny")):
        saga = till.open(booking("one"))
        confirmed(till, saga)
        work(till)
    assert (step_of(saga).state, till.effects()) == ("rejected", 0)
    assert state_of(saga) == "compensated"
    assert_verifies()


def test_in_doubt_nothing_is_sent_again_under_code_that_has_become_a_pivot(
    till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the first effect, and nobody was asked about a pivot."""
    monkeypatch.setattr(deploys, "SOURCE", deploys.SOURCE.partition("    def probe")[0])
    dedupes = {"dedupes": True, "dedupes_for_s": 600.0, "retries": 3}
    till.release("1", **dedupes)
    saga = till.open(booking("one"))
    till.answer(till.claim(), CUT)
    till.release("2", tier="pivot", **dedupes)
    due_now()
    till.work()
    operating.retry(step_of(saga).pk, reason="I read it", actor=ONA)
    work(till)
    step = step_of(saga)
    assert (step.attempts, step.tier, till.effects()) == (1, "compensatable", 0)
    assert "to be sent again, to find out" in step.held_why
    assert state_of(saga) == "stuck"
    assert_verifies()


def become_pivots(settings: Any) -> None:
    """The tools file of a release in which a charge cannot be undone any more."""
    file = Path(settings.SAGA_TOOLS)
    tools = file.read_text(encoding="utf-8")
    charge, rest = tools.split('[tools."orders.cancel"]', 1)
    charge = charge.partition('[tools."payments.charge".compensate]')[0]
    charge = charge.replace('"compensatable"', '"pivot"').replace('"medium"', '"high"')
    file.write_text(f'{charge}\n[tools."orders.cancel"]{rest}', encoding="utf-8")
    registry.cache_clear()


def test_people_who_are_asked_about_a_newer_version_are_asked_about_its_tier(
    stage: Stage, settings: Any
) -> None:
    with under(CHARGES):
        saga = stage.saga()
        step = stage.charge(saga)
        stage.decide(step)
        become_pivots(settings)
        assert stage.claim() == []
        request = stage.request(step)
        assert (request.tier, request.blast_radius, request.is_final) == ("pivot", "high", True)
        assert "Its tier is pivot now and was compensatable." in request.why
        assert "Its blast radius is high now and was medium." in request.why
        stage.decide(step)
        stage.work()
    assert Saga.objects.get(pk=saga).pivot_position == 1
    assert_verifies()


def test_an_agents_next_version_has_the_tier_of_the_tool_that_it_is_checked_by(
    stage: Stage, settings: Any
) -> None:
    with under(CHARGES):
        saga = stage.saga()
        step = stage.charge(saga)
        stage.decide(step, "request_change", reason="Less.")
        become_pivots(settings)
        less = {"customer": "cus_81", "amount": 1}
        stage.propose(saga, "charge", "payments.charge", less)
    row = Step.objects.get(pk=step)
    assert (row.revision, row.tier, row.blast_radius) == (2, "pivot", "high")
    assert_verifies()


def test_an_operators_version_has_the_tier_of_the_tool_that_it_is_checked_by(till: Till) -> None:
    with under(PIVOTS.format(verdict="ask")):
        saga = till.open(booking("one"))
        till.release("2", tier="pivot")
        till.work()
        operating.retry(step_of(saga).pk, reason="less", actor=ONA, args={"sum": 1})
        work(till)
    step = step_of(saga)
    assert (step.state, step.tier, till.effects()) == ("awaiting_approval", "pivot", 0)
    assert_verifies()


def forge(step: UUID, column: str, value: str) -> None:
    with behind_the_ledger() as cursor:
        cursor.execute(f"UPDATE ledger_step SET {column} = %s WHERE id = %s", [value, step])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("column", "value"), [("tier", "compensatable"), ("blast_radius", "low")])
def test_a_tier_or_blast_radius_that_was_forged_runs_nothing_and_is_named(
    stage: Stage, column: str, value: str
) -> None:
    saga, step = stage.waiting_refund()
    stage.decide(step)
    forge(step, column, value)
    assert [str(fault) for fault in verify()] == [
        f"saga {saga}, entry 5: step 'refund': its {column} is not the proposed one"
    ]
    assert stage.claim() == []
    assert Step.objects.get(pk=step).state == "stuck"
    assert kinds(saga, "step.revised") == []
