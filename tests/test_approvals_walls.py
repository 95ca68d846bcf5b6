"""What the database refuses about requests and attempts, whoever connects."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import DatabaseError, connection, transaction

from approvals import walls
from approvals.models import Approval, Decision
from approvals.states import ANSWERED, TRANSITIONS, ApprovalState
from tests.approvalcast import person, tools, waiting_case
from tests.byhand import SET_STATE, put_into, refused, vote

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
