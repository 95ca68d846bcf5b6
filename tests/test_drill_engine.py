"""A drill really executes and really undoes, in its sandbox and nowhere else."""

from __future__ import annotations

import json

import pytest

from ledger import errors
from ledger.legs import DrillState
from ledger.models import (
    Attempt,
    Drill,
    EffectClaim,
    Entry,
    Freeze,
    IdempotencyRecord,
    OutboxMessage,
    ResourceHold,
    Saga,
    Step,
    ToolVersion,
)
from ledger.services import drilling, freezing, shifts
from ledger.shift import ShiftLoop
from ledger.states import Direction
from tests.drillcast import FAILED, WORKED, Yard, came, email, facts, work, yard
from tests.sockets import SocketTarget

__all__ = ["yard"]

OF_SAGAS = (
    *(Saga, Step, Entry, Attempt, EffectClaim, IdempotencyRecord),
    *(OutboxMessage, ResourceHold, ToolVersion),
)


def test_a_drill_executes_finds_undoes_and_finds_it_gone(yard: Yard) -> None:
    found = yard.drill()
    assert came(found) == [
        ("execute", "done"),
        ("found", "found"),
        ("seen", "found"),
        ("undo", "done"),
        ("undone", "gone"),
        ("unseen", "gone"),
    ]
    assert (found.state, found.version, found.sandbox) == (WORKED, "1", yard.sandbox)
    assert (found.asked_by, found.reason) == ("person:oskar", "a test")
    assert found.said == "Executed, undone, and seen to be gone."
    assert email(found) not in yard.customers()
    assert all(leg.took_ms >= 0 for leg in found.legs)


def test_a_drill_leaves_nothing_that_belongs_to_sagas(yard: Yard) -> None:
    assert yard.drill().state == WORKED
    assert {model.__name__: model.objects.count() for model in OF_SAGAS} == {
        model.__name__: 0 for model in OF_SAGAS
    }


def test_an_undo_that_does_not_work_is_told_with_what_is_left(yard: Yard) -> None:
    yard.write(("customers/{result.id}", "customers/not-{result.id}"))
    found = yard.drill("crm.blind")
    assert came(found) == [("execute", "done"), ("undo", "failed")]
    assert found.state == FAILED
    assert found.said == "Compensate failed. What execute did is left in the sandbox."
    assert "404" in found.legs[-1].said
    assert email(found) in yard.customers()


def test_an_undo_that_only_says_so_is_found_out_by_probe_and_check(yard: Yard) -> None:
    # It answers 200, and leaves the customer where it is.
    yard.write(
        (
            '[tools."crm.customer".compensate]\nmethod = "DELETE"',
            '[tools."crm.customer".compensate]\nmethod = "POST"',
        )
    )
    found = yard.drill()
    assert came(found)[3:] == [
        ("undo", "done"),
        ("undone", "still there"),
        ("unseen", "still there"),
    ]
    assert found.state == FAILED
    assert found.said == "Compensate said that it was done, and the probe does not agree."
    assert email(found) in yard.customers()


def test_a_probe_that_looks_in_the_wrong_place_fails_the_drill_and_the_undo_still_runs(
    yard: Yard,
) -> None:
    yard.write(("metadata.saga_key == {idempotency_key}]", "metadata.saga_key == `1`]"))
    found = yard.drill()
    assert ("found", "not found") in came(found)
    assert ("undo", "done") in came(found)
    assert found.state == FAILED
    assert "a saga in doubt would run it twice" in found.said
    assert email(found) not in yard.customers()


def test_an_execute_that_fails_leaves_nothing_to_undo(yard: Yard) -> None:
    yard.write(('form = { email = "{args.email}" }', 'form = { nonsense = "{args.email}" }'))
    found = yard.drill("crm.blind")
    assert (came(found), found.state) == ([("execute", "failed")], FAILED)
    assert found.said == "Execute failed, so there was nothing to undo."


def test_an_execute_in_doubt_is_looked_for_and_undone_and_the_drill_has_failed(
    yard: Yard, wire
) -> None:
    yard.write((f'base_url = "{yard.sandbox}"', f'base_url = "{wire.url}"'))
    wire.cut_next("POST", "/v1/customers")
    found = yard.drill()
    assert came(found)[0] == ("execute", "unknown")
    assert ("undo", "done") in came(found)
    assert (found.state, found.said) == (FAILED, "Execute gave no clear answer.")
    assert email(found) not in yard.customers()


def test_an_execute_in_doubt_without_a_probe_is_left_to_a_person(yard: Yard, wire) -> None:
    yard.write((f'base_url = "{yard.sandbox}"', f'base_url = "{wire.url}"'))
    wire.cut_next("POST", "/v1/customers")
    found = yard.drill("crm.blind")
    assert came(found) == [("execute", "unknown")]
    assert found.said == "Nobody knows whether execute did anything."


