"""Every page answers, only to people with a session, and says what agents wrote as text."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import URLResolver, get_resolver, reverse

from ledger.models import Step
from ledger.queries.pages_timeline import STEPS_A_PAGE
from ledger.services import closing, freezing, operating
from tests.stage import Stage, a_stage, sign_in

__all__ = ["a_stage"]

# Open to everybody: the way in, and what machines ask.
OPEN = {"login", "healthz", "readyz", "metrics"}
SOME = {"uuid": str(uuid4())}


@pytest.fixture
def client(stage: Stage) -> Client:
    browser = Client()
    sign_in(browser, stage.approver)
    return browser


def _paths(resolver: URLResolver, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every page address of the console with an example for each id, and its name."""
    for pattern in resolver.url_patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            if not route.startswith(("api/", "admin/")):
                yield from _paths(pattern, route)
        elif not route.startswith("^"):
            example = "".join(
                SOME["uuid"] if part.startswith("<uuid:") else part
                for part in route.replace(">", ">\0").replace("<", "\0<").split("\0")
            )
            yield f"/{example}", pattern.name or ""


def test_no_page_answers_without_a_session(db):
    visitor = Client()
    paths = [(path, name) for path, name in _paths(get_resolver()) if name not in OPEN]
    assert len(paths) >= 12
    for path, _ in paths:
        for send in (visitor.get, visitor.post):
            answer = send(path)
            assert answer.status_code == 302, path
            assert answer["Location"].startswith("/login/?next="), path


@pytest.mark.parametrize(
    "name",
    [
        "approvals:inbox",
        "ledger:saga-list",
        "ledger:attention",
        "ledger:tools",
        "ledger:agents",
        "ledger:operations",
        "ledger:ledger",
    ],
)
def test_each_page_answers_empty_and_full(name, stage, client):
    assert client.get(reverse(name)).status_code == 200
    stage.waiting_refund()
    stage.unknown_refund()
    stage.stuck_undo()
    freezing.freeze("tool", "mail.send", reason="Mail is down", actor="person:oskar")
    answer = client.get(reverse(name))
    assert answer.status_code == 200
    assert "Mail is down" in answer.content.decode()


def test_what_an_agent_wrote_is_text_on_every_page(stage, client):
    evil = "<script>alert(1)</script>\u202e"
    saga = stage.saga(evil, "task-" + "x")
    stage.refund(saga, note=evil)
    step = stage.request(stage.refund(saga, "second", payment_intent=evil)).pk
    pages = [
        reverse("approvals:inbox"),
        reverse("approvals:approval-detail", args=[step]),
        reverse("ledger:saga-list"),
        reverse("ledger:saga-detail", args=[saga]),
        reverse("ledger:ledger"),
        reverse("ledger:agents"),
    ]
    for page in pages:
        html = client.get(page).content.decode()
        assert "<script>alert" not in html, page
        body = html.split("</head>")[1]
        assert "\u202e" not in body.replace('title="', ""), page


def test_a_page_carries_no_inline_script_or_style(stage, client):
    saga, step = stage.waiting_refund()
    for page in (
        reverse("approvals:approval-detail", args=[stage.request(step).pk]),
        reverse("ledger:saga-detail", args=[saga]),
        reverse("ledger:operations"),
    ):
        answer = client.get(page)
        html = answer.content.decode()
        assert " style=" not in html
        assert "<style" not in html
        assert " onclick=" not in html
        assert html.count("<script") == html.count("<script src=")
        assert "script-src 'self'" in answer["Content-Security-Policy"]


def test_a_missing_saga_is_a_designed_404(client):
    answer = client.get(reverse("ledger:saga-detail", args=[uuid4()]))
    assert answer.status_code == 404
    assert "Nothing here" in answer.content.decode()


def test_a_form_without_its_token_is_a_designed_403(stage):
    browser = Client(enforce_csrf_checks=True)
    sign_in(browser, stage.oncall)
    answer = browser.post(reverse("ledger:freeze"), {"scope": "all", "reason": "x"})
    assert answer.status_code == 403
    assert "This form was too old" in answer.content.decode()


