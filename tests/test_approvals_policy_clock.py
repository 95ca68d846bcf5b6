"""A policy file and time: escalation, reminders, and what it explains of itself."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from approvals.gate import Gate
from approvals.models import Approval, Decision
from approvals.services import deciding, expiring
from ledger import errors
from ledger.bearer import Bearer
from ledger.models import Notice
from ledger.outcomes import Done
from ledger.services import closing, recording
from ledger.services.opening import open_saga
from ledger.services.proposals import Opening
from ledger.services.verifying import verify
from ledger.states import StepState
from tests.approvalcast import Case, agent, claim, in_threads, person, tools, waiting_case
from tests.askingcast import ASK, DENY_LARGE, TWO_GROUPS, ana, approve, sentences, times_are_over
from tests.policycast import under

__all__ = ["ana", "tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]
ESCALATED = TWO_GROUPS + 'expires = "1h"\nescalate_to = "oncall"\nremind = "10m"\n'


def test_when_the_time_is_over_as_many_others_are_asked_instead(ana: Bearer) -> None:
    with under(ESCALATED):
        case = waiting_case()
        approve(ana, case)
        old = case.request
        times_are_over(case)
        assert expiring.sweep() == 1
        old.refresh_from_db()
        new = case.request
        assert (old.state, old.superseded_by_id) == ("superseded", new.pk)
        assert new.needs == [{"group": "oncall", "count": 2}]
        assert (new.escalate_to, new.lasts) == ("", old.lasts)
        assert new.args_digest == old.args_digest
        assert (new.rule, new.policy_digest) == (old.rule, old.policy_digest)
        assert case.row.state == StepState.AWAITING_APPROVAL
        with pytest.raises(errors.Forbidden):
            approve(ana, case)
        approve(person("oskar", "oncall"), case)
        approve(person("olga", "oncall"), case)
        assert [found.step for found in claim()] == [case.step]
    (told,) = sentences(case, "approval.escalated")
    assert (told["to"], told["count"], told["approval"]) == ("oncall", 2, str(old.pk))
    assert list(verify()) == []


def test_after_the_escalation_silence_is_a_no() -> None:
    with under(ESCALATED):
        case = waiting_case()
        times_are_over(case)
        assert expiring.sweep() == 1
        times_are_over(case)
        assert expiring.sweep() == 1
        assert case.request.state == "expired"
        assert case.row.state == StepState.REJECTED


def test_a_click_after_the_time_counts_for_nobody_also_without_a_timer(ana: Bearer) -> None:
    with under(ESCALATED):
        case = waiting_case()
        old = case.request
        times_are_over(case)
        with pytest.raises(errors.ApprovalExpired, match="goes to the group oncall"):
            deciding.approve(ana, old.pk, args_digest=old.args_digest)
        assert case.request.needs == [{"group": "oncall", "count": 2}]
        assert Decision.objects.count() == 0
        assert claim() == []
    assert case.kinds("approval.late") == ["approval.late"]


def test_many_sweeps_at_once_pass_a_question_on_once() -> None:
    with under(ESCALATED):
        case = waiting_case()
        times_are_over(case)
        found = in_threads([Gate().sweep] * 8)
        assert sum(found) == 1
        assert Gate().sweep() == 0
    assert case.kinds("approval.escalated") == ["approval.escalated"]
    assert Approval.objects.filter(step_id=case.step).count() == 2


def test_a_reminder_is_recorded_once_for_each_time() -> None:
    with under(ESCALATED):
        case = waiting_case()
        assert Gate().sweep() == 0
        assert case.request.remind_at - case.request.created_at == timedelta(minutes=10)
        times_are_over(case, "remind_at")
        assert sum(in_threads([Gate().sweep] * 8)) == 1
        assert Gate().sweep() == 0
        # Whoever slept through a day of reminders is reminded once, and next at the usual time.
        assert case.request.remind_at > case.request.created_at
    (told,) = sentences(case, "approval.reminded")
    assert told["reminder"] == 1
    assert told["groups"] == ["approvers", "finance"]
    assert case.request.state == "pending"
    notices = Notice.objects.filter(about=case.request.pk, kind="approval.reminder")
    assert [notice.round for notice in notices] == [1]  # from it the messages are made


def test_an_undo_that_nobody_answers_is_passed_on_too() -> None:
    undo = ASK.replace('tool = "money.*"', 'direction = "compensate"')
    with under(undo + 'expires = "1h"\nescalate_to = "oncall"\n'):
        caller = agent(f"agent-{uuid4().hex[:8]}")
        saga = open_saga(Opening(task_id="t", name="Notes"), bearer=caller).saga
        case = Case(caller, saga, saga)
        case.step = case.propose("note", "note.add", id="n")
        (found,) = claim()
        recording.record(uuid4(), [recording.Finished(found, Done({}))])
        closing.abort(case.saga, "changed", bearer=case.agent)
        times_are_over(case)
        assert expiring.sweep() == 1
        assert case.request.needs == [{"group": "oncall", "count": 1}]
        approve(person("oskar", "oncall"), case)
        assert [one.direction for one in claim()] == ["compensate"]


def explained(step: object, capsys: pytest.CaptureFixture[str]) -> str:
    call_command("policy", "explain", str(step))
    return capsys.readouterr().out


def test_explain_tells_the_rule_and_why_those_before_it_did_not_match(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (
        DENY_LARGE + '[[rule]]\nname = "mails"\ntool = "mail.*"\nverdict = "allow"\n' + TWO_GROUPS
    )
    with under(text):
        case = waiting_case(amount=100, id="p1")
        told = explained(case.step, capsys)
    assert "that is the policy of now" in told
    assert "1. “too large” (deny): It does not match: it is not so that args.amount >= 500." in told
    assert "2. “mails” (allow): It does not match: the tool money.refund is not mail.*." in told
    assert "3. “refunds” (ask): It matches and asks: 1 of approvers and 1 of finance" in told
    assert "4." not in told


def test_explain_says_when_the_policy_is_another_by_now(capsys: pytest.CaptureFixture[str]) -> None:
    with under(ASK):
        case = waiting_case()
    told = explained(case.step, capsys)
    assert "recorded: ask, by rule “refunds”" in told
    assert "the verdict stands; the policy of now" in told


@pytest.mark.parametrize("name", ["x", "0193a5b0-0000-7000-8000-000000000000"])
def test_explain_of_no_step_says_so(name: str) -> None:
    with pytest.raises(CommandError, match="no step"):
        call_command("policy", "explain", name)
