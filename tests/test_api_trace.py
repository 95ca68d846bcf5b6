"""A saga's trace, judged from outside by agentack: what really ran is what people said yes to."""

from __future__ import annotations

import json
import time
from typing import Any
from uuid import UUID, uuid4

import pytest

from approvals.services import deciding
from approvals.services.expiring import UNANSWERED
from ledger import storage
from ledger.bearer import Bearer
from ledger.gate import Verdict
from ledger.models import Step
from ledger.outcomes import Done, Failed
from ledger.queries import trace
from ledger.services import claiming, recording
from ledger.services.asking import ask
from ledger.services.closing import abort, complete
from ledger.services.proposals import AlternativeProposal, Proposal
from ledger.services.unit import Unit
from ledger.states import Direction
from tests.apicast import Caller, operator_in, problem_type
from tests.shop import Shop, assert_verifies, broken, customer, states, work, work_saga
from tests.tracecast import (
    INCOMPLETE,
    PASS,
    ana,
    answer,
    approved_refund,
    check,
    events,
    read,
    refund,
    request_of,
    told,
)

__all__ = ["ana", "check"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_an_approved_pivot_passes(shop: Shop, ana: Bearer, check: Any) -> None:
    saga = approved_refund(shop, ana)
    code, said = check(read(saga, shop))
    assert code == PASS, said
    assert told(saga) == [
        ("action_proposed", "customer/forward/1"),
        ("action_proposed", "refund/forward/1"),
        ("approval_requested", "refund/forward/1"),
        ("approval_decision", "refund/forward/1"),
        ("action_executed", "customer/forward/1"),
        ("action_executed", "refund/forward/1"),
        ("session_end", ""),
    ]
    step = Step.objects.get(saga_id=saga, step_id="refund")
    ran = events(saga)[5]
    assert ran["session_id"] == str(saga)
    assert ran["approval_id"] == str(request_of(saga).pk)
    assert ran["action"] == {
        "tool": "payments.refund",
        "operation": "forward",
        "resource": step.idempotency_key,
        "parameters": json.loads(step.args_text),
    }
    yes_until = request_of(saga).yes_until
    assert yes_until is not None
    assert events(saga)[3]["expires_at"] == yes_until.isoformat().replace("+00:00", "Z")


def test_a_rejected_pivot_passes_as_blocked_and_its_saga_as_undone(
    shop: Shop, ana: Bearer, check: Any
) -> None:
    saga = shop.open(customer("customer"), refund(shop))
    work(lambda: states(saga)["customer"] == "committed")
    answer(ana, saga, deciding.reject, reason="wrong customer")
    work_saga(saga, "compensated")
    code, said = check(read(saga, shop))
    assert code == PASS, said
    assert told(saga)[3:] == [
        ("action_executed", "customer/forward/1"),
        ("approval_decision", "refund/forward/1"),
        ("action_blocked", "refund/forward/1"),
        ("action_proposed", "customer/compensate/1"),
        ("action_executed", "customer/compensate/1"),
        ("session_end", ""),
    ]
    assert events(saga)[5]["reason"] == "wrong customer"


def ask_briefly(saga: UUID, seconds: float) -> None:
    """Put the refund to people anew, on terms that end soon."""
    request = request_of(saga)
    terms = {"need": [{"group": "approvers", "count": 1}], "expires_s": seconds}
    verdict = Verdict("ask", request.rule, request.policy_digest, terms)

    @storage.transition
    def again() -> None:
        unit = Unit("test")
        unit.lock_with_steps([request.step_id])
        step = unit.steps[request.step_id]
        ask(unit, unit.sagas[saga], step, Direction.FORWARD, verdict, why="on other terms")
        unit.flush()

    again()


def test_an_expired_question_passes_as_blocked(shop: Shop, check: Any) -> None:
    saga = shop.open(refund(shop))
    ask_briefly(saga, 0.1)
    time.sleep(0.2)
    work_saga(saga, "compensated")
    code, said = check(read(saga, shop))
    assert code == PASS, said
    found = events(saga)
    # The first question was replaced before anybody answered: that was no yes either.
    assert [e["decision"] for e in found if e["type"] == "approval_decision"] == ["deny", "deny"]
    assert found[-2]["reason"] == UNANSWERED
    assert not [event for event in found if event["type"] == "action_executed"]


def test_a_compensated_saga_passes_with_every_undo_under_its_own_key(
    shop: Shop, check: Any
) -> None:
    steps = customer("one", "1@example.com"), customer("two", "2@example.com"), broken("three")
    saga = shop.open(*steps, customer("four", "4@example.com"))
    work_saga(saga, "compensated")
    code, said = check(read(saga, shop))
    assert code == PASS, said
    found = events(saga)
    ran = [event["action_id"] for event in found if event["type"] == "action_executed"]
    assert ran == [f"{n}/forward/1" for n in ("one", "two", "three")] + [
        "two/compensate/1",
        "one/compensate/1",
    ]
    undo = found[-2]["action"]
    assert (undo["operation"], undo["resource"][:5]) == ("compensate", "comp:")
    stopped = [event["action_id"] for event in found if event["type"] == "action_blocked"]
    assert stopped == ["four/forward/1"]
    assert_verifies()


def test_a_yes_that_was_taken_back_is_told_as_the_no_that_it_became(
    shop: Shop, ana: Bearer, check: Any
) -> None:
    saga = shop.open(refund(shop))
    answer(ana, saga)
    answer(ana, saga, deciding.reject, reason="I was too quick")
    work_saga(saga, "compensated")
    code, said = check(read(saga, shop))
    assert code == PASS, said
    assert [kind for kind, _ in told(saga)][2:] == [
        "approval_decision",
        "action_blocked",
        "session_end",
    ]


def test_a_changed_step_is_another_action_of_the_same_intent(
    shop: Shop, ana: Bearer, check: Any
) -> None:
    first = refund(shop, amount=900)
    saga = shop.open(first)
    answer(ana, saga, deciding.request_change, reason="only 300")
    shop.propose(saga, "refund", first.tool, args={**first.args, "amount": 300})
    answer(ana, saga)
    work(lambda: states(saga)["refund"] == "committed")
    complete(saga, bearer=shop.bearer)
    code, said = check(read(saga, shop))
    assert code == PASS, said
    found = events(saga)
    assert len({event["intent_id"] for event in found[:-1]}) == 1
    (ran,) = [event for event in found if event["type"] == "action_executed"]
    assert (ran["action_id"], ran["action"]["parameters"]["amount"]) == ("refund/forward/2", 300)


def play(outcome: Any) -> None:
    """A worker's claim, and this answer to each call."""
    started = claiming.claim(uuid4(), 16)
    assert started
    recording.record(uuid4(), [recording.Finished(found, outcome) for found in started])


def due_now() -> None:
    storage.execute("UPDATE ledger_outboxmessage SET due_at = clock_timestamp()")


def test_tries_of_one_run_are_one_execution(shop: Shop, ana: Bearer, check: Any) -> None:
    saga = shop.open(refund(shop))
    answer(ana, saga)
    play(Failed("429: slow down", retryable=True))
    due_now()
    play(Done({"id": "re_1"}))
    complete(saga, bearer=shop.bearer)
    code, said = check(read(saga, shop))
    assert code == PASS, said
    assert [kind for kind, _ in told(saga)].count("action_executed") == 1


def test_an_alternative_is_an_action_of_its_own(shop: Shop, ana: Bearer, check: Any) -> None:
    other = AlternativeProposal("crm.customer", {"email": "voucher@example.com"})
    saga = shop.open(refund(shop, alternatives=(other,)))
    answer(ana, saga)
    play(Failed("402: no", retryable=False))
    due_now()
    play(Done({"id": "cus_1"}))
    complete(saga, bearer=shop.bearer)
    code, said = check(read(saga, shop))
    assert code == PASS, said
    ran = [event for event in events(saga) if event["type"] == "action_executed"]
    assert [event["action_id"] for event in ran] == ["refund/forward/1", "refund/forward/2"]
    assert ran[1]["action"]["parameters"] == {"email": "voucher@example.com"}


def test_a_question_that_the_saga_withdrew_passes(shop: Shop, check: Any) -> None:
    saga = shop.open(refund(shop))
    abort(saga, "changed my mind", bearer=shop.bearer)
    code, said = check(read(saga, shop))
    assert code == PASS, said
    assert [kind for kind, _ in told(saga)][-3:] == [
        "approval_decision",
        "action_blocked",
        "session_end",
    ]


def test_a_saga_that_still_runs_is_incomplete_and_never_a_pass(shop: Shop, check: Any) -> None:
    saga = shop.open(refund(shop))
    code, said = check(read(saga, shop))
    assert code == INCOMPLETE, said


def test_args_too_long_or_too_deep_for_a_trace_are_told_by_their_digest(
    shop: Shop, check: Any
) -> None:
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    args = {"email": "x@example.com", "notes": deep}
    long = {"email": "y@example.com", "notes": list(range(60_000))}
    saga = shop.open(Proposal("deep", "crm.noted", args), Proposal("long", "crm.noted", long))
    work(lambda: states(saga)["long"] == "committed")
    complete(saga, bearer=shop.bearer)
    code, said = check(read(saga, shop))
    assert code == PASS, said
    for step in Step.objects.filter(saga_id=saga):
        (ran,) = [
            event
            for event in events(saga)
            if (event["type"], event.get("action_id"))
            == ("action_executed", f"{step.step_id}/forward/1")
        ]
        assert ran["action"]["parameters"] == {"args_digest": step.fingerprint}
    assert_verifies()


def test_an_agent_reads_its_own_traces_and_people_read_all(
    shop: Shop, other_agent: Caller, nobody: Caller
) -> None:
    saga = shop.open(customer("one"))
    mine = read(saga, shop)
    assert operator_in("viewers").get(f"sagas/{saga}/trace.jsonl").getvalue() == mine
    for caller, status, kind in (
        (other_agent, 404, "not-found"),
        (nobody, 401, "unauthorized"),
    ):
        refused = caller.get(f"sagas/{saga}/trace.jsonl")
        assert (refused.status_code, problem_type(refused)) == (status, kind)
    absent = other_agent.get(f"sagas/{uuid4()}/trace.jsonl")
    assert (absent.status_code, problem_type(absent)) == (404, "not-found")
    described = nobody.get("openapi.json").json()["paths"]["/api/v1/sagas/{saga}/trace.jsonl"]
    assert "application/jsonl" in described["get"]["responses"]["200"]["content"]


def test_a_trace_is_longer_than_what_is_read_at_a_time(
    shop: Shop, check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    saga = shop.open(customer("one"), broken("two"))
    work_saga(saga, "compensated")
    whole = read(saga, shop)
    monkeypatch.setattr(trace, "PAGE", 2)
    assert read(saga, shop) == whole
