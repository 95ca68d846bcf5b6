"""The cases of the gate: none is lost, and those that have no other home are here."""

from __future__ import annotations

import ast
import re
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from approvals.services import deciding, expiring
from approvals.services.expiring import UNANSWERED
from ledger import errors, outbox
from ledger.bearer import Bearer
from ledger.models import Attempt, Entry, Saga
from ledger.outcomes import Done
from ledger.services import tokens
from ledger.services.recording import Finished, record
from ledger.states import StepState
from tests.apicast import Caller
from tests.approvalcast import Case, claim, person, tools, waiting_case

__all__ = ["tools"]

# Sections A to D, F and G of the cases about approvals, by their numbers.
CASES = (
    *("A1", "A2", "A3", "A6", "A9", "A12", "A13", "A14", "A17"),
    *("B1", "B3", "B7", "B9", "B11", "B12", "B14"),
    *("C1", "C4", "C5", "C8", "C10"),
    *("D1", "D2", "D6", "D8", "D9", "D10", "D13", "D15"),
    *("F1", "F3", "F7", "F8", "F10", "F13", "F15", "F16"),
    *("G1", "G3", "G4", "G5", "G6", "G8"),
)


@cache
def docstrings() -> str:
    """Of all test functions: a case that is named elsewhere is not a case that is tested."""
    files = Path(__file__).parent.glob("test_*.py")
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    return "\n".join(
        ast.get_docstring(node) or ""
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


@pytest.mark.parametrize("case", CASES)
def test_each_case_of_the_gate_is_named_by_a_test_that_states_it(case: str) -> None:
    assert re.search(rf"\b{case}\b", docstrings()), f"no test names {case} in its docstring"


database = pytest.mark.django_db(transaction=True)
with_tools = pytest.mark.usefixtures("tools")


@pytest.fixture
def ana(transactional_db: None) -> Bearer:
    return person("ana", "approvers")


def caller_of(case: Case) -> Caller:
    """The case's agent, over REST."""
    return Caller(tokens.issue_agent_token(case.agent.agent_name))


def over(case: Case) -> None:
    """Its question's time is over, and a relay has come by."""
    case.ask_again(seconds=0.001)
    time.sleep(0.01)
    assert expiring.sweep() == 1


@database
@with_tools
def test_an_agent_is_told_of_the_end_and_what_it_can_do_about_it() -> None:
    """Case D2: waiting and expired are different answers, and only one of them is worth a wait."""
    case = waiting_case()
    agent = caller_of(case)
    waiting = agent.get(f"steps/{case.step}").json()
    assert (waiting["state"], waiting["approval"]["state"]) == ("awaiting_approval", "pending")
    assert waiting["error"] is None
    over(case)
    ended = agent.get(f"steps/{case.step}").json()
    assert (ended["state"], ended["approval"]["state"]) == ("rejected", "expired")
    assert ended["error"] == {"code": "expired", "detail": UNANSWERED}
    assert "submit it as a new step" in UNANSWERED
    again = agent.propose(
        str(case.saga), "refund-1", tool="money.refund", args={"id": "p1", "amount": 100}
    )
    assert (again.status_code, again.json()["error"]["code"]) == (200, "expired")


@database
@with_tools
def test_what_expired_is_asked_anew_when_it_is_submitted_anew(ana: Bearer) -> None:
    """Case D2's other half: silence is no rejection, so the advice to submit again is true."""
    case = waiting_case(id="p0", amount=1)
    deciding.approve(ana, case.request.pk, args_digest=case.digest)
    (ran,) = claim()
    record(ran.token, [Finished(ran, Done({}))])
    case.step = case.propose("refund-2", id="p1", amount=100)
    over(case)
    assert Saga.objects.get(pk=case.saga).state == "running"
    case.step = case.propose("refund-3", id="p1", amount=100)
    assert (case.row.state, case.request.state) == (StepState.AWAITING_APPROVAL, "pending")
    fresh = waiting_case()
    over(fresh)
    assert Saga.objects.get(pk=fresh.saga).state == "compensated"
    other = fresh.propose
    with pytest.raises(errors.SagaEnded):
        other("refund-2", id="p1", amount=100)


@database
@with_tools
def test_a_wait_that_is_over_changes_nothing(ana: Bearer) -> None:
    """Case D9: neither the wait's end nor a caller that has gone away is an answer."""
    case = waiting_case()
    agent = caller_of(case)
    before = Entry.objects.filter(saga_id=case.saga).count()
    for _ in range(2):
        answer = agent.get(f"steps/{case.step}", Prefer="wait=1")
        assert (answer.status_code, answer.json()["state"]) == (200, "awaiting_approval")
    assert Entry.objects.filter(saga_id=case.saga).count() == before
    assert case.request.state == "pending"
    deciding.approve(ana, case.request.pk, args_digest=case.digest)
    assert [found.step for found in claim()] == [case.step]


@database
@with_tools
def test_no_sweep_ends_what_waits_for_a_person(settings: Any, ana: Bearer) -> None:
    """Case D10: leases and reapers are for what runs; a question has its own clock."""
    settings.SAGA_LEASE_S = settings.SAGA_LEASE_MARGIN_S = 0.05
    settings.SAGA_SHIFT_LEASE_S = settings.SAGA_RING_GRACE_S = 0.05
    case = waiting_case()
    for _ in range(5):
        time.sleep(0.1)
        outbox.sweep()
    assert (case.row.state, case.row.reclaims) == (StepState.AWAITING_APPROVAL, 0)
    assert case.request.state == "pending"
    assert not Attempt.objects.exists()
    deciding.approve(ana, case.request.pk, args_digest=case.digest)
    assert [found.step for found in claim()] == [case.step]
