"""What somebody with psql and the application's own role can try on requests and their votes."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import DatabaseError, connection, transaction

from approvals.models import Decision
from approvals.states import STATE_OF, ApprovalState
from ledger.storage import sqlstate
from ledger.walls_sql import REFUSED
from tests.approvalcast import Case, person

SET_STATE = """
UPDATE approvals_approval SET state = %s, decided_at = clock_timestamp(),
    ended_at = CASE WHEN %s = 'pending' THEN NULL ELSE clock_timestamp() END,
    yes_until = coalesce(yes_until, clock_timestamp() + interval '1 hour')
WHERE id = %s
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