def test_the_saga_list_is_filtered_searched_and_paged_by_key(stage, client):
    for number in range(55):
        stage.saga(f"Backfill {number:02d}", f"backfill-{number:02d}")
    first = client.get(reverse("ledger:saga-list"), {"state": "running", "q": "Backfill"})
    rows = first.context["page"].rows
    assert [row.saga.name for row in rows][:2] == ["Backfill 54", "Backfill 53"]
    second = client.get(reverse("ledger:saga-list") + first.context["older"])
    assert [row.saga.name for row in second.context["page"].rows][-1] == "Backfill 00"
    assert "state=running" in first.context["older"]
    nothing = client.get(reverse("ledger:saga-list"), {"q": "nobody's task"})
    assert "No saga fits" in nothing.content.decode()


def test_the_saga_list_marks_what_left_effects_in_the_world(stage, client):
    marked, clean = stage.stuck_undo("order-1")[0], stage.stuck_undo("order-2")[0]
    left = Step.objects.get(saga=marked, state="stuck")
    operating.resolve(left.pk, "end_saga", reason="It stays.", actor="person:oskar")
    undone = Step.objects.get(saga=clean, state="stuck")
    operating.retry(undone.pk, reason="The key may void now.", actor="person:oskar")
    stage.work()
    rows = client.get(reverse("ledger:saga-list"), {"state": "compensated"}).content.decode()
    found = {
        str(saga): row for row in rows.split("<tr") for saga in (marked, clean) if str(saga) in row
    }
    assert (
        'title="1 effect of it stays in the world, or may be there">residue</span>'
        in found[str(marked)]
    )
    assert ">residue<" not in found[str(clean)]


def test_the_timeline_says_how_often_the_answer_of_a_step_was_given_again(stage, client):
    saga = stage.saga()
    for _ in range(3):
        stage.charge(saga)
        stage.work()
    html = client.get(reverse("ledger:saga-detail", args=[saga])).content.decode()
    assert "answered again 2 times, ran once" in html


def test_a_poll_that_has_seen_it_all_gets_an_empty_answer(stage, client):
    saga, _ = stage.waiting_refund()
    page = reverse("ledger:saga-detail", args=[saga])
    seen = client.get(page).context["saga"].head_seq
    live = {"HX-Request": "true"}
    assert client.get(page, {"seen": seen}, headers=live).status_code == 204
    stage.charge(saga, "another")
    part = client.get(page, {"seen": seen}, headers=live)
    assert part.status_code == 200
    assert "<html" not in part.content.decode()
    assert 'hx-trigger="every' in part.content.decode()


def test_an_ended_saga_stops_the_poll(stage, client):
    saga = stage.saga()
    stage.charge(saga)
    stage.work()
    page = reverse("ledger:saga-detail", args=[saga])
    closing.complete(saga, bearer=stage.agent)
    part = client.get(page, {"seen": 1}, headers={"HX-Request": "true"})
    assert part.status_code == 286
    assert "hx-trigger" not in part.content.decode()


def test_a_long_saga_is_shown_by_the_page(stage, client):
    saga = stage.saga()
    for number in range(STEPS_A_PAGE + 5):
        stage.propose(saga, f"cancel-{number}", "orders.cancel", {"order": str(number)})
    stage.work()
    page = reverse("ledger:saga-detail", args=[saga])
    answer = client.get(page)
    assert len(answer.context["steps"]) == STEPS_A_PAGE
    later = client.get(page + answer.context["more_steps"])
    assert len(later.context["steps"]) == 5
    seen = [pace.item.seq for pace in answer.context["entries"]]
    while answer.context["older"]:
        answer = client.get(page + answer.context["older"])
        seen += [pace.item.seq for pace in answer.context["entries"]]
    assert seen == list(range(seen[0], 0, -1))


@pytest.mark.parametrize("field", ["q", "state", "agent"])
def test_a_search_for_nul_is_refused_and_breaks_nothing(client: Client, field: str) -> None:
    assert client.get(f"/sagas/?{field}=a%00b").status_code == 400


def test_odd_characters_are_seen_in_the_title_of_a_window_too(stage: Stage, client: Client) -> None:
    saga = stage.saga(name="<b>Refund\u202e</b>")
    page = client.get(reverse("ledger:saga-detail", args=[saga])).content.decode()
    assert "<title>&lt;b&gt;RefundU+202E&lt;/b&gt; · Saga Console</title>" in page
