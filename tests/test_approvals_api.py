"""Approvals over REST: who gets in, what is shown, and what each answer is answered."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from approvals.wire import ApprovalInFull, ApprovalPage, DecidedDocument
from ledger.bearer import Bearer
from ledger.models import Agent
from ledger.outcomes import Done
from ledger.services import tokens
from ledger.services.recording import Finished, record
from tests.approvalcast import Case, claim, person, tools, waiting_case

__all__ = ["tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


@dataclass
class Caller:
    """Somebody at the API's door."""

    token: str

    def get(self, path: str) -> HttpResponse:
        return Client().get(f"/api/v1/{path}", headers={"Authorization": f"Bearer {self.token}"})

    def post(self, path: str, body: Any) -> HttpResponse:
        return Client().post(
            f"/api/v1/{path}",
            json.dumps(body),
            "application/json",
            headers={"Authorization": f"Bearer {self.token}"},
        )

    def answer(self, case: Case, verb: str, **body: Any) -> HttpResponse:
        sent = {"args_digest": case.digest, "reason": "agreed", **body}
        return self.post(f"approvals/{case.request.pk}/{verb}", sent)


def caller(who: Bearer) -> Caller:
    from django.contrib.auth.models import User

    return Caller(tokens.issue_operator_token(User.objects.get(pk=who.user_id)))


@pytest.fixture
def ana() -> Caller:
    return caller(person("ana", "approvers"))


@pytest.fixture
def viewer() -> Caller:
    return caller(person("vera", "viewers"))


def kind(answer: HttpResponse) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].rsplit("/", 1)[-1]


def test_a_waiting_request_is_shown_exactly_as_it_would_run(ana: Caller) -> None:
    case = waiting_case(id="p1", amount=4200)
    answer = ana.get("approvals?state=pending")
    ApprovalPage.model_validate_json(answer.content)
    (shown,) = answer.json()["items"]
    assert shown["args"] == {"id": "p1", "amount": 4200}
    assert shown["args_digest"] == case.row.fingerprint
    assert shown["step_id"] == "refund-1"
    assert shown["needs"] == [{"group": "approvers", "count": 1, "have": 0, "missing": 1}]
    assert (shown["can_decide"], shown["why_not"]) == (True, None)
    assert shown["expires_at"].endswith("Z")
    whole = ana.get(f"approvals/{shown['id']}").json()
    assert whole | shown == whole
    assert whole["idempotency_key"] == case.row.idempotency_key
    assert (whole["step"], whole["direction"]) == (str(case.step), "forward")


def test_approving_over_rest_lets_the_step_run(ana: Caller) -> None:
    case = waiting_case()
    answer = ana.answer(case, "approve")
    DecidedDocument.model_validate_json(answer.content)
    told = answer.json()
    assert (told["state"], told["replayed"]) == ("approved", False)
    assert told["decisions"][0] | {"at": ""} == {
        "by": "ana",
        "answer": "approve",
        "reason": "agreed",
        "args_digest": case.digest,
        "via": "api",
        "address": "127.0.0.1",
        "stands_for": None,
        "incident": None,
        "at": "",
    }
    assert told["can_decide"] is False
    assert "You approved it" in told["why_not"]
    assert len(claim()) == 1


def test_the_same_decision_again_is_replayed(ana: Caller) -> None:
    case = waiting_case()
    ana.answer(case, "approve")
    again = ana.answer(case, "approve")
    assert (again.status_code, again.json()["replayed"]) == (200, True)
    assert again.headers["Idempotent-Replayed"] == "true"


def test_another_decision_is_refused_with_the_recorded_one(ana: Caller) -> None:
    case = waiting_case()
    ana.answer(case, "reject", reason="wrong customer")
    refused = caller(person("ben", "approvers")).answer(case, "approve")
    assert kind(refused) == (409, "already-decided")
    assert refused.json()["decision"]["by"] == "ana"
    assert refused.json()["decision"]["reason"] == "wrong customer"


