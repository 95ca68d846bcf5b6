"""Operators' calls over REST: what may be done is listed, done once, and told to the late."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from ledger.models import Entry, Freeze, Step
from ledger.services import tokens
from tests.apicast import URN
from tests.deploys import Till, a_till, booking, step_of
from tests.stage import Stage, a_stage

__all__ = ["a_stage", "a_till"]

# One of each kind of reason that nobody can read.
UNREADABLE = [
    "",
    " ",
    "\n\t",
    "\u00a0\u2003",
    "\u200b\u200d\ufeff",
    "\u2060\u00ad",
    "\u3164",
    "\u2800",
    "\u0301",
]


class Api:
    """A client with somebody's token."""

    def __init__(self, token: str) -> None:
        self.client = Client(headers={"Authorization": f"Bearer {token}"})

    def get(self, path: str) -> Any:
        return self.client.get(f"/api/v1/{path}")

    def post(self, path: str, body: Any) -> Any:
        return self.client.post(f"/api/v1/{path}", json.dumps(body), "application/json")


def operator(name: str, group: str = "oncall") -> Api:
    return Api(tokens.issue_operator_token(tokens.seat_operator(name, group=group)))


@pytest.fixture
def ona(db: None) -> Api:
    return operator("ona")


def test_what_may_be_done_is_listed_with_what_it_does_and_how(stage: Stage, ona: Api) -> None:
    _, step = stage.unknown_refund()
    told = ona.get(f"steps/{step}/actions").json()
    assert (told["state"], told["trouble"], told["direction"]) == ("unknown", "doubt", "forward")
    assert [one["action"] for one in told["actions"]] == [
        "retry",
        "happened",
        "did_not_happen",
        "end_saga",
    ]
    assert all(one["does"] and one["does_not"] for one in told["actions"])
    assert (told["confirms"], told["answers"]) == (None, [])
    happened = told["actions"][1]
    assert happened["path"] == f"/api/v1/steps/{step}/resolve"
    sent = happened["body"] | {"reason": "seen", "result": {"id": "re_1"}}
    answer = ona.client.post(happened["path"], json.dumps(sent), "application/json")
    assert (answer.status_code, answer.json()["state"]) == (200, "committed")
    after = ona.get(f"steps/{step}/actions").json()
    assert (after["trouble"], after["actions"]) == (None, [])
    assert after["answers"][0]["by"] == "person:ona"
    assert after["answers"][0]["reason"] == "seen"


def test_a_second_answer_is_a_replay_or_a_409_with_the_first(stage: Stage, ona: Api) -> None:
    _, step = stage.unknown_refund()
    question = ona.get(f"steps/{step}/actions").json()["question"]
    said = {"answer": "happened", "result": {"id": "re_1"}, "reason": "seen", "question": question}
    first = ona.post(f"steps/{step}/resolve", said)
    assert "Idempotent-Replayed" not in first.headers
    per = operator("per")
    again = per.post(f"steps/{step}/resolve", said | {"reason": "saw it too"})
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
    assert again.json() == first.json()
    for other in ({"answer": "did_not_happen"}, {"answer": "happened", "result": {"id": "re_2"}}):
        late = per.post(f"steps/{step}/resolve", {"reason": "no", "question": question} | other)
        assert (late.status_code, late.json()["type"]) == (409, URN + "already-decided")
        assert late.json()["decided"]["by"] == "person:ona"
        assert late.json()["decided"]["answer"] == "happened"
    retried = per.post(f"steps/{step}/retry", {"reason": "again"})
    assert (retried.status_code, retried.json()["state"]) == (409, "committed")


def test_changed_code_is_confirmed_by_the_digest_that_is_listed(till: Till, ona: Api) -> None:
    saga = till.open(booking("one"))
    till.release("2")
    till.work()
    step = step_of(saga).pk
    told = ona.get(f"steps/{step}/actions").json()
    assert (told["confirms"]["recorded_version"], told["confirms"]["version"]) == ("1", "2")
    act = next(one for one in told["actions"] if one["action"] == "confirm")
    assert act["body"]["tool_digest"] == told["confirms"]["tool_digest"]
    stale = ona.post(f"steps/{step}/confirm", {"reason": "ok", "tool_digest": "0" * 64})
    assert (stale.status_code, stale.json()["type"]) == (409, URN + "stale-digest")
    body = act["body"] | {"reason": "read the diff"}
    assert ona.client.post(act["path"], json.dumps(body), "application/json").status_code == 200
    till.work()
    assert step_of(saga).state == "committed"


def test_a_dead_letter_is_edited_over_rest(till: Till, ona: Api) -> None:
    saga = till.open(booking("one"))
    till.release("2")
    till.work()
    step = step_of(saga).pk
    wrong = ona.post(f"steps/{step}/retry", {"reason": "more", "args": {"sum": "1"}})
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/args/sum")
    edited = ona.post(f"steps/{step}/retry", {"reason": "more", "args": {"sum": 101}})
    assert edited.status_code == 200
    assert (edited.json()["args"], edited.json()["tool_version"]) == ({"sum": 101}, "2")


