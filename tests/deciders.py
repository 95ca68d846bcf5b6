"""Two approvers, and what they say to a case; beside it, what its saga's log then tells."""

from __future__ import annotations

import json
from typing import Any

import pytest

from approvals.models import Approval
from approvals.services import deciding
from approvals.services.deciding import Decided
from ledger.bearer import Bearer
from ledger.models import Entry
from ledger.states import StepState
from tests.approvalcast import Case, claim, person


@pytest.fixture(name="ana")
def an_approver() -> Bearer:
    return person("ana", "approvers")


@pytest.fixture(name="ben")
def another_approver() -> Bearer:
    return person("ben", "approvers")


def approve(who: Bearer, case: Case, **more: Any) -> Decided:
    """A yes to the newest request of the case, as it stands."""
    request = case.request
    return deciding.approve(who, request.pk, args_digest=request.args_digest, **more)


def reject(who: Bearer, case: Case, reason: str = "wrong customer") -> Decided:
    return deciding.reject(who, case.request.pk, args_digest=case.digest, reason=reason)


def payloads(case: Case, kind: str) -> list[dict[str, Any]]:
    """Of each entry of this kind in the case's saga: its payload, and who wrote it."""
    found = Entry.objects.filter(saga_id=case.saga, kind=kind).order_by("seq")
    return [{"actor": entry.actor, **json.loads(entry.payload)} for entry in found]


def assert_asked_anew(case: Case, old: Approval, why: str) -> None:
    """Nothing ran under the old request, and people are asked by a new one that says why."""
    assert claim() == []
    old.refresh_from_db()
    assert case.request.pk != old.pk
    assert (old.state, old.superseded_by_id) == ("superseded", case.request.pk)
    assert old.used_at is None
    assert why in case.request.why
    assert case.request.state == "pending"
    assert case.row.state == StepState.AWAITING_APPROVAL
    assert case.row.attempts == 0
