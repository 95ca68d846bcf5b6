"""What a run took of a limit: given back on certainty alone, and counted once."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.db import DatabaseError, connection

from approvals.models import Reservation
from ledger import storage
from ledger.outcomes import Done, Failed, NotApplied, Unknown
from ledger.services import closing, operating
from ledger.services.looking import conclude
from ledger.services.unit import Unit
from ledger.states import StepState
from ledger.walls_sql import REFUSED
from tests.approvalcast import claim, tools
from tests.limitcast import SUM, all_due, ana, note, put_off, record, taken
from tests.policycast import under

__all__ = ["ana", "tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


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
        put_off(case)
        assert taken() == 0
        note(4000, case.agent)
        (other,) = claim()
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