CALLS = [
    ("GET", "actions", None),
    ("POST", "resolve", {"answer": "happened", "reason": "x", "result": {}}),
    ("POST", "retry", {"reason": "x"}),
    ("POST", "retry", {"reason": "x", "args": {"customer": "c", "amount": 1}}),
    ("POST", "confirm", {"reason": "x", "tool_digest": "0" * 64}),
    ("POST", "skip", {"reason": "x"}),
    ("POST", "acknowledge", {"reason": "x"}),
]


@pytest.mark.parametrize(("method", "call", "body"), CALLS)
def test_an_agents_token_never_operates_and_a_viewer_only_looks(
    stage: Stage, method: str, call: str, body: Any
) -> None:
    _, step = stage.unknown_refund()
    agent = Api(tokens.issue_agent_token("refund-desk"))
    for caller in (agent, operator("vera", "viewers")):
        path = f"steps/{step}/{call}"
        answer = caller.get(path) if method == "GET" else caller.post(path, body)
        assert (answer.status_code, answer.json()["type"]) == (403, URN + "forbidden")
    assert Client().post(f"/api/v1/steps/{step}/{call}").status_code in (401, 405)
    row = Step.objects.get(pk=step)
    assert row.state == "unknown"
    assert not Entry.objects.filter(saga_id=row.saga_id, kind__startswith="operator.").exists()


@pytest.mark.parametrize("name", ["resolve", "retry", "confirm", "skip", "acknowledge"])
def test_no_page_takes_an_act_from_a_viewer_a_stranger_or_a_token(stage: Stage, name: str) -> None:
    _, step = stage.unknown_refund()
    url = reverse(f"ledger:{name}", args=[step])
    sent = {"answer": "happened", "reason": "x", "tool_digest": "0" * 64}
    assert Client().post(url, sent)["Location"].startswith("/login")
    token = tokens.issue_agent_token("refund-desk")
    bearer = Client(headers={"Authorization": f"Bearer {token}"}).post(url, sent)
    assert bearer["Location"].startswith("/login")
    viewer = Client()
    viewer.force_login(stage.viewer)
    assert "may only look" in viewer.post(url, sent, follow=True).content.decode()
    assert viewer.get(url).status_code == 405
    assert Step.objects.get(pk=step).state == "unknown"


def test_a_reason_that_nobody_can_read_is_none_at_every_door(stage: Stage, ona: Api) -> None:
    """Blanks, marks, fillers and zero widths: one validator, whatever the door."""
    saga, step = stage.unknown_refund()
    _, held = stage.waiting_refund()
    request = stage.request(held)
    approver = operator("olivia-2", "approvers")
    agent = Api(tokens.issue_agent_token("refund-desk"))
    doors = [
        (ona, f"steps/{step}/resolve", {"answer": "happened"}),
        (ona, f"steps/{step}/retry", {}),
        (ona, f"steps/{step}/skip", {}),
        (ona, f"steps/{step}/confirm", {"tool_digest": "0" * 64}),
        (ona, f"steps/{step}/acknowledge", {}),
        (ona, "freezes", {"scope": "all"}),
        (approver, f"approvals/{request.pk}/reject", {"args_digest": request.args_digest}),
        (approver, f"approvals/{request.pk}/request-change", {"args_digest": request.args_digest}),
        (agent, f"sagas/{saga}/abort", {}),
    ]
    for caller, path, body in doors:
        for reason in UNREADABLE:
            answer = caller.post(path, body | {"reason": reason})
            assert (answer.status_code, answer.json()["type"]) == (422, URN + "invalid-args"), path
    browser = Client()
    browser.force_login(stage.oncall)
    for name, args, fields in (
        ("ledger:resolve", [step], {"answer": "happened"}),
        ("ledger:retry", [step], {}),
        ("ledger:freeze", [], {"scope": "all", "hours": ""}),
    ):
        url = reverse(name, args=args)
        for reason in UNREADABLE:
            page = browser.post(url, fields | {"reason": reason}, follow=True)
            assert "A reason is needed" in page.content.decode(), name
    assert Step.objects.get(pk=step).state == "unknown"
    assert Step.objects.get(pk=held).state == "awaiting_approval"
    assert not Freeze.objects.exists()


def test_a_repeat_needs_a_reason_that_can_be_read(stage: Stage) -> None:
    saga, step = stage.waiting_refund()
    agent = Api(tokens.issue_agent_token("refund-desk"))
    args = {"payment_intent": "pi_3PqLw8Kd81", "amount": 250_000}
    asked = {"step_id": "r", "tool": "payments.refund", "args": args, "repeat_of": str(step)}
    for reason in UNREADABLE:
        answer = agent.post(f"sagas/{saga}/steps", asked | {"reason": reason})
        assert answer.status_code == 422


def test_an_answer_keeps_a_short_emoji_but_not_a_reason_of_3000_characters(
    stage: Stage, ona: Api
) -> None:
    _, step = stage.unknown_refund()
    browser = Client()
    browser.force_login(stage.oncall)
    url = reverse("ledger:resolve", args=[step])
    sent = {"answer": "happened", "reason": "x" * 3000}
    assert "at most 2000" in browser.post(url, sent, follow=True).content.decode()
    answer = ona.post(f"steps/{step}/resolve", {"answer": "happened", "reason": "👍"})
    assert answer.status_code == 200


def test_an_unknown_step_has_no_actions(ona: Api) -> None:
    for path in (f"steps/{UUID(int=7)}/actions", "steps/nonsense/actions"):
        assert ona.get(path).status_code == 404