def test_each_way_of_being_too_late_has_its_own_problem(ana: Caller) -> None:
    case = waiting_case()
    assert kind(ana.answer(case, "approve", args_digest="0" * 64)) == (409, "stale-digest")
    case.ask_again(seconds=0.05)
    time.sleep(0.1)
    # No sweep has run: the clock alone ends it.
    assert ana.get(f"approvals/{case.request.pk}").json()["state"] == "expired"
    assert ana.get("approvals?state=pending").json()["items"] == []
    assert len(ana.get("approvals?state=expired").json()["items"]) == 1
    assert kind(ana.answer(case, "approve")) == (410, "approval-expired")


def test_a_request_for_change_reaches_the_agent(ana: Caller) -> None:
    case = waiting_case()
    answer = ana.answer(case, "request-change", reason="only half of it")
    assert answer.json()["state"] == "change_requested"
    assert case.row.error["detail"] == "only half of it"


@pytest.mark.parametrize("verb", ["reject", "request-change"])
def test_a_no_without_a_reason_is_refused(ana: Caller, verb: str) -> None:
    case = waiting_case()
    assert kind(ana.answer(case, verb, reason=" ")) == (422, "invalid-args")
    assert case.request.state == "pending"


def test_edited_arguments_are_approved_under_their_own_digest(ana: Caller) -> None:
    case = waiting_case()
    shown = case.request
    edited = ana.answer(case, "approve", args={"id": "p1", "amount": 1})
    assert edited.status_code == 200
    told = edited.json()
    assert told["id"] == str(case.request.pk) != str(shown.pk)
    assert (told["state"], told["args"]) == ("approved", {"id": "p1", "amount": 1})
    assert told["args_digest"] != shown.args_digest
    full = ana.get(f"approvals/{told['id']}").json()
    ApprovalInFull.model_validate_json(json.dumps(full))
    assert full["edited"] == {
        "by": "ana",
        "args": {"id": "p1", "amount": 100},
        "args_digest": shown.args_digest,
    }
    old = ana.get(f"approvals/{shown.pk}").json()
    assert (old["state"], old["superseded_by"]) == ("superseded", told["id"])
    body = {"args_digest": shown.args_digest, "args": {"id": "p1", "amount": 1}}
    again = ana.post(f"approvals/{shown.pk}/approve", body)
    assert (again.status_code, again.json()["replayed"]) == (200, True)
    assert again.json()["id"] == told["id"]


@pytest.mark.parametrize("args", [None, [], "{}", 7])
def test_edited_arguments_are_an_object(ana: Caller, args: Any) -> None:
    case = waiting_case()
    refused = ana.answer(case, "approve", args=args)
    assert kind(refused) == (422, "invalid-args")
    assert case.request.state == "pending"


@pytest.mark.parametrize("verb", ["reject", "request-change"])
def test_only_a_yes_takes_arguments(ana: Caller, verb: str) -> None:
    case = waiting_case()
    refused = ana.answer(case, verb, reason="less", args={"id": "p1", "amount": 1})
    assert kind(refused) == (422, "invalid-args")
    assert case.request.state == "pending"


def past_the_pivot(ana: Caller) -> Case:
    """A request in a saga that can only go forward, so that it takes more steps after a no."""
    case = waiting_case(id="p0", amount=1)
    ana.answer(case, "approve")
    (ran,) = claim()
    record(ran.token, [Finished(ran, Done({}))])
    return replace(case, step=case.propose("refund-2", id="p1", amount=100))


def test_a_no_in_a_saga_that_turned_back_is_not_reopened(ana: Caller) -> None:
    case = waiting_case()
    ana.answer(case, "reject", reason="wrong customer")
    refused = ana.answer(case, "reopen", reason="it was right")
    assert kind(refused) == (409, "saga-ended")
    assert "the saga has turned back" in refused.json()["detail"]


