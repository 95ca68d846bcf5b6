"""Tokens: shown once, stored as a digest, and never good for more than they were given for."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command

from ledger.errors import Forbidden, InvalidArgs, Unauthorized
from ledger.models import Agent, Token
from ledger.services import tokens
from saga_console.demo import people
from tests.apicast import Caller, problem_type
from tests.approvalcast import in_threads

pytestmark = pytest.mark.django_db


def run(*words: str, **options: Any) -> str:
    """What a command prints on stdout."""
    out = io.StringIO()
    call_command(*words, stdout=out, stderr=io.StringIO(), **options)
    return out.getvalue()


def test_a_token_is_not_in_the_database() -> None:
    raw = tokens.issue_agent_token("refunder")
    stored = Token.objects.get()
    assert re.fullmatch(r"saga_agent_[\w-]{43}", raw)
    assert re.fullmatch("[0-9a-f]{64}", stored.digest)
    assert raw not in str(vars(stored))


def test_a_token_names_its_agent_and_its_tools() -> None:
    bearer = tokens.bearer(tokens.issue_agent_token("refunder", tools=["payments.*"]))
    assert (bearer.is_agent, bearer.actor) == (True, "agent:refunder")
    assert bearer.may_use("payments.refund")
    assert not bearer.may_use("mail.send")
    assert tokens.bearer(tokens.issue_agent_token("refunder")).may_use("mail.send")
    assert Agent.objects.count() == 1


@pytest.mark.parametrize(
    "raw", ["", "x", "saga_", "saga_agent_" + "A" * 43, "saga_\udcff", "saga_\x00"]
)
def test_an_unknown_token_is_refused_with_a_challenge(raw: str) -> None:
    with pytest.raises(Unauthorized) as refused:
        tokens.bearer(raw)
    assert refused.value.headers["WWW-Authenticate"].startswith("Bearer ")


def test_a_revoked_token_stops_at_once() -> None:
    raw = run("agent_token", "refunder").strip()
    assert tokens.bearer(raw).agent_name == "refunder"
    assert run("agent_token", "refunder", "--revoke") == ""
    with pytest.raises(Unauthorized):
        tokens.bearer(raw)


def test_a_renewed_token_takes_the_place_of_all_before() -> None:
    """Of this bearer's, and of nobody else's: each mint without it is a further one."""
    commands = (
        ("agent_token", "refunder"),
        ("operator", "ana", "--group", "approvers"),
    )
    others = [run("agent_token", "other"), run("operator", "ben", "--group", "approvers")]
    for words in commands:
        before = [run(*words).strip() for _ in range(2)]
        fresh = run(*words, "--renew").strip()
        assert tokens.bearer(fresh)
        for raw in before:
            with pytest.raises(Unauthorized):
                tokens.bearer(raw)
    assert all(tokens.bearer(raw.strip()) for raw in others)
    assert Token.objects.filter(revoked_at__isnull=True).count() == 4


def test_a_renewal_that_is_refused_takes_nothing_away() -> None:
    raw = run("agent_token", "refunder").strip()
    with pytest.raises(CommandError):
        run("agent_token", "refunder", "--renew", "--owner", "nobody")
    assert tokens.bearer(raw).agent_name == "refunder"


def test_a_renewal_keeps_what_the_token_was_good_for() -> None:
    run("agent_token", "billing", "--tools", "note.*", "crm.read")
    for _ in range(2):
        renewed = tokens.bearer(run("agent_token", "billing", "--renew").strip())
        assert renewed.tools == ("note.*", "crm.read")
    run("agent_token", "billing", "--revoke")
    assert tokens.bearer(run("agent_token", "billing", "--renew").strip()).tools == renewed.tools
    wider = run("agent_token", "billing", "--renew", "--tools", "*").strip()
    assert tokens.bearer(wider).tools == ("*",)
    assert tokens.bearer(run("agent_token", "new", "--renew").strip()).tools == ()


def test_a_renewal_of_tokens_that_differ_must_say_for_what() -> None:
    narrow = run("agent_token", "billing", "--tools", "note.*").strip()
    wide = run("agent_token", "billing").strip()
    with pytest.raises(CommandError, match=r"differ.*--tools"):
        run("agent_token", "billing", "--renew")
    assert [tokens.bearer(raw).tools for raw in (narrow, wide)] == [("note.*",), ()]
    run("agent_token", "billing", "--renew", "--tools", "note.*")
    for raw in (narrow, wide):
        with pytest.raises(Unauthorized):
            tokens.bearer(raw)


@pytest.mark.django_db(transaction=True)
def test_of_renewals_at_once_one_token_stays_live() -> None:
    """The last one revokes those before it, and none of them looks away from another."""
    tokens.issue_agent_token("billing")
    person = tokens.seat_operator("ana", group="oncall")
    for whose, renew in (
        ({"agent__name": "billing"}, lambda: tokens.issue_agent_token("billing", renew=True)),
        ({"user": person}, lambda: tokens.issue_operator_token(person, renew=True)),
    ):
        made = in_threads([renew] * 6)
        assert len({str(raw) for raw in made}) == 6
        live = Token.objects.filter(**whose, revoked_at__isnull=True)
        assert live.count() == 1


def test_the_demos_cast_has_one_token_each_however_often_it_is_started() -> None:
    first, crew = people.cast([("olivia", "approvers")])
    second, again = people.cast([("olivia", "approvers")])
    assert tokens.bearer(second).agent_name == "demo-agent"
    assert tokens.bearer(again[0].token).username == "olivia"
    assert Token.objects.filter(revoked_at__isnull=True).count() == 2
    for raw in (first, crew[0].token):
        with pytest.raises(Unauthorized):
            tokens.bearer(raw)


def test_the_token_of_somebody_who_left_stops_at_once() -> None:
    raw = run("operator", "ana", "--group", "approvers").strip()
    assert tokens.bearer(raw).actor == "person:ana"
    get_user_model().objects.filter(username="ana").update(is_active=False)
    with pytest.raises(Unauthorized):
        tokens.bearer(raw)


def test_the_commands_print_the_token_alone() -> None:
    get_user_model().objects.create_user("olga")
    printed = run("agent_token", "refunder", "--tools", "a.*", "b.c", "--owner", "olga")
    assert tokens.bearer(printed.removesuffix("\n")).tools == ("a.*", "b.c")
    assert Agent.objects.filter(owner__username="olga").count() == 1
    printed = run("operator", "ana", "--group", "viewers")
    assert tokens.bearer(printed.removesuffix("\n")).username == "ana"


@pytest.mark.parametrize(
    "words",
    [
        ["agent_token", ""],
        ["agent_token", "a\nb"],
        ["agent_token", "x" * 101],
        ["agent_token", "a", "--tools", "with blank"],
        ["agent_token", "a", "--owner", "nobody"],
    ],
)
def test_what_cannot_be_an_agent_is_an_error_and_no_token(words: list[str]) -> None:
    with pytest.raises(CommandError):
        run(*words)
    assert not Token.objects.exists()


def test_groups_are_made_and_changed_by_running_the_command_again() -> None:
    first = run("operator", "ana", "--group", "viewers").strip()
    assert set(Group.objects.values_list("name", flat=True)) == set(tokens.GROUPS)
    with pytest.raises(Forbidden, match="may only look"):
        tokens.require_operator(tokens.bearer(first))
    second = run("operator", "ana", "--group", "oncall").strip()
    assert second != first
    for raw in (first, second):
        tokens.require_operator(tokens.bearer(raw))
    groups = get_user_model().objects.get(username="ana").groups
    assert list(groups.values_list("name", flat=True)) == ["oncall"]
    with pytest.raises(InvalidArgs):
        tokens.seat_operator("ana", group="kings")


def test_a_password_comes_from_stdin_and_is_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("a long  phrase \nnot this\n"))
    run("operator", "ana", "--group", "oncall", "--password-stdin")
    ana = get_user_model().objects.get(username="ana")
    assert ana.check_password("a long  phrase ")
    run("operator", "ana", "--group", "viewers")
    ana.refresh_from_db()
    assert ana.check_password("a long  phrase ")
    for weak in ("12345\n", "\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(weak))
        with pytest.raises(CommandError):
            run("operator", "ana", "--group", "viewers", "--password-stdin")
    assert not tokens.seat_operator("ben", group="viewers").has_usable_password()


def test_without_a_token_everything_is_401(nobody: Caller, agent: Caller) -> None:
    for caller in (nobody, Caller("saga_agent_wrong"), Caller("wrong")):
        answer = caller.get("sagas")
        assert (answer.status_code, problem_type(answer)) == (401, "unauthorized")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
    for scheme in (agent.token, f"Basic {agent.token}", "Bearer", "Bearer  "):
        assert nobody.get("sagas", Authorization=str(scheme)).status_code == 401
    assert nobody.get("sagas", Authorization=f"bearer {agent.token}").status_code == 200


def test_the_token_is_asked_for_before_the_body_is_read(nobody: Caller) -> None:
    assert nobody.post("sagas", b"{").status_code == 401


@pytest.mark.usefixtures("tools")
def test_an_agent_may_propose_only_the_tools_of_its_token(agent: Caller) -> None:
    narrow = Caller(tokens.issue_agent_token("refunder", tools=["notes.o*"]))
    saga = narrow.open()
    answer = narrow.propose(saga, tool="notes.add")
    assert (answer.status_code, problem_type(answer)) == (403, "forbidden")
    assert narrow.propose(saga, tool="notes.once").status_code == 202
    assert [tool["name"] for tool in narrow.get("tools").json()["items"]] == ["notes.once"]
    assert len(agent.get("tools").json()["items"]) == 3


ANYTHING = "019a0000-0000-7000-8000-000000000000"
OPERATING = [
    ("POST", f"steps/{ANYTHING}/resolve", {"answer": "happened", "reason": "seen"}),
    ("POST", f"steps/{ANYTHING}/retry", {"reason": "again"}),
    ("GET", "freezes", None),
    ("POST", "freezes", {"scope": "all", "reason": "fire"}),
    ("DELETE", f"freezes/{ANYTHING}", None),
]


@pytest.mark.parametrize(("method", "path", "body"), OPERATING)
def test_operating_needs_a_person_with_the_right(
    agent: Caller, viewer: Caller, oncall: Caller, method: str, path: str, body: Any
) -> None:
    for caller in (agent, viewer):
        answer = caller.send(method, path, body)
        assert (answer.status_code, problem_type(answer)) == (403, "forbidden")
    assert oncall.send(method, path, body).status_code in (200, 201, 404)


@pytest.mark.parametrize("path", ["sagas", f"sagas/{ANYTHING}/steps", f"sagas/{ANYTHING}/abort"])
def test_a_person_does_not_propose(oncall: Caller, path: str) -> None:
    answer = oncall.post(path, {"reason": "x"})
    assert (answer.status_code, problem_type(answer)) == (403, "forbidden")