def test_without_probe_and_check_the_undo_is_believed_and_the_drill_says_so(yard: Yard) -> None:
    found = yard.drill("crm.blind")
    assert (came(found), found.state) == ([("execute", "done"), ("undo", "done")], WORKED)
    assert "there is no probe or check to see it with" in found.said


def test_a_correction_is_sent_and_looked_for(yard: Yard) -> None:
    found = yard.drill("crm.letter")
    assert came(found) == [("execute", "done"), ("undo", "done"), ("undone", "found")]
    assert (found.state, found.undo) == (WORKED, "correct")
    [left] = [one for one in yard.stored() if one["email"] == email(found)]
    begun = drilling.Begun(
        found.id, found.tool, "1", found.digest, Direction.CORRECT, json.loads(found.args_text)
    )
    assert left["metadata"] == {"saga_key": begun.key, "correction": f"corr:{begun.key}"}


def test_args_of_ones_own_are_checked_and_used(yard: Yard) -> None:
    found = yard.drill(args={"email": "own-{drill}@example.com"})
    assert found.state == WORKED
    assert found.args_text == f'{{"email":"own-{email(found)}"}}'
    with pytest.raises(errors.InvalidArgs):
        yard.ask(args={"mail": "x"})


def test_every_drill_has_its_own_key_and_no_step_can_have_it(yard: Yard) -> None:
    shift = shifts.ring_row()
    yard.ask("crm.customer")
    first = drilling.begin(shift)
    yard.ask("crm.blind")
    second = drilling.begin(shift)
    assert first
    assert second
    assert first.key != second.key
    assert len(first.key) == 64


# -- refusals ---------------------------------------------------------------------------


def test_without_a_sandbox_a_drill_is_refused_with_what_to_declare(yard: Yard) -> None:
    with pytest.raises(errors.InvalidArgs) as refused:
        yard.ask("crm.homeless")
    assert refused.value.detail == (
        'crm.homeless declares no sandbox: add [tools."crm.homeless".drill] with base_url and '
        "args to the tools file."
    )
    assert not Drill.objects.exists()


def test_a_drill_needs_a_reason_and_a_tool(yard: Yard) -> None:
    with pytest.raises(errors.InvalidArgs, match="Say why"):
        yard.ask(reason=" ")
    with pytest.raises(errors.UnknownTool):
        yard.ask("crm.nobody")


def test_a_secret_of_the_sandbox_that_is_not_set_refuses_the_drill(yard: Yard, monkeypatch) -> None:
    monkeypatch.delenv("CRM_SANDBOX_AUTH")
    with pytest.raises(errors.InvalidArgs, match="CRM_SANDBOX_AUTH, for the sandbox, is not set"):
        yard.ask()


def test_a_secret_of_production_is_never_shown_to_the_sandbox(yard: Yard, monkeypatch) -> None:
    monkeypatch.setenv("CRM_SANDBOX_AUTH", "Bearer sk_live_never")
    with pytest.raises(errors.InvalidArgs, match="says the same as CRM_AUTH"):
        yard.ask()


def test_one_tool_is_drilled_once_at_a_time(yard: Yard) -> None:
    first = yard.ask()
    with pytest.raises(errors.AlreadyDecided, match="being drilled already"):
        yard.ask()
    work(lambda: facts(first).is_over)
    yard.ask()


def test_a_freeze_stops_drills_before_during_and_not_after(yard: Yard) -> None:
    freezing.freeze("tool", "crm.customer", reason="Stop", actor="person:oskar")
    with pytest.raises(errors.Frozen):
        yard.ask()
    other = yard.drill("crm.blind")
    assert other.state == WORKED
    freezing.lift(Freeze.objects.get().pk, actor="person:oskar")
    waiting = yard.ask()
    freezing.freeze("all", "", reason="Stop", actor="person:oskar")
    assert not drilling.waits()
    ShiftLoop(shifts.ring_row()).run()
    assert facts(waiting).state == DrillState.WAITING
    freezing.lift(Freeze.objects.get(scope="all").pk, actor="person:oskar")
    work(lambda: facts(waiting).is_over)
    assert facts(waiting).state == WORKED


def test_a_freeze_in_the_middle_stops_before_the_undo_and_says_what_is_left(yard: Yard) -> None:
    def slow(caller) -> None:
        freezing.freeze("all", "", reason="Stop", actor="person:oskar")
        body = b'{"id": "cus_1"}'
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        caller.sendall(head % len(body) + body)

    target = SocketTarget(slow)
    yard.write((f'base_url = "{yard.sandbox}"', f'base_url = "{target.url}"'))
    found = yard.drill("crm.blind")
    target.close()
    assert len(target.requests) == 1
    assert (came(found), found.state) == ([("execute", "done")], DrillState.STOPPED)
    assert "left in the sandbox" in found.said


# -- workers ----------------------------------------------------------------------------
