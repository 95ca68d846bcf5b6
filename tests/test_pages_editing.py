"""Editing and approving on the page, without JavaScript."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest
from django.urls import reverse

from approvals.models import Approval, Decision
from ledger.models import Entry, Step
from ledger.services import tokens
from ledger.tools.installed import registry
from tests.apicast import Caller
from tests.editcast import ARGS, batch, browser, edit_url, late_batch, press
from tests.stage import PASSWORD, TOOLS, a_stage, sign_in

__all__ = ["a_stage", "batch", "browser", "late_batch"]


def test_a_whole_edit_without_javascript(stage, browser, batch):
    """Cases A12 and A13: every other part arrives as it was, and only what was changed differs."""
    url = edit_url(stage, batch)
    html = browser.get(url).content.decode()
    grown = press(browser, url, html, "add:/lines", **{"v:/limit": "130000"})
    html = grown.content.decode()
    assert 'name="v:/lines/2/to"' in html
    assert 'value="130000"' in html
    changes = {"v:/lines/2/to": "acct_3", "v:/lines/2/cents": "9", "v:/memo": ""}
    review = press(browser, url, html, "review", **changes)
    assert review.status_code == 200, review.content.decode()
    html = review.content.decode()
    assert "Exactly this will run" in html
    old = stage.request(batch.pk)
    assert f'value="{old.args_digest}"' in html
    assert Approval.objects.count() == 1
    done = press(browser, url, html, "approve", understood="yes", reason="Less.")
    new = stage.request(batch.pk)
    assert done.status_code == 302
    assert done.headers["Location"] == reverse("approvals:approval-detail", args=[new.pk])
    lines = [*ARGS["lines"], {"to": "acct_3", "cents": 9}]
    assert json.loads(new.args_text) == ARGS | {"limit": 130_000, "lines": lines}
    assert new.state == "approved"
    told = browser.get(done.headers["Location"]).content.decode()
    assert "Edited by olivia" in told
    assert "9007199254740991" in re.sub(r"<[^>]+>", "", told)
    (ran,) = stage.claim()
    assert dict(ran.call.args) == json.loads(new.args_text)


def test_a_second_press_of_approve_is_the_same_decision(stage, browser, batch):
    """Case B7: the real form, sent twice."""
    url = edit_url(stage, batch)
    html = browser.get(url).content.decode()
    html = press(browser, url, html, "review", **{"v:/limit": "7"}).content.decode()
    first = press(browser, url, html, "approve", understood="yes")
    second = press(browser, url, html, "approve", understood="yes")
    assert (first.status_code, second.status_code) == (302, 302)
    assert first.headers["Location"] == second.headers["Location"]
    assert Decision.objects.count() == 1
    assert Entry.objects.filter(kind="approval.approved").count() == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"v:/limit": "12a"}, "write a whole number"),
        ({"v:/limit": "0"}, "less than the minimum"),
        ({"k:/limit": "text"}, "is not of type"),
        ({"v:/batch": "another"}, "it would be another effect"),
        ({}, "Nothing was changed"),
    ],
)
def test_what_cannot_be_taken_is_said_where_it_is(stage, browser, batch, changed, said):
    url = edit_url(stage, batch)
    html = browser.get(url).content.decode()
    again = press(browser, url, html, "review", **changed)
    assert again.status_code == 422
    shown = unescape(again.content.decode())
    assert said in shown
    for value in changed.values():
        assert value in shown
    assert stage.request(batch.pk).state == "pending"


def test_a_yes_to_something_else_than_the_review_showed_counts_for_nothing(stage, browser, batch):
    url = edit_url(stage, batch)
    html = browser.get(url).content.decode()
    html = press(browser, url, html, "review", **{"v:/limit": "7"}).content.decode()
    other = json.dumps(ARGS | {"limit": 8})
    refused = press(browser, url, html, "approve", understood="yes", args_text=other)
    assert refused.status_code == 422
    assert "not what the review showed" in refused.content.decode()
    unread = press(browser, url, html, "approve")
    assert unread.status_code == 422
    assert "Tick that you understand" in unread.content.decode()
    assert stage.request(batch.pk).state == "pending"


def test_who_reviewed_too_long_is_told_what_happened(stage, browser, batch):
    url = edit_url(stage, batch)
    html = browser.get(url).content.decode()
    html = press(browser, url, html, "review", **{"v:/limit": "7"}).content.decode()
    greta = tokens.seat_operator("greta", group="approvers")
    stage.decide(batch.pk, "reject", by=greta)
    late = press(browser, url, html, "approve", understood="yes")
    assert late.status_code == 409
    assert "already rejected by greta" in late.content.decode()
    assert stage.claim() == []
    assert browser.get(url).status_code == 302


def test_a_get_of_the_edit_decides_nothing(stage, browser, batch):
    url = edit_url(stage, batch)
    for method in (browser.get, browser.head):
        assert method(url + "?do=approve").status_code == 200
    assert stage.request(batch.pk).state == "pending"
    browser.force_login(stage.viewer)
    assert browser.get(url).status_code == 302


def test_a_no_is_not_reopened_where_its_saga_has_turned_back(stage, browser, batch):
    """The form would help nobody there: it is not offered, and refused with the reason."""
    request = stage.request(batch.pk)
    stage.decide(batch.pk, "reject", reason="Not on a Sunday")
    page = reverse("approvals:approval-detail", args=[request.pk])
    assert "Let the agent ask again" not in browser.get(page).content.decode()
    sent = {"args_digest": request.args_digest, "reason": "Monday now"}
    refused = browser.post(reverse("approvals:reopen", args=[request.pk]), sent)
    assert refused.status_code == 409
    html = refused.content.decode()
    assert "the saga has turned back, so it takes no more steps" in html
    assert "Let the agent ask again" not in html
    assert not Entry.objects.filter(kind="approval.reopened").exists()


def test_a_rejected_request_is_reopened_on_its_page(stage, browser, late_batch):
    batch = late_batch
    request = stage.request(batch.pk)
    stage.decide(batch.pk, "reject", reason="Not on a Sunday")
    page = reverse("approvals:approval-detail", args=[request.pk])
    html = browser.get(page).content.decode()
    assert "Let the agent ask again" in html
    sent = {"args_digest": request.args_digest, "reason": ""}
    url = reverse("approvals:reopen", args=[request.pk])
    assert browser.post(url, sent).status_code == 422
    assert browser.post(url, sent | {"reason": "Monday now"}).status_code == 302
    html = browser.get(page).content.decode()
    assert "Reopened by olivia" in html
    assert "Let the agent ask again" not in html


def test_an_edited_yes_asks_for_the_password_and_loses_nothing_meanwhile(stage, browser, batch):
    """Case F6: what is at stake is the same, whoever wrote the version."""
    browser.logout()
    sign_in(browser, stage.approver, checked=False)
    url = edit_url(stage, batch)
    html = browser.get(url).content.decode()
    html = press(browser, url, html, "review", **{"v:/limit": "7"}).content.decode()
    assert 'name="password"' in html
    yes = {"understood": "yes", "reason": "Less."}
    for given, said in (("", "Give your password once more"), ("guess", "is not your password")):
        refused = press(browser, url, html, "approve", password=given, **yes)
        assert refused.status_code == 403
        html = refused.content.decode()
        assert said in html
        assert "Exactly this will run" in html
        assert ">Less.</textarea>" in html
    assert Approval.objects.count() == 1
    done = press(browser, url, html, "approve", password=PASSWORD, **yes)
    assert done.status_code == 302
    decision = Decision.objects.get()
    assert (decision.via, decision.address) == ("page", "127.0.0.1")
    assert decision.checked_at is not None
    assert json.loads(stage.request(batch.pk).args_text)["limit"] == 7


def test_reopening_asks_for_the_password_as_an_answer_does(stage, browser, late_batch, settings):
    batch = late_batch
    request = stage.request(batch.pk)
    stage.decide(batch.pk, "reject", reason="Not on a Sunday")
    browser.logout()
    sign_in(browser, stage.approver, checked=False)
    html = browser.get(reverse("approvals:approval-detail", args=[request.pk])).content.decode()
    assert 'id="reopen-password"' in html
    url = reverse("approvals:reopen", args=[request.pk])
    sent = {"args_digest": request.args_digest, "reason": "Monday now"}
    refused = browser.post(url, sent)
    assert refused.status_code == 403
    assert ">Monday now</textarea>" in refused.content.decode()
    assert browser.post(url, sent | {"password": "guess"}).status_code == 403
    settings.SAGA_TOKENS_DECIDE = "medium"
    caller = Caller(tokens.issue_operator_token(stage.approver))
    answer = caller.post(f"approvals/{request.pk}/reopen", sent)
    assert (answer.status_code, answer.json()["step_up"]) == (403, True)
    assert not Entry.objects.filter(kind="approval.reopened").exists()
    assert browser.post(url, sent | {"password": PASSWORD}).status_code == 302
    assert Entry.objects.filter(kind="approval.reopened").count() == 1


SECRET = """
[tools."vault.put"]
version = "1"
tier = "pivot"
blast_radius = "high"
[tools."vault.put".args]
type = "object"
[tools."vault.put".args.properties]
name = { type = "string" }
password = { type = "string" }
users = { type = "array", items = { type = "object" } }
[tools."vault.put".execute]
method = "POST"
url = "https://vault.example/v1/put"
"""


def test_who_edits_is_shown_no_secret_and_changes_none_unseen(stage, browser, settings):
    """Case G5: what comes back masked, as it was shown, is what it was."""
    Path(settings.SAGA_TOOLS).write_text(TOOLS + SECRET, encoding="utf-8")
    registry.cache_clear()
    args = {
        "name": "old",
        "password": "hunter2!",
        "users": [{"password": "first-one"}, {"password": "second-1"}],
    }
    saga = stage.saga()
    step = Step.objects.get(pk=stage.propose(saga, "put", "vault.put", args, "Rotate."))
    url = edit_url(stage, step)
    form = browser.get(url).content.decode()
    review = press(browser, url, form, "review", **{"v:/name": "new"}).content.decode()
    shifted = press(browser, url, form, "remove:/users/0").content.decode()
    refused = press(browser, url, shifted, "review", **{"v:/name": "new"})
    assert refused.status_code == 422
    assert "still masked" in refused.content.decode()
    done = press(browser, url, review, "approve", understood="yes")
    assert done.status_code == 302
    told = browser.get(done.headers["Location"]).content.decode()
    for html in (form, review, shifted, refused.content.decode(), told):
        assert not any(secret in html for secret in ("hunter2!", "first-one", "second-1"))
    assert json.loads(stage.request(step.pk).args_text) == args | {"name": "new"}


def test_a_secret_can_be_written_anew(stage, browser, settings):
    Path(settings.SAGA_TOOLS).write_text(TOOLS + SECRET, encoding="utf-8")
    registry.cache_clear()
    args = {"name": "old", "password": "hunter2!"}
    saga = stage.saga()
    step = Step.objects.get(pk=stage.propose(saga, "put", "vault.put", args, "Rotate."))
    url = edit_url(stage, step)
    form = browser.get(url).content.decode()
    review = press(browser, url, form, "review", **{"v:/password": "better-1"}).content.decode()
    assert press(browser, url, review, "approve", understood="yes").status_code == 302
    assert json.loads(stage.request(step.pk).args_text) == args | {"password": "better-1"}
