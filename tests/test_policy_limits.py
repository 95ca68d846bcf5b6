"""Limits: taken at the claim, together never over, given back on certainty alone."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection

from approvals.models import Approval, Reservation
from approvals.services import deciding
from ledger import storage
from ledger.bearer import Bearer
from ledger.models import Step
from ledger.outcomes import Done, Failed, NotApplied, Outcome, Sighting, Unknown
from ledger.services import claiming, closing, operating, recording
from ledger.services.assignments import Assignment
from ledger.services.looking import conclude
from ledger.services.opening import open_saga
from ledger.services.proposals import Opening, Proposal
from ledger.services.proposing import propose
from ledger.services.unit import Unit
from ledger.states import StepState
from ledger.walls_sql import REFUSED
from tests.approvalcast import Case, agent, claim, in_threads, person, tools
from tests.policycast import under

__all__ = ["tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]

SUM = """
[[limit]]
name = "notes per agent and day"
tool = "note.*"
sum = "args.amount"
by = "agent"
per = "24h"
max = 5000
over = "ask"
"""
COUNT = """
[[limit]]
name = "three notes"
tool = "note.add"
count = true
by = "everyone"
per = "1h"
max = 3
over = "deny"
"""


@pytest.fixture
def ana() -> Bearer:
    return person("ana", "approvers")


def note(amount: Any, caller: Bearer | None = None) -> Case:
    """A harmless step of a saga of its own, ready to be claimed."""
    caller = caller or agent(f"agent-{uuid4().hex[:8]}")
    saga = open_saga(Opening(task_id=uuid4().hex, name="Notes"), bearer=caller).saga
    args = {"id": "n"} if amount is None else {"id": "n", "amount": amount}
    return Case(caller, saga, propose(saga, Proposal("note", "note.add", args), bearer=caller).step)


def record(found: Assignment, outcome: Outcome | Sighting) -> None:
    recording.record(uuid4(), [recording.Finished(found, outcome)])


def taken(name: str = "notes per agent and day") -> Decimal:
    found = Reservation.objects.filter(limit_name=name, returned_at__isnull=True)
    return sum((one.amount for one in found), Decimal(0))


def all_due() -> None:
    storage.execute("UPDATE ledger_outboxmessage SET due_at = clock_timestamp()")


def test_what_stays_within_the_limit_runs_and_counts() -> None:
    with under(SUM):
        case = note(4200)
        assert [found.step for found in claim()] == [case.step]
    assert taken() == 4200
    assert case.row.state == StepState.EXECUTING


def test_what_is_over_the_limit_is_asked_and_a_yes_lets_it_run_and_count(ana: Bearer) -> None:
    with under(SUM):
        first = note(4200)
        assert len(claim()) == 1
        second = note(1000, first.agent)
        assert claim() == []
        request = second.request
        assert second.row.state == StepState.AWAITING_APPROVAL
        assert "notes per agent and day" in request.why
        assert "this would make 5,200 of 5,000 in 24 h" in request.why
        assert request.over_limits == ["notes per agent and day"]
        assert taken() == 4200
        deciding.approve(ana, request.pk, args_digest=request.args_digest)
        assert [found.step for found in claim()] == [second.step]
    assert taken() == 5200


def test_a_yes_to_one_limit_is_none_to_another(ana: Bearer) -> None:
    with under(SUM):
        first = note(4200)
        assert len(claim()) == 1
        second = note(1000, first.agent)
        assert claim() == []
        old = second.request
        deciding.approve(ana, old.pk, args_digest=old.args_digest)
    with under(SUM + SUM.replace("per agent and day", "of all").replace("5000", "10")):
        assert claim() == []
        old.refresh_from_db()
        assert old.state == "superseded"
        assert set(second.request.over_limits) == {"notes per agent and day", "notes of all"}
    assert taken() == 4200


def test_who_left_the_group_lets_nothing_over_the_limit(ana: Bearer) -> None:
    with under(SUM):
        first = note(4200)
        assert len(claim()) == 1
        second = note(1000, first.agent)
        assert claim() == []
        deciding.approve(ana, second.request.pk, args_digest=second.digest)
        User.objects.get(pk=ana.user_id).groups.clear()
        assert claim() == []
        assert second.request.state == "pending"
    assert taken() == 4200


def test_each_agent_has_a_share_of_its_own() -> None:
    with under(SUM):
        cases = [note(4000), note(4000)]
        assert {found.step for found in claim()} == {case.step for case in cases}


def test_over_a_limit_that_denies_nothing_runs_and_nobody_is_asked() -> None:
    with under(COUNT):
        for _ in range(3):
            note(1)
        assert len(claim()) == 3
        case = note(1)
        assert claim() == []
    assert case.row.state == StepState.REJECTED
    assert case.row.error["code"] == "over_limit"
    assert "4 of 3 in 1 h" in case.row.error["detail"]
    assert case.row.attempts == 0
    assert not Approval.objects.filter(step_id=case.step).exists()


def test_sixteen_claims_at_once_stay_within_the_limit() -> None:
    for _ in range(16):
        note(700)
    limit = SUM.replace('by = "agent"', 'by = "everyone"').replace('over = "ask"', 'over = "deny"')
    with under(limit):

        def one_worker() -> list[Assignment]:
            return claiming.claim(uuid4(), 1)

        found = in_threads([one_worker] * 16)
    assert not [error for error in found if isinstance(error, Exception)]
    assert sum(len(one) for one in found) == 7
    assert taken() == 4900
    assert Step.objects.filter(state="executing").count() == 7
    assert Step.objects.filter(state="rejected", error__code="over_limit").count() == 9


def test_one_claim_of_many_counts_those_before_it_in_the_batch() -> None:
    with under(COUNT):
        for _ in range(5):
            note(1)
        assert len(claim()) == 3
    assert Step.objects.filter(state="rejected").count() == 2


def test_a_certain_failure_gives_it_back_and_the_next_try_takes_it_again() -> None:
    with under(SUM):
        note(4200)
        (found,) = claim()
        record(found, Failed("busy", retryable=True))
        assert taken() == 0
        all_due()
        assert len(claim()) == 1
    assert taken() == 4200


def test_a_final_failure_gives_it_back() -> None:
    with under(SUM):
        note(4200)
        (found,) = claim()
        record(found, Failed("no such customer", retryable=False))
    assert taken() == 0


def test_what_is_unknown_stays_taken_until_a_person_says_that_it_did_not_happen() -> None:
    with under(SUM):
        case = note(4200)
        (found,) = claim()
        record(found, Unknown("the connection broke"))
        assert case.row.state == StepState.UNKNOWN
        assert taken() == 4200
        other = note(1000, case.agent)
        assert claim() == []
        assert other.row.state == StepState.AWAITING_APPROVAL
        operating.resolve(case.step, "did_not_happen", reason="looked", actor="person:oskar")
    assert taken() == 0


def test_what_happened_stays_taken_also_when_it_is_undone() -> None:
    with under(SUM):
        case = note(4200)
        (found,) = claim()
        record(found, Done({"ok": True}))
        closing.abort(case.saga, "changed their mind", bearer=case.agent)
        (undo,) = claim()
        assert undo.direction == "compensate"
        record(undo, Done({}))
    assert case.row.state == StepState.COMPENSATED
    assert taken() == 4200


def test_no_limit_holds_an_undo() -> None:
    nothing = SUM.replace("5000", "0").replace('over = "ask"', 'over = "deny"')
    case = note(4200)
    (found,) = claim()
    record(found, Done({"ok": True}))
    closing.abort(case.saga, "changed their mind", bearer=case.agent)
    with under(nothing):
        (undo,) = claim()
    assert undo.direction == "compensate"


@pytest.mark.parametrize("amount", [None, -5, 1e300])
def test_what_cannot_be_counted_is_asked_also_where_the_limit_denies(amount: Any) -> None:
    with under(SUM.replace('over = "ask"', 'over = "deny"')):
        case = note(amount)
        assert claim() == []
    assert case.row.state == StepState.AWAITING_APPROVAL
    assert "cannot be counted" in case.request.why


def test_the_window_moves_with_the_databases_clock() -> None:
    with under(COUNT.replace('per = "1h"', 'per = "2s"')):
        for _ in range(3):
            note(1)
        assert len(claim()) == 3
        time.sleep(2.1)
        note(1)
        assert len(claim()) == 1


def _refused(sql: str, *values: object) -> str:
    with pytest.raises(DatabaseError) as caught, connection.cursor() as cursor:
        cursor.execute(sql, values)
    assert storage.sqlstate(caught.value) == REFUSED
    return str(caught.value)


@pytest.fixture
def reservation() -> UUID:
    with under(SUM):
        note(4200)
        claim()
    return Reservation.objects.get().pk


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE approvals_reservation SET returned_at = now() WHERE id = %s",
        "UPDATE approvals_reservation SET amount = 0 WHERE id = %s",
        "DELETE FROM approvals_reservation WHERE id = %s",
    ],
)
def test_nobody_gives_back_by_hand_what_a_run_took(reservation: UUID, change: str) -> None:
    _refused(change, reservation)
    assert taken() == 4200


def test_a_probe_that_finds_nothing_gives_it_back() -> None:
    """The record of the key ends as failed there too: one fact, one trigger."""
    with under(SUM):
        case = note(4200)
        (found,) = claim()
        record(found, Unknown("the connection broke"))

        @storage.transition
        def looked() -> None:
            unit = Unit("worker:test")
            unit.lock_with_steps([case.step])
            step = unit.steps[case.step]
            conclude(
                unit,
                unit.sagas[step.saga_id],
                step,
                found.direction,
                NotApplied(),
                tool=found.tool,
                how="probe",
            )
            unit.flush()

        looked()
    assert taken() == 0


def test_what_happened_after_all_counts_again_though_the_limit_be_full_by_then() -> None:
    """Given back on a person's word, used up by another, and then its answer comes late."""
    with under(SUM):
        case = note(4200)
        (found,) = claim()
        record(found, Unknown("the connection broke"))
        operating.resolve(case.step, "did_not_happen", reason="looked", actor="person:oskar")
        assert taken() == 0
        note(4000, case.agent)
        (other,) = [one for one in claim() if one.step != case.step]
        record(other, Done({"ok": True}))
        assert taken() == 4000
        record(found, Done({"ok": True}))
    assert case.row.state == StepState.COMMITTED
    assert taken() == 8200


def test_what_a_late_answer_says_is_not_counted_twice() -> None:
    with under(SUM):
        case = note(4200)
        (found,) = claim()
        record(found, Unknown("the connection broke"))
        operating.resolve(case.step, "did_not_happen", reason="looked", actor="person:oskar")
        all_due()
        (again,) = claim()
        assert taken() == 4200
        record(found, Done({"ok": True}))
        record(again, Failed("409: it is there"))
    assert case.row.state == StepState.COMMITTED
    assert taken() == 4200
