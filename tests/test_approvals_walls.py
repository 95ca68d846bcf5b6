"""What the database refuses about requests and attempts, whoever connects."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import DatabaseError, connection, transaction

from approvals import walls
from approvals.models import Approval, Decision
from approvals.services import deciding
from approvals.states import ANSWERED, STATE_OF, TRANSITIONS, ApprovalState
from ledger.storage import sqlstate
from ledger.walls_sql import REFUSED
from tests.approvalcast import Case, claim, person, tools, waiting_case

__all__ = ["tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]

WAY_TO = {
    ApprovalState.PENDING: [],
    ApprovalState.APPROVED: ["approved"],
    ApprovalState.REJECTED: ["rejected"],
    ApprovalState.CHANGE_REQUESTED: ["change_requested"],
    ApprovalState.EXPIRED: ["expired"],
    ApprovalState.SUPERSEDED: ["superseded"],
    ApprovalState.CANCELLED: ["cancelled"],
}
SET_STATE = """
UPDATE approvals_approval SET state = %s, decided_at = clock_timestamp(),
    ended_at = CASE WHEN %s = 'pending' THEN NULL ELSE clock_timestamp() END,
    yes_until = coalesce(yes_until, clock_timestamp() + interval '1 hour')
WHERE id = %s
"""
INSERT_ATTEMPT = """
INSERT INTO ledger_attempt (id, step_id, direction, alternative, fence, token, idempotency_key,
    shift_id, round, state, started_at, lease_until)
SELECT gen_random_uuid(), s.id, %s, 0, s.fence + 1, gen_random_uuid(), %s, gen_random_uuid(), 0,
    'started', clock_timestamp(), clock_timestamp() + interval '1 minute'
FROM ledger_step s WHERE s.id = %s
"""


def by_hand(sql: str, *values: object) -> None:
    """As somebody with psql and the application's own role."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)


def refused(sql: str, *values: object) -> str:
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        by_hand(sql, *values)
    assert sqlstate(caught.value) == REFUSED, caught.value
    return str(caught.value)


def put_into(case: Case, state: str) -> None:
    by_hand(SET_STATE, state, state, case.request.pk)


def vote(case: Case, state: str) -> None:
    """The decision that an answered state needs, written by hand."""
    answer = {s: a for a, s in STATE_OF.items()}.get(ApprovalState(state))
    if answer and not case.request.decisions.filter(answer=answer).exists():
        voter = person(f"voter-{uuid4().hex[:6]}", "approvers")
        Decision.objects.create(
            approval=case.request,
            user_id=voter.user_id,
            username=voter.username,
            answer=answer,
            reason="by hand",
            args_digest=case.digest,
            via="api",
        )


@pytest.mark.parametrize("old", list(ApprovalState))
@pytest.mark.parametrize("new", list(ApprovalState))
def test_the_trigger_permits_exactly_the_edges_of_the_table(
    old: ApprovalState, new: ApprovalState
) -> None:
    if old == new:
        return
    case = waiting_case()
    with transaction.atomic():
        for state in [*WAY_TO[old]]:
            vote(case, state)
            put_into(case, state)
    if new in TRANSITIONS[old]:
        with transaction.atomic():
            vote(case, new)
            put_into(case, new)
        assert case.request.state == new
    else:
        assert f"from {old} to {new}" in refused(SET_STATE, new, new, case.request.pk)


def test_the_database_holds_exactly_the_walls_of_the_source() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT proname, prosrc FROM pg_proc WHERE proname = ANY(%s)", [list(walls.FUNCTIONS)]
        )
        found = dict(cursor.fetchall())
    assert found.keys() == set(walls.FUNCTIONS)
    for name, body in found.items():
        assert body in walls.INSTALL + walls.DOOR + walls.LIMITS, name


def test_a_request_cannot_begin_decided() -> None:
    case = waiting_case()
    copy = Approval.objects.get(pk=case.request.pk)
    put_into(case, "cancelled")
    copy.pk, copy.state = uuid4(), ApprovalState.APPROVED
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        copy.save(force_insert=True)
    assert "cannot begin" in str(caught.value)


@pytest.mark.parametrize("state", sorted(ANSWERED))
def test_no_request_is_answered_without_a_decision(state: str) -> None:
    case = waiting_case()
    assert "without the decisions" in refused(SET_STATE, state, state, case.request.pk)


def test_a_decision_on_another_digest_does_not_make_it_approved() -> None:
    case = waiting_case()
    voter = person("ana", "approvers")
    Decision.objects.create(
        approval=case.request,
        user_id=voter.user_id,
        username="ana",
        answer="approve",
        args_digest="0" * 64,
        via="api",
    )
    assert "without the decisions" in refused(SET_STATE, "approved", "approved", case.request.pk)


@pytest.mark.parametrize("column", sorted(set(walls.BOUND) - {"id", "step_id", "saga_id"}))
def test_what_was_shown_cannot_be_changed(column: str) -> None:
    values = {
        "needs": '\'[{"group": "eve", "count": 1}]\'',
        "lasts": "interval '9 days'",
        "delay": "interval '1 second'",
        "remind": "interval '9 days'",
        "over_limits": "'[\"all\"]'",
        "require_reason": "true",
        "created_at": "created_at - interval '1 second'",
        "expires_at": "expires_at + interval '1 day'",
        "direction": "'correct'",
    }
    value = values.get(column, "'other'")
    request = waiting_case().request.pk
    told = refused(f"UPDATE approvals_approval SET {column} = {value} WHERE id = %s", request)
    assert "is frozen" in told


def test_requests_and_decisions_are_kept() -> None:
    case = waiting_case()
    with transaction.atomic():
        vote(case, "approved")
        put_into(case, "approved")
    for table in ("approvals_decision", "approvals_approval"):
        assert "keeps its rows" in refused(f"DELETE FROM {table}")
    assert "keeps its rows" in refused("UPDATE approvals_decision SET reason = 'nicer'")


def test_truncating_is_refused() -> None:
    # The test database keeps these two asleep for its own cleaning (tests/conftest.py).
    for table in ("approvals_decision", "approvals_approval"):
        wake = f"ALTER TABLE {table} ENABLE TRIGGER {table}_no_truncate"
        assert "keeps its rows" in refused(f"{wake}; TRUNCATE {table} CASCADE")


def test_one_question_at_a_time_about_a_step_and_direction() -> None:
    case = waiting_case()
    copy = Approval.objects.get(pk=case.request.pk)
    copy.pk = uuid4()
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        copy.save(force_insert=True)
    assert "approvals_one_question_at_a_time" in str(caught.value)


def test_no_question_without_a_deadline() -> None:
    copy = waiting_case().request
    copy.pk, copy.direction = uuid4(), "correct"
    copy.expires_at = copy.created_at
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        copy.save(force_insert=True)
    assert "approvals_has_deadline" in str(caught.value)


# -- the wall in front of the outside world (case C1) --------------------------------------


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


def test_an_undo_that_people_were_asked_about_needs_their_yes() -> None:
    case = waiting_case()
    key = f"corr:{case.row.idempotency_key}"
    by_hand(*attempt(case, "compensate", "comp:free"))  # nobody was asked: not held
    copy = case.request
    copy.pk, copy.direction, copy.idempotency_key = uuid4(), "correct", key
    copy.save(force_insert=True)
    assert "nobody has approved" in refused(*attempt(case, "correct", key))


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
