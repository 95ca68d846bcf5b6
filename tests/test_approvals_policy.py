"""A policy file at work: bound to the yes, several people, take-back."""

from __future__ import annotations

import time
from datetime import timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError

from approvals import queries_policy
from approvals.models import Approval
from approvals.services import deciding
from ledger import errors, storage
from ledger.bearer import Bearer
from ledger.models import OutboxMessage
from ledger.outcomes import Done
from ledger.services import closing, recording
from ledger.services.opening import open_saga
from ledger.services.proposals import Opening
from ledger.services.verifying import verify
from ledger.states import SagaState, StepState
from ledger.walls_sql import REFUSED
from tests.approvalcast import Case, agent, claim, person, tools, waiting_case
from tests.askingcast import ASK, DENY_LARGE, TWO_GROUPS, ana, approve
from tests.policycast import under

__all__ = ["ana", "tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


def test_a_policy_that_was_tightened_after_the_yes_asks_anew(ana: Bearer) -> None:
    with under(ASK):
        case = waiting_case()
        approve(ana, case)
        old = case.request
    with under(TWO_GROUPS):
        assert claim() == []
        old.refresh_from_db()
        assert (old.state, old.superseded_by_id) == ("superseded", case.request.pk)
        assert "the policy changed" in case.request.why
        assert case.request.needs == [
            {"group": "approvers", "count": 1},
            {"group": "finance", "count": 1},
        ]
        assert case.row.attempts == 0
        approve(ana, case)
        assert claim() == []
        approve(person("ben", "finance"), case)
        assert [found.step for found in claim()] == [case.step]


def test_a_policy_that_denies_by_now_denies_after_the_yes_too(ana: Bearer) -> None:
    with under(ASK):
        case = waiting_case()
        approve(ana, case)
    with under(ASK.replace('"ask"', '"deny"')):
        assert claim() == []
    assert case.row.state == StepState.REJECTED
    assert case.row.error["code"] == "denied"
    assert case.request.state == "cancelled"
    assert Approval.objects.filter(step_id=case.step, used_at__isnull=False).count() == 0
    assert case.row.saga.state == SagaState.COMPENSATED
    assert list(verify()) == []


def test_another_comment_in_the_file_is_no_other_policy(ana: Bearer) -> None:
    with under(ASK):
        case = waiting_case()
        approve(ana, case)
    with under("# reviewed in May\n" + ASK):
        assert [found.step for found in claim()] == [case.step]


def test_a_new_version_that_the_policy_denies_is_not_asked_about(ana: Bearer) -> None:
    with under(ASK + 'when = "args.amount < 500"\n' + DENY_LARGE):
        case = waiting_case(amount=100, id="p1")
        deciding.request_change(ana, case.request.pk, args_digest=case.digest, reason="more")
        case.propose("refund-1", amount=5000, id="p1")
    assert case.row.state == StepState.REJECTED
    assert case.row.error["code"] == "denied"
    assert Approval.objects.filter(step_id=case.step, state="pending").count() == 0


def test_a_denied_step_never_runs_and_its_saga_turns_back() -> None:
    with under(DENY_LARGE):
        case = waiting_case(amount=5000, id="p1")
    assert case.row.state == StepState.REJECTED
    assert not Approval.objects.filter(step_id=case.step).exists()
    assert claim() == []


def test_whether_a_person_is_needed_is_decided_once(ana: Bearer) -> None:
    """Case A17: no later look at a condition outvotes a no."""
    with under(ASK + "when = \"saga.metadata.env == 'prod'\"\n"):
        case = waiting_case(metadata={"env": "prod"})
        storage.execute("UPDATE ledger_saga SET metadata = '{}' WHERE id = %s", [case.saga])
        deciding.reject(ana, case.request.pk, args_digest=case.digest, reason="no")
        assert claim() == []
    assert case.row.state == StepState.REJECTED


def test_an_undo_that_a_rule_denies_waits_for_people(ana: Bearer) -> None:
    everything = '[[rule]]\nname = "stop"\nagent = "*"\nverdict = "deny"\n'
    caller = agent(f"agent-{uuid4().hex[:8]}")
    saga = open_saga(Opening(task_id="t", name="Notes"), bearer=caller).saga
    case = Case(caller, saga, saga)
    case.step = case.propose("note", "note.add", id="n")
    (found,) = claim()
    recording.record(uuid4(), [recording.Finished(found, Done({"ok": True}))])
    with under(everything):
        closing.abort(case.saga, "changed their mind", bearer=case.agent)
        assert (case.request.direction, case.request.state) == ("compensate", "pending")
        assert claim() == []
        approve(ana, case)
        assert [one.direction for one in claim()] == ["compensate"]


def test_one_person_in_both_groups_does_not_meet_a_need_of_both(ana: Bearer) -> None:
    with under(TWO_GROUPS):
        case = waiting_case()
        approve(ana, case)
        assert approve(ana, case).replayed
        assert (case.request.state, claim()) == ("pending", [])
        approve(person("ben", "approvers"), case)
        assert case.request.state == "approved"
        assert [found.step for found in claim()] == [case.step]


def test_a_rule_may_want_a_reason_with_every_yes(ana: Bearer) -> None:
    with under(ASK + "require_reason = true\n"):
        case = waiting_case()
        with pytest.raises(errors.InvalidArgs, match="reason is needed"):
            approve(ana, case)
        approve(ana, case, "agreed with the customer")
        assert case.request.state == "approved"


def test_an_empty_group_is_nobody_and_its_request_is_unroutable(ana: Bearer) -> None:
    """Cases F13 and F15."""
    with under(ASK + 'need = [{group = "finanzen", count = 1}]\n'):
        case = waiting_case()
        with pytest.raises(errors.Forbidden):
            approve(ana, case)
        (lost,) = queries_policy.unroutable()
        assert (lost.request.pk, lost.missing) == (case.request.pk, "1 more of finanzen")
        person("fin", "finanzen")
        assert queries_policy.unroutable() == []


def test_too_few_people_are_unroutable_too(ana: Bearer) -> None:
    with under(TWO_GROUPS):
        waiting_case()
        (lost,) = queries_policy.unroutable()
        assert lost.missing in {"1 more of approvers", "1 more of finance"}
        User.objects.filter(pk=ana.user_id).update(is_active=False)
        (lost,) = queries_policy.unroutable()
        assert lost.missing == "1 more of approvers and 1 more of finance"


def test_who_owns_the_agent_makes_no_request_routable() -> None:
    owner = person("owen", "approvers")
    with under(ASK):
        case = waiting_case(owner=owner)
        (lost,) = queries_policy.unroutable()
    assert lost.request.pk == case.request.pk


def test_rules_whose_people_are_not_there_are_told(ana: Bearer) -> None:
    with under(TWO_GROUPS + 'escalate_to = "night"\n') as policy:
        found = queries_policy.unmeetable(policy)
    (told,) = [missing for rule, missing in found if rule == "refunds"]
    assert told.endswith(", and later 2 more of night")


DELAYED = ASK + 'delay = "3s"\n'


def make_due() -> None:
    OutboxMessage.objects.filter(taken_at__isnull=True).update(due_at="2020-01-01T00:00:00Z")


def test_nothing_runs_while_a_yes_can_be_taken_back(ana: Bearer) -> None:
    with under(DELAYED):
        case = waiting_case()
        approve(ana, case)
        request = case.request
        assert request.runs_from - request.decided_at == timedelta(seconds=3)
        assert claim() == []
        make_due()  # a worker that looks too early puts it off
        assert claim() == []
        assert case.request.state == "approved"
        time.sleep(3.1)
        make_due()
        assert [found.step for found in claim()] == [case.step]


def test_any_approver_takes_it_back_within_the_window(ana: Bearer) -> None:
    with under(DELAYED):
        case = waiting_case()
        approve(ana, case)
        ben = person("ben", "approvers")
        deciding.reject(ben, case.request.pk, args_digest=case.digest, reason="wrong amount")
        time.sleep(3.1)
        make_due()
        assert claim() == []
    assert case.request.state == "rejected"
    assert case.row.state == StepState.REJECTED


def test_the_database_itself_refuses_an_attempt_within_the_window(ana: Bearer) -> None:
    with under(DELAYED):
        case = waiting_case()
        approve(ana, case)
    attempt = """
        INSERT INTO ledger_attempt (id, step_id, direction, alternative, fence, token,
            idempotency_key, shift_id, round, state, started_at, lease_until)
        SELECT gen_random_uuid(), id, 'forward', 0, 9, gen_random_uuid(), idempotency_key,
            gen_random_uuid(), 0, 'started', now(), now() FROM ledger_step WHERE id = %s
    """
    with pytest.raises(DatabaseError) as caught:
        storage.execute(attempt, [case.step])
    assert storage.sqlstate(caught.value) == REFUSED
    with pytest.raises(DatabaseError) as caught:
        storage.execute("UPDATE approvals_approval SET runs_from = now()")
    assert storage.sqlstate(caught.value) == REFUSED


def test_a_step_that_waited_for_another_still_waits_for_the_end_of_the_window(
    ana: Bearer,
) -> None:
    with under(ASK + 'delay = "1h"\n'):
        caller = agent(f"agent-{uuid4().hex[:8]}")
        saga = open_saga(Opening(task_id="t", name="Both"), bearer=caller).saga
        case = Case(caller, saga, saga)
        case.propose("note", "note.add", id="n")
        case.step = case.propose("refund-1", amount=5, id="p")
        approve(ana, case)
        assert case.row.state == StepState.WAITING
        (first,) = claim()
        recording.record(uuid4(), [recording.Finished(first, Done({}))])
        assert case.row.state == StepState.QUEUED
        assert claim() == []
        message = OutboxMessage.objects.get(step_id=case.step, taken_at__isnull=True)
        assert message.due_at > case.request.decided_at + timedelta(minutes=50)
