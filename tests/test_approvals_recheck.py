"""Between the yes and the claim: whatever changed, nothing runs and people are asked anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection

from approvals.gate import Gate
from approvals.models import Approval
from approvals.services import requesting
from ledger.bearer import Bearer
from ledger.gate import Held, Verdict
from ledger.models import Agent, Saga
from ledger.outcomes import Failed
from ledger.services import recording
from ledger.states import StepState
from ledger.tools.installed import registry
from tests.approvalcast import Case, claim, person, tools, waiting_case
from tests.deciders import an_approver, approve, assert_asked_anew

__all__ = ["an_approver", "tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


@pytest.mark.parametrize(
    ("bound", "why"),
    [
        ({"args": {"amount": 9}, "args_digest": ""}, "the arguments changed"),
        ({"tool_digest": "0" * 64}, "the tool's version changed"),
        ({"idempotency_key": "0" * 64}, "the key that the target sees changed"),
        ({"policy": "0" * 64}, "the policy changed"),
    ],
)
def test_a_yes_to_something_else_runs_nothing(ana: Bearer, bound: Any, why: str) -> None:
    case = waiting_case()
    case.ask_again(**bound)
    approve(ana, case)
    assert_asked_anew(case, case.request, why)


def test_an_approver_who_left_the_group_counts_no_more(ana: Bearer) -> None:
    case = waiting_case()
    approve(ana, case)
    User.objects.get(pk=ana.user_id).groups.clear()
    assert_asked_anew(case, case.request, "no longer enough")


def test_an_account_that_was_closed_counts_no_more(ana: Bearer) -> None:
    case = waiting_case()
    approve(ana, case)
    User.objects.filter(pk=ana.user_id).update(is_active=False)
    assert_asked_anew(case, case.request, "no longer enough")


def test_who_became_the_agents_owner_counts_no_more(ana: Bearer) -> None:
    case = waiting_case()
    approve(ana, case)
    Agent.objects.filter(pk=case.agent.agent_id).update(owner_id=ana.user_id)
    assert_asked_anew(case, case.request, "no longer enough")


def test_a_new_yes_to_the_new_request_runs_it(ana: Bearer) -> None:
    case = waiting_case()
    approve(ana, case)
    User.objects.get(pk=ana.user_id).groups.clear()
    assert claim() == []
    approve(person("ben", "approvers"), case)
    assert [found.step for found in claim()] == [case.step]


def bump(settings: Any, old: str, new: str) -> None:
    """The tools file of a newer release, as a worker that was started anew reads it."""
    file = Path(settings.SAGA_TOOLS)
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    registry.cache_clear()


def test_a_tool_whose_version_was_bumped_runs_under_no_old_yes(ana: Bearer, settings: Any) -> None:
    case = waiting_case()
    approve(ana, case)
    old = case.request
    bump(settings, 'version = "1"', 'version = "2"')
    assert_asked_anew(case, old, "version changed: 1 then, 2 now")
    assert (old.tool_version, case.request.tool_version) == ("1", "2")
    approve(ana, case)
    (ran,) = claim()
    assert (ran.tool.version, ran.tool.digest) == ("2", case.request.tool_digest)


def test_a_tool_that_changed_under_its_version_runs_under_no_old_yes(
    ana: Bearer, settings: Any
) -> None:
    case = waiting_case()
    approve(ana, case)
    old = case.request
    bump(settings, "127.0.0.1:1/do", "127.0.0.1:1/do-more")
    assert_asked_anew(case, old, "the tool's definition changed")


def test_arguments_that_fit_the_new_version_no_more_wait_for_on_call(
    ana: Bearer, settings: Any
) -> None:
    case = waiting_case()
    approve(ana, case)
    bump(settings, 'id = { type = "string" }', 'id = { type = "integer" }')
    assert claim() == []
    assert case.row.state == StepState.STUCK
    assert "is not of type 'integer'" in case.row.held_why


def test_a_certain_failure_is_tried_again_under_the_same_yes(ana: Bearer) -> None:
    case = waiting_case()
    approve(ana, case)
    (first,) = claim()
    recording.record(uuid4(), [recording.Finished(first, Failed("busy", retryable=True))])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_outboxmessage SET due_at = clock_timestamp()")
    (second,) = claim()
    assert second.attempt != first.attempt
    assert Approval.objects.filter(step_id=case.step).count() == 1


def test_an_undo_about_which_nobody_was_asked_may_run() -> None:
    case = waiting_case()
    held = _held(case, "compensate")
    assert Gate().recheck(held) == ""
    requesting.ask(held, Verdict("ask", "undo", "0" * 64))
    assert "pending" in Gate().recheck(held)


def test_a_forward_run_about_which_nobody_was_asked_may_not() -> None:
    case = waiting_case()
    held = _held(case, "forward")
    assert "pending" in Gate().recheck(held)
    other = _held(waiting_case(), "forward")
    assert Gate().recheck(Held(**{**_fields(other), "step": uuid4()})).startswith("Nobody")


def _held(case: Case, direction: str) -> Held:
    row = case.row
    return Held(
        step=row.pk,
        saga=row.saga_id,
        direction=direction,
        args=row.args,
        args_digest=row.fingerprint,
        tool=row.tool,
        tool_version="1",
        tool_digest=row.tool_version_id,
        idempotency_key=f"{direction}:{row.idempotency_key}"[:90],
    )


def _fields(held: Held) -> dict[str, Any]:
    return {name: getattr(held, name) for name in Held.__dataclass_fields__}


def test_a_verdict_without_terms_still_asks_somebody_for_a_limited_time() -> None:
    case = waiting_case()
    requesting.ask(_held(case, "correct"), Verdict("allow", "none", "0" * 64))
    assert case.request.needs == [{"group": "approvers", "count": 1}]
    assert case.request.expires_at > case.request.created_at


def test_the_ledger_is_told_the_newest_request_of_each_step(ana: Bearer) -> None:
    case, other = waiting_case(), waiting_case()
    approve(ana, other)
    newer = case.ask_again()
    found = Gate().requests([case.step, other.step, uuid4()])
    assert {step: request["state"] for step, request in found.items()} == {
        case.step: "pending",
        other.step: "approved",
    }
    assert found[case.step]["id"] == newer
    assert str(newer) in str(found[case.step]["url"])


def test_a_saga_that_a_person_started_stays_theirs() -> None:
    case = waiting_case(metadata={"started_by": "ana"})
    assert Saga.objects.get(pk=case.saga).started_by == "ana"
