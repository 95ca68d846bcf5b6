"""Rows that were changed behind the ledger run under no yes: the log tells what people saw."""

from __future__ import annotations

import json

import pytest

from ledger import keys
from ledger.bearer import Bearer
from ledger.states import StepState
from tests.approvalcast import behind_the_ledger, claim, tools, waiting_alternative, waiting_case
from tests.deciders import an_approver, approve, assert_asked_anew

__all__ = ["an_approver", "tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


def test_arguments_changed_in_the_table_never_run(ana: Bearer) -> None:
    """Case A3: what was approved is put back from the log, and asked anew; the old yes is void."""
    case = waiting_case()
    approve(ana, case)
    old = case.request
    with behind_the_ledger() as cursor:
        cursor.execute(
            "UPDATE ledger_step SET args_text = %s WHERE id = %s", ['{"amount":9}', case.step]
        )
    assert_asked_anew(case, old, "changed behind the ledger")
    assert json.loads(case.request.args_text) == {"amount": 100, "id": "p1"}
    assert case.request.args_digest == old.args_digest
    assert case.row.attempts == 0
    assert "step.tampered" in case.kinds("step.")
    approve(ana, case)
    (ran,) = claim()
    assert dict(ran.call.args) == {"amount": 100, "id": "p1"}


FORGED = '{"amount":9,"id":"p1"}'


@pytest.mark.parametrize("asks_too", [False, True], ids=["step", "step and request"])
def test_arguments_and_digest_changed_together_never_run(ana: Bearer, asks_too: bool) -> None:
    """Cases A1 and A2: the log tells what people said yes to, whatever the rows agree on."""
    case = waiting_case()
    approve(ana, case)
    old = case.request
    changed = {
        "text": FORGED,
        "digest": keys.fingerprint(FORGED),
        "key": keys.downstream_key(str(case.saga), "refund-1", "money.refund", FORGED),
        "step": case.step,
    }
    with behind_the_ledger() as cursor:
        cursor.execute(
            "UPDATE ledger_step SET args_text = %(text)s, args = %(text)s::jsonb, "
            "fingerprint = %(digest)s, idempotency_key = %(key)s WHERE id = %(step)s",
            changed,
        )
        if asks_too:
            cursor.execute(
                "UPDATE approvals_approval SET args_text = %(text)s, args_digest = %(digest)s, "
                "idempotency_key = %(key)s WHERE step_id = %(step)s",
                changed,
            )
    assert_asked_anew(case, old, "changed behind the ledger")
    assert json.loads(case.request.args_text) == {"amount": 100, "id": "p1"}
    assert "step.tampered" in case.kinds("step.")
    approve(ana, case)
    (ran,) = claim()
    assert dict(ran.call.args) == {"amount": 100, "id": "p1"}


@pytest.mark.parametrize("digest", [keys.fingerprint(FORGED), "0" * 64], ids=["fits", "does not"])
def test_an_alternative_that_was_changed_in_the_table_never_runs(ana: Bearer, digest: str) -> None:
    case = waiting_alternative(ana)
    approve(ana, case)
    old = case.request
    with behind_the_ledger() as cursor:
        cursor.execute(
            "UPDATE ledger_step SET alternatives = jsonb_set(jsonb_set(alternatives, "
            "'{0,args_text}', to_jsonb(%s::text)), '{0,fingerprint}', to_jsonb(%s::text)) "
            "WHERE id = %s",
            [FORGED, digest, case.step],
        )
    assert claim() == []
    assert (case.request.state, case.request.args_digest) == ("pending", old.args_digest)
    assert "changed behind the ledger" in case.request.why
    approve(ana, case)
    (ran,) = claim()
    assert dict(ran.call.args) == {"id": "p1", "amount": 7}


def test_a_tool_that_was_changed_in_the_table_sticks(ana: Bearer) -> None:
    """Its arguments are those that people saw; which tool they are for, nobody said yes to."""
    case = waiting_case()
    approve(ana, case)
    case.propose("hello", "mail.send", id="m1")  # so that the other tool's version is known
    with behind_the_ledger() as cursor:
        for table, version in (("ledger_step", "tool_version_id"), ("approvals_approval", "")):
            digest = version or "tool_digest"
            where = "id" if version else "step_id"
            cursor.execute(
                f"UPDATE {table} SET tool = 'mail.send', {digest} = "
                "(SELECT digest FROM ledger_toolversion WHERE key = 'mail.send') "
                f"WHERE {where} = %s",
                [case.step],
            )
    assert claim() == []
    assert case.row.state == StepState.STUCK
    assert "changed behind the ledger" in case.row.held_why
    assert case.row.attempts == 0
