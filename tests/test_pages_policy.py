"""The policy on pages and in the API: its digest, why a rule asks, limits, who is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from approvals import policy
from approvals.policyfile import read
from ledger.services import tokens
from tests.policycast import under
from tests.stage import Stage, a_stage, sign_in

__all__ = ["a_stage"]

POLICY = """
[[rule]]
name = "mail"
tool = "mail.*"
verdict = "deny"

[[rule]]
name = "large refunds"
tool = "payments.*"
tier = "pivot"
when = "args.amount > 100000 && saga.metadata.env == 'prod'"
verdict = "ask"
need = [ {group = "approvers", count = 1}, {group = "finance", count = 1} ]
expires = "4h"
escalate_to = "oncall"
remind = "30m"
delay = "60s"

[[limit]]
name = "refunds a day"
tool = "payments.refund"
sum = "args.amount"
by = "agent"
per = "24h"
max = 300000
over = "ask"
"""


@pytest.fixture
def browser(stage: Stage) -> Client:
    client = Client()
    sign_in(client, stage.approver)
    return client


def page(browser: Client, name: str, *args: Any, query: str = "") -> str:
    answer = browser.get(reverse(f"approvals:{name}", args=args) + query)
    assert answer.status_code == 200
    return answer.content.decode()


def finance(stage: Stage, name: str = "fina") -> Any:
    person = tokens.seat_operator(name, group="approvers", password="correct horse battery")
    person.groups.set([Group.objects.get_or_create(name="finance")[0]])
    return person


def test_the_policy_page_shows_rules_limits_and_the_digest(stage, browser):
    with under(POLICY) as now:
        html = page(browser, "policy")
    for said in (
        now.digest,
        "large refunds",
        "1 of approvers and 1 of finance, within 4 h, then oncall is asked",
        "a reminder every 30 min",
        "a yes can be taken back for 1 min",
        "At most 300,000 in 24 h for each agent, the sum of args.amount",
        "far-reaching and without an inverse",
        "a change needs a restart",
    ):
        assert said in html, said
    assert "args.amount &gt; 100000" in html


def test_the_policy_page_tells_which_rule_nobody_can_meet(stage, browser):
    with under(POLICY):
        assert "1 more of finance" in page(browser, "policy")
        finance(stage)
        assert "1 more of finance" not in page(browser, "policy")


def test_a_file_that_changed_is_told_and_not_used(stage, browser, tmp_path: Path):
    file = tmp_path / "policy.toml"
    file.write_text(POLICY, encoding="utf-8")
    before = policy.current()
    policy.use(read(file))
    try:
        assert "Not read yet" not in page(browser, "policy")
        file.write_text(POLICY.replace("100000", "5"), encoding="utf-8")
        changed = page(browser, "policy")
        assert "Not read yet" in changed
        assert read(file).digest in changed
        assert policy.current().digest in changed
        file.write_text("[[rule]]\n", encoding="utf-8")
        assert "A restart would be refused" in page(browser, "policy")
    finally:
        policy.use(before)


def test_the_request_says_why_this_rule_asks_and_what_the_limits_would_hold(stage, browser):
    with under(POLICY):
        _, step = stage.waiting_refund()
        html = page(browser, "approval-detail", stage.request(step).pk)
    assert "It does not match: the tool payments.refund is not mail.*." in html
    assert "It matches and asks: 1 of approvers and 1 of finance" in html
    assert "this would make 250,000 of 300,000 in 24 h for the agent refund-desk" in html


def test_where_the_rule_would_allow_it_the_request_says_that_the_console_asks(stage, browser):
    with under('[[rule]]\nname = "all"\nverdict = "allow"\n' + POLICY.replace("300000", "200000")):
        saga = stage.saga()
        step = stage.refund(saga)
        assert stage.claim() == []
        html = page(browser, "approval-detail", stage.request(step).pk)
    assert "the console itself" in html
    assert "Over the limit “refunds a day”" in html


def test_over_a_limit_the_card_says_what_a_yes_would_do(stage, browser):
    with under(POLICY.replace("300000", "200000")):
        _, step = stage.waiting_refund()
        html = page(browser, "approval-detail", stage.request(step).pk)
    assert "this would make 250,000 of 200,000" in html
    assert "a yes lets it pass" in html


def test_a_request_that_nobody_can_answer_has_a_place_of_its_own(stage, browser):
    with under(POLICY):
        _, step = stage.waiting_refund()
        assert "Nobody can answer (1)" in page(browser, "inbox")
        listed = page(browser, "inbox", query="?tab=unroutable")
        assert "missing: 1 more of finance" in listed
        assert "Missing: 1 more of finance" in page(
            browser, "approval-detail", stage.request(step).pk
        )
        finance(stage)
        assert "Nobody can answer" not in page(browser, "inbox")


def test_within_the_window_the_yes_can_be_taken_back_and_the_time_is_shown(stage, browser):
    with under(POLICY):
        fina = finance(stage)
        _, step = stage.waiting_refund()
        stage.decide(step)
        stage.decide(step, by=fina)
        assert stage.claim() == []
        html = page(browser, "approval-detail", stage.request(step).pk)
        assert "It starts" in html
        assert "at the earliest" in html
        assert "Take the yes back" in html
        sent = {"answer": "reject", "args_digest": stage.request(step).args_digest}
        browser.post(
            reverse("approvals:decide", args=[stage.request(step).pk]), sent | {"reason": "no"}
        )
        assert stage.request(step).state == "rejected"
        assert "It starts" not in page(browser, "approval-detail", stage.request(step).pk)


def test_the_api_tells_the_same(stage):
    raw = tokens.issue_operator_token(stage.approver)
    api = Client(headers={"Authorization": f"Bearer {raw}"})
    with under(POLICY) as now:
        _, step = stage.waiting_refund()
        request = stage.request(step)
        full = api.get(f"/api/v1/approvals/{request.pk}").json()
        lost = api.get("/api/v1/approvals?unroutable=true").json()
    assert full["explanation"]["policy"] == now.digest == full["policy"]["digest"]
    assert full["explanation"]["is_recorded"] is True
    assert [(rule["rule"], rule["decides"]) for rule in full["explanation"]["rules"]] == [
        ("mail", False),
        ("large refunds", True),
    ]
    assert full["unroutable"] == "1 more of finance"
    (limit,) = full["limits"]
    assert (limit["used"], limit["would"], limit["max"], limit["is_over"]) == (
        0,
        250_000,
        300_000,
        False,
    )
    assert [item["id"] for item in lost["items"]] == [str(request.pk)]
    raw = tokens.issue_agent_token("another")
    agents = Client(headers={"Authorization": f"Bearer {raw}"})
    assert agents.get("/api/v1/approvals?unroutable=true").status_code == 403


def test_without_a_file_the_page_says_so(stage, browser):
    html = page(browser, "policy")
    assert "SAGA_POLICY</code> is not set" in html
    assert policy.DEFAULT.digest in html
