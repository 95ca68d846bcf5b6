"""Limits of the tests, and what runs under them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from approvals.models import Reservation
from ledger import storage
from ledger.bearer import Bearer
from ledger.outcomes import Outcome, Sighting
from ledger.services import recording
from ledger.services.assignments import Assignment
from ledger.services.opening import open_saga
from ledger.services.proposals import Opening, Proposal
from ledger.services.proposing import propose
from tests.approvalcast import Case, agent, person

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


def put_off(case: Case) -> None:
    """Not due within this test: a wait with full jitter may be over at once."""
    later = "UPDATE ledger_outboxmessage SET due_at = clock_timestamp() + interval '1 hour'"
    storage.execute(f"{later} WHERE step_id = %s", [case.step])


def all_due() -> None:
    storage.execute("UPDATE ledger_outboxmessage SET due_at = clock_timestamp()")
