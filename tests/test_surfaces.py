"""Cases F: every surface refuses whom it must, in the same words, and no address forgets to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.db.models import ProtectedError
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from approvals.models import Decision
from approvals.rights import can_decide, who
from approvals.services import bulk, deciding
from approvals.states import Answer
from approvals.surface import CONSOLE
from ledger.bearer import Bearer
from ledger.errors import Forbidden
from ledger.services import tokens
from ledger.services.opening import open_saga
from ledger.services.proposals import Opening
from tests.apicast import Caller
from tests.approvalcast import tools, waiting_case
from tests.policycast import under
from tests.stage import Stage, a_stage, sign_in

__all__ = ["a_stage", "tools"]
pytestmark = pytest.mark.django_db

# -- F1 and F3: one function, every surface ---------------------------------------------------


def by_service(stage: Stage, person: Any, request: Any, answer: str) -> str:
    decide = {"approve": deciding.approve, "reject": deciding.reject}[answer]
    with pytest.raises(Forbidden) as caught:
        decide(bearer(person), request.pk, args_digest=request.args_digest, reason="because")
    return str(caught.value)


def by_page(stage: Stage, person: Any, request: Any, answer: str) -> str:
    client = Client()
    sign_in(client, person)
    sent = {
        "answer": answer,
        "args_digest": request.args_digest,
        "understood": "yes",
        "reason": "x",
    }
    found = client.post(reverse("approvals:decide", args=[request.pk]), sent)
    assert found.status_code == 403
    return str(found.content.decode())


def by_api(stage: Stage, person: Any, request: Any, answer: str) -> str:
    caller = Caller(tokens.issue_operator_token(person))
    sent = {"args_digest": request.args_digest, "reason": "because"}
    found = caller.post(f"approvals/{request.pk}/{answer}", sent)
    assert found.status_code == 403
    return str(found.json()["detail"])


def by_link(stage: Stage, person: Any, request: Any, answer: str) -> str:
    """A mail's link leads to the page. Opening it decides nothing (case F16)."""
    client = Client()
    sign_in(client, person)
    address = reverse("approvals:decide", args=[request.pk])
    for open_ in (client.head, client.get, client.get):
        found = open_(address, {"answer": answer, "args_digest": request.args_digest})
        assert found.status_code == 302
    return str(client.get(found["Location"]).content.decode())


def by_bulk(stage: Stage, person: Any, request: Any, answer: str) -> str:
    item = bulk.Item(request.pk, request.args_digest)
    (told,) = bulk.decide_all(bearer(person), Answer(answer), [item], reason="because", via=CONSOLE)
    assert told.outcome == "failed"
    return told.detail


def by_bulk_page(stage: Stage, person: Any, request: Any, answer: str) -> str:
    client = Client()
    sign_in(client, person)
    item = f"{request.pk}:{request.args_digest}"
    sent = {"answer": answer, "item": item, "sure": "yes", "reason": "because"}
    html = client.post(reverse("approvals:bulk"), sent).content.decode()
    assert "1 failed" in html
    return str(html)


SURFACES: dict[str, Callable[[Stage, Any, Any, str], str]] = {
    "the service": by_service,
    "the page": by_page,
    "the API": by_api,
    "a link": by_link,
    "bulk": by_bulk,
    "bulk on the page": by_bulk_page,
}


def bearer(person: Any) -> Bearer:
    return Bearer(user_id=person.pk, username=person.get_username())


def test_the_admin_has_no_way_to_decide() -> None:
    """F1: nothing of ours is registered there, so no form of it can write a decision."""
    ours = {model._meta.label for model in admin.site._registry}
    assert not [label for label in ours if label.split(".")[0] in {"approvals", "ledger"}]


@pytest.mark.parametrize("answer", ["approve", "reject"])
@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("who_", ["owner", "starter", "viewer"])
def test_every_surface_refuses_in_the_words_of_the_one_function(
    stage: Stage, surface: str, who_: str, answer: str
) -> None:
    """F1 and F3, with a step that can be undone: so that bulk, too, gets as far as the person."""
    starter = tokens.seat_operator("sven", group="approvers", password="long enough 1")
    person = {"owner": stage.owner, "starter": starter, "viewer": stage.viewer}[who_]
    with under('[[rule]]\nname = "all"\ntool = "*"\nverdict = "ask"\n'):
        saga = open_started_by(stage, "sven")
        step = stage.propose(saga, "charge", "payments.charge", {"customer": "c", "amount": 1})
        request = stage.request(step)
        allowed, why_not = can_decide(who(bearer(person)), request)
        assert not allowed
        assert why_not in SURFACES[surface](stage, person, request, answer)
    assert not Decision.objects.exists()
    assert stage.request(step).state == "pending"


def open_started_by(stage: Stage, name: str) -> Any:
    opened = Opening("task", "A saga", metadata={"started_by": name})
    return open_saga(opened, bearer=stage.agent).saga


# -- F7: every address ------------------------------------------------------------------------

# Asked by machines that have no token, or the way in itself.
OPEN = {"healthz", "readyz", "metrics", "login/", "api/v1/openapi.json", "admin/login/"}
METHODS = ("get", "post", "put", "patch", "delete", "head")


def addresses(node: Any = None, before: str = "") -> Iterator[str]:
    for one in (node or get_resolver()).url_patterns:
        path = before + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from addresses(one, path)
        elif isinstance(one, URLPattern):
            yield path


