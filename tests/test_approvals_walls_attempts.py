"""The wall in front of the outside world (case C1): no attempt without the yes that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.db import connection, transaction

from approvals.models import Approval
from approvals.services import deciding
from approvals.states import ApprovalState
from tests.approvalcast import Case, claim, person, tools, waiting_case
from tests.byhand import SET_STATE, by_hand, put_into, refused, vote

__all__ = ["tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]

INSERT_ATTEMPT = """
INSERT INTO ledger_attempt (id, step_id, direction, alternative, fence, token, idempotency_key,
    shift_id, round, state, started_at, lease_until)
SELECT gen_random_uuid(), s.id, %s, 0, s.fence + 1, gen_random_uuid(), %s, gen_random_uuid(), 0,
    'started', clock_timestamp(), clock_timestamp() + interval '1 minute'
FROM ledger_step s WHERE s.id = %s
"""


@pytest.fixture
def the_gates_wall_alone() -> Iterator[None]:
    """Without the ledger's own wall, which lets no attempt land on a step that waits."""
    by_hand("ALTER TABLE ledger_attempt DISABLE TRIGGER ledger_attempt_lands")
    yield
    by_hand("ALTER TABLE ledger_attempt ENABLE TRIGGER ledger_attempt_lands")


def attempt(case: Case, direction: str = "forward", key: str | None = None) -> tuple[object, ...]:
    return (INSERT_ATTEMPT, direction, key or case.row.idempotency_key, case.step)


def approved_case() -> Case:
    case = waiting_case()
    deciding.approve(person("ana", "approvers"), case.request.pk, args_digest=case.digest)
    return case


@pytest.mark.parametrize("state", sorted(set(ApprovalState) - {ApprovalState.APPROVED}), ids=str)
def test_no_attempt_can_be_written_while_the_request_is_not_approved(state: str) -> None:
    case = waiting_case()
    with transaction.atomic():
        if state != "pending":
            vote(case, state)
            put_into(case, state)
    assert "nobody has approved" in refused(*attempt(case))


def test_an_attempt_under_a_yes_is_written_and_uses_it_up() -> None:
    case = approved_case()
    assert case.request.used_at is None
    by_hand(*attempt(case))
    assert case.request.used_at is not None


def test_a_yes_to_other_arguments_starts_nothing() -> None:
    case = approved_case()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_step DISABLE TRIGGER ledger_step_frozen")
        cursor.execute(
            "UPDATE ledger_step SET args_text = %s WHERE id = %s", ['{"amount":9}', case.step]
        )
        cursor.execute("ALTER TABLE ledger_step ENABLE TRIGGER ledger_step_frozen")
    assert "nobody has approved" in refused(*attempt(case))


def test_a_yes_under_another_key_starts_nothing() -> None:
    assert "nobody has approved" in refused(*attempt(approved_case(), key="f" * 64))


def test_a_yes_that_is_too_old_starts_nothing() -> None:
    case = waiting_case()
    with transaction.atomic():
        vote(case, "approved")
        by_hand(
            "UPDATE approvals_approval SET state = 'approved', decided_at = clock_timestamp(), "
            "ended_at = clock_timestamp(), yes_until = clock_timestamp() WHERE id = %s",
            case.request.pk,
        )
    assert "nobody has approved" in refused(*attempt(case))


def test_a_superseded_yes_starts_nothing_although_it_was_approved() -> None:
    case = approved_case()
    case.ask_again()
    assert "nobody has approved" in refused(*attempt(case))


def test_the_verdict_on_a_held_step_cannot_be_talked_round() -> None:
    case = waiting_case()
    told = refused("UPDATE ledger_step SET verdict = 'allow' WHERE id = %s", case.step)
    assert "is taken" in told


@pytest.mark.usefixtures("the_gates_wall_alone")
def test_an_undo_that_people_were_asked_about_needs_their_yes() -> None:
    case = waiting_case()
    key = f"corr:{case.row.idempotency_key}"
    by_hand(*attempt(case, "compensate", "comp:free"))  # nobody was asked: not held
    copy = case.request
    copy.pk, copy.direction, copy.idempotency_key = uuid4(), "correct", key
    copy.save(force_insert=True)
    assert "nobody has approved" in refused(*attempt(case, "correct", key))


@pytest.mark.usefixtures("the_gates_wall_alone")
def test_what_the_policy_allows_is_not_held() -> None:
    note = waiting_case().propose("note", "note.add", id="n")
    # It waits for the refund before it; by hand its attempt is no matter of the gate.
    by_hand(INSERT_ATTEMPT, "forward", "any", note)


def test_a_used_yes_can_only_be_superseded() -> None:
    case = approved_case()
    by_hand(*attempt(case))
    assert "was used up" in refused(SET_STATE, "rejected", "rejected", case.request.pk)
    case.ask_again()
    assert Approval.objects.filter(step_id=case.step, state="superseded").count() == 1


def test_a_worker_claims_only_after_the_yes() -> None:
    case = waiting_case()
    assert claim() == []
    deciding.approve(person("ana", "approvers"), case.request.pk, args_digest=case.digest)
    assert [found.step for found in claim()] == [case.step]
    assert case.request.used_at is not None
    assert claim() == []
