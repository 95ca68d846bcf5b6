"""A policy that asks, and what people and their clock do to its requests."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from approvals.models import Approval
from approvals.services import deciding
from approvals.services.clicks import Decided
from ledger import storage
from ledger.bearer import Bearer
from ledger.models import Entry
from tests.approvalcast import Case, person

ASK = """
[[rule]]
name = "refunds"
tool = "money.*"
verdict = "ask"
"""
DENY_LARGE = """
[[rule]]
name = "too large"
tool = "money.*"
when = "args.amount >= 500"
verdict = "deny"
"""
TWO_GROUPS = ASK + 'need = [{group = "approvers", count = 1}, {group = "finance", count = 1}]\n'


@pytest.fixture
def ana() -> Bearer:
    return person("ana", "approvers", "finance")


def approve(who: Bearer, case: Case, reason: str = "") -> Decided:
    return deciding.approve(who, case.request.pk, args_digest=case.digest, reason=reason)


def times_are_over(case: Case, column: str = "expires_at") -> None:
    """An hour passes for this request: its times are moved back, as a clock would move on."""
    storage.execute("ALTER TABLE approvals_approval DISABLE TRIGGER approvals_approval_frozen")
    Approval.objects.filter(pk=case.request.pk).update(
        created_at=case.request.created_at - timedelta(days=2),
        **{column: getattr(case.request, column) - timedelta(days=1)},
    )
    storage.execute("ALTER TABLE approvals_approval ENABLE TRIGGER approvals_approval_frozen")


def sentences(case: Case, kind: str) -> list[dict[str, Any]]:
    found = Entry.objects.filter(saga_id=case.saga, kind=kind)
    return [json.loads(entry.payload) for entry in found]