def filled(path: str) -> str:
    """An address with something in each of its holes."""
    for hole in ("<uuid:approval_id>", "<uuid:review_id>", "<uuid:delegation_id>"):
        path = path.replace(hole, str(uuid4()))
    out, depth = "", 0
    for character in path:
        depth += (character == "<") - (character == ">")
        if character == ">":
            out += "01890000-0000-7000-8000-000000000000"
        elif not depth:
            out += character
    return out.replace("^", "").replace("$", "").replace("\\Z", "")


ALL = sorted(set(addresses()))


def test_the_sweep_sees_every_surface() -> None:
    for known in (
        "approvals/<uuid:approval_id>/decide",
        "approvals/<uuid:approval_id>/break-glass",
        "approvals/bulk",
        "reviews/<uuid:review_id>/close",
        "cover/",
        "api/v1/approvals/<approval>/approve",
        "api/v1/approvals/bulk",
        "admin/auth/user/",
    ):
        assert known in ALL


@pytest.mark.parametrize("path", ALL)
def test_no_address_answers_without_a_session_or_a_token(path: str) -> None:
    """Case F7."""
    if path in OPEN or ("(?P" in path and path.startswith("^api")):
        return
    address = "/" + filled(path)
    for method in METHODS:
        found = getattr(Client(enforce_csrf_checks=False), method)(address)
        allowed = {302, 401, 403} | ({404, 405} if path.startswith(("^api", "api/")) else set())
        assert found.status_code in allowed, (method, address, found.status_code)
        if found.status_code == 302:
            assert "/login/" in found["Location"], (method, address, found["Location"])


@pytest.mark.parametrize("path", ALL)
def test_an_agents_token_opens_no_page_and_no_operators_call(path: str) -> None:
    if path in OPEN or path.startswith("^api"):
        return
    raw = tokens.issue_agent_token("sweeper")
    client = Client(headers={"authorization": f"Bearer {raw}"})
    address = "/" + filled(path)
    is_api = path.startswith("api/")
    for method in METHODS:
        found = client.generic(
            method.upper(), address, data=json.dumps({}), content_type="application/json"
        )
        if not is_api:
            assert found.status_code == 302, (method, address)
            assert "/login/" in found["Location"]
        elif "approvals" in path or "resolve" in path or "retry" in path or "freezes" in path:
            assert found.status_code in {403, 405}, (method, address, found.status_code)
    assert not Decision.objects.exists()


# -- F8: the actor is who called --------------------------------------------------------------


@pytest.mark.parametrize("field", ["decided_by", "actor", "user", "username", "by", "stands_for"])
def test_nobody_names_the_actor_in_a_body(stage: Stage, field: str) -> None:
    """Case F8: the actor is whose session or token it is."""
    _, step = stage.waiting_refund()
    request = stage.request(step)
    caller = Caller(tokens.issue_operator_token(stage.approver))
    sent = {"args_digest": request.args_digest, "reason": "ok", field: "frida"}
    assert caller.post(f"approvals/{request.pk}/approve", sent).status_code == 422
    client = Client()
    sign_in(client, stage.approver)
    form = sent | {"answer": "approve", "understood": "yes"}
    assert client.post(reverse("approvals:decide", args=[request.pk]), form).status_code == 302
    decision = Decision.objects.get()
    assert (decision.username, decision.stands_for_name) == ("olivia", "")


def test_every_decision_carries_who_when_where_and_what_was_shown(stage: Stage) -> None:
    _, step = stage.waiting_refund()
    request = stage.request(step)
    caller = Caller(tokens.issue_operator_token(stage.approver))
    answer = caller.post(
        f"approvals/{request.pk}/approve", {"args_digest": request.args_digest, "reason": "ok"}
    )
    (told,) = answer.json()["decisions"]
    assert {name: told[name] for name in ("by", "via", "address", "args_digest")} == {
        "by": "olivia",
        "via": "api",
        "address": "127.0.0.1",
        "args_digest": request.args_digest,
    }
    assert told["at"]
    assert told["stands_for"] is told["incident"] is None


# -- G4: a tool that has no words of its own -------------------------------------------------


@pytest.mark.usefixtures("tools")
def test_a_tool_without_a_title_is_shown_by_its_name_and_its_raw_json() -> None:
    """Case G4: raw JSON, never nothing."""
    case = waiting_case(id="p1", amount=100)
    client = Client()
    sign_in(client, tokens.seat_operator("olivia", group="approvers", password="long enough 1"))
    address = reverse("approvals:approval-detail", args=[case.request.pk])
    html = client.get(address).content.decode()
    assert "money.refund" in html
    assert "Raw JSON" in html
    assert "&quot;amount&quot;: 100" in html or "&quot;amount&quot;:100" in html


# -- F10: an account that goes -----------------------------------------------------------------


def test_an_account_with_decisions_stays_and_two_votes_never_collapse_into_one(
    stage: Stage,
) -> None:
    """Case F10: the names are kept with the votes, and who left the group has no vote any more."""
    text = '[[rule]]\nname = "two"\ntool = "*"\nverdict = "ask"\n'
    with under(text + 'need = [{group = "approvers", count = 2}]\n'):
        step = stage.refund(stage.saga(task="t"))
        stage.decide(step, by=stage.approver)
        with pytest.raises(ProtectedError):
            stage.approver.delete()
        stage.decide(step, by=stage.second)
        assert stage.request(step).state == "approved"
        stage.approver.username = "renamed"
        stage.approver.save()
        assert set(Decision.objects.values_list("username", flat=True)) == {"olivia", "ada"}
        stage.approver.groups.clear()
        assert stage.claim() == []  # a removed group voids the vote: counted again at the claim
        assert stage.request(step).state == "pending"
