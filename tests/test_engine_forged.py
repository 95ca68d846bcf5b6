"""Rows that were changed behind the ledger, consistently and with every trigger asleep.

The log is the truth: what runs is held against it. And what is honest is never called forged.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from approvals.models import Decision
from approvals.services import deciding
from ledger import keys
from ledger.bearer import Bearer
from ledger.errors import AlreadyDecided
from ledger.outcomes import Done, Failed, Unknown
from ledger.services.assignments import Assignment
from ledger.services.closing import abort
from ledger.services.opening import open_saga
from ledger.services.operating import resolve, retry
from ledger.services.proposals import AlternativeProposal, Opening, Proposal
from ledger.services.proposing import propose
from ledger.services.recording import Finished, record
from ledger.services.verifying import verify
from tests.approvalcast import Case, agent, behind_the_ledger, claim, tools, waiting_case
from tests.deciders import an_approver

__all__ = ["an_approver", "tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]
OWED = """
INSERT INTO ledger_outboxmessage (step_id, kind, direction, saga_fence, tool, agent, saga_id,
    resource, round, negatives, due_at, created_at, parked_why)
SELECT id, 'run', 'forward', 0, tool, 'prover', saga_id, '', 0, 0, now(), now(), ''
FROM ledger_step WHERE id = %s
"""
FORGED = '{"amount":999999,"id":"p1"}'


def saga() -> tuple[Bearer, UUID]:
    caller = agent(f"agent-{uuid4().hex[:8]}")
    return caller, open_saga(Opening(task_id="task", name=""), bearer=caller).saga


def done(taken: Assignment, result: Any) -> None:
    record(uuid4(), [Finished(taken, Done(result))])


def committed(result: Any, *others: AlternativeProposal) -> Case:
    """One step with an effect; with `others`, its first choice failed and the next was taken."""
    caller, opened = saga()
    proposal = Proposal("one", "note.add", {"id": "1"}, alternatives=others)
    case = Case(caller, opened, propose(opened, proposal, bearer=caller).step)
    for _ in others:
        (taken,) = claim()
        record(uuid4(), [Finished(taken, Failed("no", retryable=False))])
    (taken,) = claim()
    done(taken, result)
    return case


def undo(case: Case) -> list[Assignment]:
    abort(case.saga, "enough", bearer=case.agent)
    return claim()


# -- a yes ------------------------------------------------------------------------------


@pytest.mark.parametrize("approved", [True, False], ids=["after a yes", "while it waits"])
def test_a_verdict_that_is_turned_into_allow_lets_nothing_out(ana: Bearer, approved: bool) -> None:
    case = waiting_case()
    if approved:
        deciding.approve(ana, case.request.pk, args_digest=case.digest)
    key = keys.downstream_key(str(case.saga), "refund-1", "money.refund", FORGED)
    with behind_the_ledger() as cursor:
        cursor.execute(
            "UPDATE ledger_step SET state = 'queued', verdict = 'allow', args_text = %s, "
            "args = %s::jsonb, fingerprint = %s, idempotency_key = %s WHERE id = %s",
            [FORGED, FORGED, keys.fingerprint(FORGED), key, case.step],
        )
        if not approved:
            cursor.execute(OWED, [case.step])
    assert claim() == []
    assert "step.tampered" in case.kinds("step.")
    assert case.row.attempts == 0


def test_a_yes_that_only_the_rows_know_is_none(ana: Bearer) -> None:
    real, case = waiting_case(), waiting_case(id="p2", amount=7)
    deciding.approve(ana, real.request.pk, args_digest=real.digest)
    (taken,) = claim()
    assert taken.step == real.step
    forged = Decision.objects.get(approval=real.request)
    with behind_the_ledger() as cursor:
        forged.pk, forged.approval, forged.args_digest = uuid4(), case.request, case.digest
        forged.save(force_insert=True)
        cursor.execute(
            "UPDATE approvals_approval SET state = 'approved', decided_at = clock_timestamp(), "
            "ended_at = clock_timestamp(), runs_from = clock_timestamp(), "
            "yes_until = clock_timestamp() + interval '1 h' WHERE id = %s",
            [case.request.pk],
        )
        cursor.execute("UPDATE ledger_step SET state = 'queued' WHERE id = %s", [case.step])
        cursor.execute(OWED, [case.step])
    assert claim() == []
    assert "The log knows of no yes" in case.request.why
    assert (case.request.state, case.row.state) == ("pending", "awaiting_approval")


def test_a_doubt_that_was_changed_stays_one() -> None:
    """It was to be sent again, to find out: what the row says now tells nothing of that."""
    caller, opened = saga()
    case = Case(
        caller, opened, propose(opened, Proposal("one", "note.add", {}), bearer=caller).step
    )
    (taken,) = claim()
    record(uuid4(), [Finished(taken, Unknown("cut"))])
    with behind_the_ledger() as cursor:
        cursor.execute("UPDATE ledger_step SET state = 'queued', args_text = '{\"id\":\"9\"}'")
        cursor.execute(OWED, [case.step])
    assert claim() == []
    assert (case.row.state, case.row.error["code"]) == ("unknown", "unknown")
    assert "step.tampered" in case.kinds("step.")
    with pytest.raises(AlreadyDecided):
        retry(case.step, reason="again", actor="person:ona")
    resolve(case.step, "end_saga", reason="leave it", actor="person:ona")
    assert (case.row.state, case.row.residue) == ("unknown", True)


# -- an undo ----------------------------------------------------------------------------

ANOTHER_TOOL = (
    "tool = 'mail.send', tool_version_id = "
    "(SELECT digest FROM ledger_toolversion WHERE key = 'mail.send')"
)
UNDOS = {
    "args": f"args_text = '{FORGED}', args = '{FORGED}', "
    f"fingerprint = '{keys.fingerprint(FORGED)}'",
    "key": "idempotency_key = repeat('0', 64)",
    "tool": ANOTHER_TOOL,
    "result": """result_text = '{"id": "another"}'""",
    "result of another type": """result_text = '{"id": true}'""",
}


@pytest.mark.parametrize("change", UNDOS.values(), ids=UNDOS)
def test_an_undo_whose_step_was_changed_sticks(change: str) -> None:
    case = committed({"id": 1})
    case.propose("mail", "mail.send", id="m1")  # so that its tool's version is known
    with behind_the_ledger() as cursor:
        cursor.execute(f"UPDATE ledger_step SET {change} WHERE id = %s", [case.step])
    assert list(verify())
    assert undo(case) == []
    assert (case.row.state, case.row.error["code"]) == ("stuck", "tampered")


def test_an_undo_of_the_choice_that_did_not_happen_sticks() -> None:
    case = committed({"id": "made"}, AlternativeProposal("note.add", {"id": "other"}))
    with behind_the_ledger() as cursor:
        cursor.execute("UPDATE ledger_step SET alternative = 0 WHERE id = %s", [case.step])
    assert undo(case) == []
    assert case.row.state == "stuck"


@pytest.mark.parametrize("column", ["tier = 'pivot'", "tool = 'mail.send'"])
def test_what_a_step_is_said_to_be_is_verified(column: str) -> None:
    case = committed({"id": "made"})
    with behind_the_ledger() as cursor:
        cursor.execute(f"UPDATE ledger_step SET {column} WHERE id = %s", [case.step])
    (fault,) = verify()
    assert f"its {column.partition(' ')[0]} is not the proposed one" in str(fault)


def test_a_step_that_is_rewound_under_another_key_does_not_run_again() -> None:
    case = committed({"id": "made"})
    with behind_the_ledger() as cursor:
        cursor.execute(
            "UPDATE ledger_step SET state = 'queued', executed_at = NULL, executed_seq = NULL, "
            "result_text = NULL, finished_at = NULL, idempotency_key = repeat('1', 64) "
            "WHERE id = %s",
            [case.step],
        )
        cursor.execute(OWED, [case.step])
    assert claim() == []
    assert "Its key is not that of this step" in case.row.held_why


# -- what is honest ---------------------------------------------------------------------

LONG = {
    "whole": {"id": "x", "body": "a" * 90_000},
    "cut in the row": {"id": "x", "body": "a" * 150_000},
    "cut in the entry": {"id": "x", "body": "a" * 199_970},
    "too long for both": {"id": "x", "body": "a" * 250_000},
    "many rows": {"id": "x", "rows": [{"n": n, "name": f"customer {n}"} for n in range(5000)]},
    "odd": {"id": "x", "f": 1e23, "g": float("nan"), "h": -0.0, "u": "\ud800é\0", 1: "a"},
}


@pytest.mark.parametrize("result", LONG.values(), ids=LONG)
def test_a_long_or_odd_answer_is_no_tampering(result: Any) -> None:
    """What is cut is cut once: the row and its entry keep the same."""
    case = committed(result)
    assert list(verify()) == []
    (undone,) = undo(case)
    assert undone.call.result["id"] == "x"


def test_an_answer_that_an_earlier_release_cut_twice_is_no_tampering() -> None:
    case = committed({"id": "x", "body": "a" * 60_000})
    whole = {"id": "x", "body": "a" * 150_000}
    with behind_the_ledger() as cursor:
        cursor.execute("ALTER TABLE ledger_entry DISABLE TRIGGER ledger_entry_no_change")
        cursor.execute(
            "UPDATE ledger_step SET result_text = %s WHERE id = %s",
            [keys.storable(whole)[0], case.step],
        )
        cursor.execute(
            "UPDATE ledger_entry SET payload = "
            "jsonb_set(payload::jsonb, '{result}', %s::jsonb)::text "
            "WHERE saga_id = %s AND kind = 'step.committed'",
            [keys.storable(whole, max_chars=100_000)[0], case.saga],
        )
        cursor.execute("ALTER TABLE ledger_entry ENABLE TRIGGER ledger_entry_no_change")
    (undone,) = undo(case)
    assert undone.call.result == whole