def test_a_no_is_reopened_once_and_by_somebody_who_may(ana: Caller, viewer: Caller) -> None:
    case = past_the_pivot(ana)
    assert kind(ana.answer(case, "reopen", reason="oops")) == (409, "already-decided")
    ana.answer(case, "reject", reason="wrong customer")
    assert kind(ana.answer(case, "reopen", reason=" ")) == (422, "invalid-args")
    assert kind(viewer.answer(case, "reopen", reason="please")) == (403, "forbidden")
    assert ana.answer(case, "reopen", reason="it was right").json()["replayed"] is False
    assert ana.answer(case, "reopen", reason="it was right").json()["replayed"] is True
    told = ana.get(f"approvals/{case.request.pk}").json()["reopened"]
    assert (told["by"], told["reason"]) == ("ana", "it was right")


@pytest.mark.parametrize(
    "body", [{}, {"args_digest": 7}, {"reason": "yes"}, {"args_digest": "0" * 64, "who": "root"}]
)
def test_a_body_of_another_shape_decides_nothing(ana: Caller, body: Any) -> None:
    case = waiting_case()
    answer = ana.post(f"approvals/{case.request.pk}/approve", body)
    assert kind(answer) == (422, "invalid-args")
    assert case.request.state == "pending"


def test_an_agents_token_is_refused_everywhere() -> None:
    case = waiting_case()
    name = Agent.objects.get(pk=case.agent.agent_id).name
    agent = Caller(tokens.issue_agent_token(name))
    assert kind(agent.get("approvals")) == (403, "forbidden")
    assert kind(agent.get(f"approvals/{case.request.pk}")) == (403, "forbidden")
    for verb in ("approve", "reject", "request-change"):
        assert kind(agent.answer(case, verb)) == (403, "forbidden")
    assert case.request.state == "pending"


def test_without_a_token_nothing_is_shown() -> None:
    case = waiting_case()
    for answer in (
        Client().get("/api/v1/approvals"),
        Client().get(f"/api/v1/approvals/{case.request.pk}"),
        Client().post(f"/api/v1/approvals/{case.request.pk}/approve"),
    ):
        assert kind(answer) == (401, "unauthorized")


def test_a_viewer_sees_it_is_told_why_not_and_cannot_decide(viewer: Caller) -> None:
    case = waiting_case()
    shown = viewer.get(f"approvals/{case.request.pk}").json()
    ApprovalInFull.model_validate_json(json.dumps(shown))
    assert shown["can_decide"] is False
    assert "group approvers" in shown["why_not"]
    assert kind(viewer.answer(case, "approve")) == (403, "forbidden")


def test_a_get_never_decides(ana: Caller) -> None:
    case = waiting_case()
    assert ana.get(f"approvals/{case.request.pk}/approve").status_code == 405
    assert case.request.state == "pending"


def test_the_list_is_paged_by_key(ana: Caller) -> None:
    cases = [waiting_case() for _ in range(5)]
    seen, cursor = [], ""
    while True:
        answer = ana.get(f"approvals?limit=2&cursor={cursor}").json()
        seen += [one["id"] for one in answer["items"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert seen == [str(case.request.pk) for case in reversed(cases)]


@pytest.mark.parametrize("path", ["approvals?state=maybe", "approvals?cursor=x"])
def test_a_wish_that_makes_no_sense_is_a_422(ana: Caller, path: str) -> None:
    assert kind(ana.get(path)) == (422, "invalid-args")


def test_what_is_not_there_is_not_found(ana: Caller) -> None:
    body = {"args_digest": "0" * 64, "reason": "x"}
    missing = waiting_case().step
    assert kind(ana.get(f"approvals/{missing}")) == (404, "not-found")
    assert kind(ana.post(f"approvals/{missing}/approve", body)) == (404, "not-found")
    assert kind(ana.get("approvals/nonsense")) == (404, "not-found")
