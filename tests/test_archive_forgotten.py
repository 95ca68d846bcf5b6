"""What was told, and what counts no more of a limit, leaves after its saga; nothing else does."""

from __future__ import annotations

import io
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from approvals.models import Reservation
from approvals.services import spreading
from ledger.models import Message, Notice, Saga
from ledger.outcomes import Done, Failed
from ledger.services import closing
from ledger.services.opening import open_saga
from ledger.services.proposals import Opening, Proposal
from ledger.services.proposing import propose
from ledger.services.recording import Finished, record
from ledger.walls_sql import REFUSED
from tests.approvalcast import Case, agent, claim, tools, waiting_case
from tests.policycast import under
from tests.postcast import SECRET, Receiver, Write, post, webhook_channel

__all__ = ["tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]

LIMIT = """
[[rule]]
name = "notes"
tool = "note.*"
verdict = "allow"
[[limit]]
name = "notes a day"
tool = "note.*"
count = true
by = "agent"
per = "24h"
max = 100
over = "ask"
"""


def refused(statement: str) -> bool:
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        connection.cursor().execute(statement)
    return getattr(caught.value.__cause__, "sqlstate", "") == REFUSED


@pytest.fixture
def told(receiver: Receiver, channels_file: Write) -> Case:
    """A saga that has ended, of which two messages were delivered."""
    channels_file(webhook_channel("audit"), HOOK_URL=receiver.url, HOOK_KEY=SECRET)
    case = waiting_case()
    closing.abort(case.saga, "no longer wanted", bearer=case.agent)
    post()
    assert set(Message.objects.values_list("state", flat=True)) == {"delivered"}
    assert Message.objects.count() == 2
    return case


def archived(folder: Path) -> str:
    out = io.StringIO()
    call_command("archive", "--older-than", "0s", "--to", str(folder / "archive"), stdout=out)
    return out.getvalue()


def test_what_was_told_of_a_saga_leaves_after_it(told: Case, tmp_path: Path) -> None:
    open_case = waiting_case(id="p2")
    post()
    said = archived(tmp_path)
    assert "1 saga left the ledger" in said
    assert "2 messages, 2 notices" in said
    assert set(Message.objects.values_list("about", flat=True)) == {open_case.request.pk}
    assert Notice.objects.count() == 1


@pytest.mark.parametrize("table", ["ledger_message", "ledger_notice"])
def test_while_the_saga_is_here_no_message_of_it_can_be_deleted(told: Case, table: str) -> None:
    assert refused(f"DELETE FROM {table}")


def test_a_message_that_nobody_has_taken_yet_stays(told: Case, tmp_path: Path) -> None:
    """Its saga has left; it is still owed."""
    case = waiting_case(id="p2")
    about = case.request.pk
    spreading.spread()
    closing.abort(case.saga, "no longer wanted", bearer=case.agent)
    spreading.spread()
    assert "2 sagas left the ledger" in archived(tmp_path)
    left = set(Message.objects.values_list("about", "state"))
    assert (left, Message.objects.count()) == ({(about, "waiting")}, 2)


def failed_note(amount: int) -> UUID:
    """The reservation of a run that certainly had no effect."""
    caller = agent(f"agent-{uuid4().hex[:8]}")
    saga = open_saga(Opening(task_id=uuid4().hex, name="Notes"), bearer=caller).saga
    args = {"id": "n", "amount": amount}
    step = propose(saga, Proposal("note", "note.add", args), bearer=caller).step
    (found,) = claim()
    record(uuid4(), [Finished(found, Failed("refused"))])
    return Reservation.objects.get(step_id=step).pk


def test_what_was_given_back_leaves_and_what_counts_stays(tmp_path: Path) -> None:
    """Also when the saga of what counts has left: its effect is out there."""
    with under(LIMIT):
        back = failed_note(1)
        caller = agent("ben")
        saga = open_saga(Opening(task_id="t", name="Notes"), bearer=caller).saga
        args = {"id": "n", "amount": 2}
        propose(saga, Proposal("note", "note.add", args), bearer=caller)
        (found,) = claim()
        record(uuid4(), [Finished(found, Done({}))])
        closing.complete(saga, bearer=caller)
        assert Reservation.objects.get(pk=back).returned_at is not None
        said = archived(tmp_path)
    assert "1 reservation of limits" in said
    (kept,) = Reservation.objects.all()
    assert (kept.step_id, Saga.objects.count()) == (found.step, 0)
    assert refused("DELETE FROM approvals_reservation")
