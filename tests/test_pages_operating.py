"""What a person on call presses: answers, another try, freezes. Rights are checked at the door."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from ledger.models import Freeze, Saga, Step
from ledger.outcomes import Failed, Unknown
from ledger.queries.pages_attention import waiting_count
from tests.stage import PASSWORD, Stage, a_stage

__all__ = ["a_stage"]


@pytest.fixture
def browser(stage: Stage) -> Client:
    client = Client()
    client.force_login(stage.oncall)
    return client


def test_attention_says_what_happened_since_when_and_what_to_press(stage, browser):
    stage.unknown_refund()
    stage.stuck_undo()
    html = browser.get(reverse("ledger:attention")).content.decode()
    for said in (
        "the connection was cut before an answer came",
        "this key may not void charges",
        "It happened",
        "It did not happen",
        "End the saga",
        "Try the undo again",
        "Skip the undo",
    ):
        assert said in html


def test_an_undo_in_doubt_is_shown_and_can_be_answered(stage, browser):
    """Its step stays `compensating`: nobody but this page says that it waits for a person."""
    saga = stage.saga("Order 8776", "order-8776")
    step = stage.charge(saga)
    stage.work()
    stage.propose(saga, "cancel", "orders.cancel", {"order": "8776"})
    stage.answer(stage.claim(), Failed("404: no such order"))
    stage.answer(stage.claim(), Unknown("the undo's connection was cut"))
    assert Saga.objects.get(pk=saga).state == "stuck"
    page = browser.get(reverse("ledger:attention")).content.decode()
    assert "the undo&#x27;s connection was cut" in page
    assert waiting_count(10) == 1
    sent = {"answer": "happened", "reason": "Voided at the bank"}
    browser.post(reverse("ledger:resolve", args=[step]), sent)
    assert Saga.objects.get(pk=saga).state == "compensated"
    assert waiting_count(10) == 0


def test_a_quiet_day_is_said_plainly(browser):
    assert "Nothing needs you" in browser.get(reverse("ledger:attention")).content.decode()


def test_answering_that_it_happened_records_the_result(stage, browser):
    _, step = stage.unknown_refund()
    sent = {"answer": "happened", "reason": "Seen at the bank", "result": '{"id": "re_1"}'}
    answer = browser.post(reverse("ledger:resolve", args=[step]), sent, follow=True)
    assert "Recorded: it happened." in answer.content.decode()
    found = Step.objects.get(pk=step)
    assert (found.state, found.result_text) == ("committed", '{"id":"re_1"}')


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"answer": "happened"}, "A reason is needed"),
        ({"answer": "perhaps", "reason": "x"}, "The answer is one of"),
        ({"answer": "happened", "reason": "x", "result": '{"a": 1, "a": 2}'}, "JSON"),
    ],
)
def test_an_answer_that_cannot_be_right_changes_nothing(stage, browser, fields, said):
    _, step = stage.unknown_refund()
    answer = browser.post(reverse("ledger:resolve", args=[step]), fields, follow=True)
    assert said in answer.content.decode()
    assert Step.objects.get(pk=step).state == "unknown"


def test_a_second_answer_is_told_that_nothing_waits(stage, browser):
    _, step = stage.unknown_refund()
    sent = {"answer": "happened", "reason": "Seen at the bank"}
    browser.post(reverse("ledger:resolve", args=[step]), sent)
    again = browser.post(reverse("ledger:resolve", args=[step]), sent, follow=True)
    assert "oskar has answered that already" in again.content.decode()
    other = browser.post(
        reverse("ledger:resolve", args=[step]), sent | {"answer": "end_saga"}, follow=True
    )
    assert "oskar said" in other.content.decode()
    assert "Nothing was changed by this" in other.content.decode()


def test_a_stuck_undo_is_tried_again_and_ends_the_saga(stage, browser):
    saga, step = stage.stuck_undo()
    browser.post(reverse("ledger:retry", args=[step]), {"reason": "The key was fixed"})
    stage.work()
    assert Step.objects.get(pk=step).state == "compensated"
    assert Saga.objects.get(pk=saga).state == "compensated"


def test_a_viewer_sees_everything_and_can_press_nothing(stage):
    _, step = stage.unknown_refund()
    viewer = Client()
    viewer.force_login(stage.viewer)
    html = viewer.get(reverse("ledger:attention")).content.decode()
    assert "pressing needs the group" in html
    assert "It did not happen</button>" not in html
    for name, args, fields in (
        ("ledger:resolve", [step], {"answer": "happened", "reason": "x"}),
        ("ledger:retry", [step], {"reason": "x"}),
        ("ledger:freeze", [], {"scope": "all", "reason": "x"}),
    ):
        answer = viewer.post(reverse(name, args=args), fields, follow=True)
        assert "may only look" in answer.content.decode()
    assert Step.objects.get(pk=step).state == "unknown"
    assert not Freeze.objects.exists()


def test_a_freeze_is_shown_on_every_page_until_it_is_lifted(stage, browser):
    fields = {"scope": "tool", "value": "payments.refund", "reason": "Bank is down", "hours": "4"}
    browser.post(reverse("ledger:freeze"), fields)
    freeze = Freeze.objects.get()
    assert (freeze.created_by, freeze.value) == ("person:oskar", "payments.refund")
    assert "Bank is down" in browser.get(reverse("approvals:inbox")).content.decode()
    browser.post(reverse("ledger:lift", args=[freeze.pk]))
    html = browser.get(reverse("approvals:inbox")).content.decode()
    assert "Bank is down" not in html


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"scope": "tool", "reason": "x"}, "Name the tool"),
        ({"scope": "galaxy", "reason": "x"}, "Choose what to freeze"),
        ({"scope": "all"}, "A reason is needed"),
        ({"scope": "agent", "value": "nobody", "reason": "x"}, "no agent is named"),
        ({"scope": "all", "reason": "x", "hours": "1e9"}, "Choose what to freeze"),
    ],
)
def test_a_freeze_that_says_too_little_stops_nothing(browser, fields, said):
    answer = browser.post(reverse("ledger:freeze"), fields, follow=True)
    assert said in answer.content.decode()
    assert not Freeze.objects.exists()


def test_work_that_nobody_takes_is_called_out(stage, browser):
    stage.charge(stage.saga())
    html = browser.get(reverse("ledger:operations")).content.decode()
    assert "Work waits and nobody takes it" in html


def test_a_sign_in_that_fails_says_so_and_next_stays_on_this_host(stage):
    visitor = Client()
    _ = stage.approver
    said = "This username and password do not belong together."
    for username, password in (("olivia", "no"), ("nobody", PASSWORD)):
        wrong = visitor.post(reverse("login"), {"username": username, "password": password})
        html = wrong.content.decode()
        assert said in html
        assert "Check both" in html
        assert "manage.py operator" in html.split(said)[1].split("</p>")[0]
    sent = {"username": "olivia", "password": "correct horse battery staple"}
    away = visitor.post(reverse("login"), sent | {"next": "https://evil.example/"})
    assert away["Location"] == "/"
    assert visitor.post(reverse("logout")).status_code == 302
    back = visitor.post(reverse("login"), sent | {"next": "/sagas/"})
    assert back["Location"] == "/sagas/"
