"""Whether deduplication worked is on the page, and not only in an answer that an agent read."""

from __future__ import annotations

import html
import re
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from ledger.models import Entry, Freeze, Step
from ledger.services.verifying import verify
from tests.stage import Stage, a_stage, sign_in

__all__ = ["a_stage"]


@pytest.fixture
def client(stage: Stage) -> Client:
    browser = Client()
    sign_in(browser, stage.approver)
    return browser


def text_of(client: Client, saga: UUID) -> str:
    """The words of a saga's page, as a person reads them."""
    page = client.get(reverse("ledger:saga-detail", args=[saga])).content.decode()
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def refunded(stage: Stage) -> tuple[UUID, UUID]:
    """A saga whose refund is done: (saga, step)."""
    saga, step = stage.waiting_refund()
    stage.decide(step)
    stage.work()
    assert Step.objects.get(pk=step).state == "committed"
    return saga, step


def test_a_step_that_was_asked_for_again_says_so(stage: Stage, client: Client) -> None:
    """Case C101: the same step, twice more."""
    saga, _ = refunded(stage)
    for _ in range(2):
        stage.refund(saga)
    assert "deduplicated: answered again 2 times, ran once" in text_of(client, saga)


def test_a_saga_whose_step_another_saga_had_done_names_and_links_it(
    stage: Stage, client: Client
) -> None:
    """Case C101: "deduplicated to saga X", on the page of the saga that asked in vain."""
    first, step = refunded(stage)
    second = stage.saga("Refund order 8841, once more", "another-task")
    for _ in range(2):
        assert stage.refund(second, "refund-after-restart") == step
    text = text_of(client, second)
    assert (
        "refund-after-restart deduplicated to refund of “Refund order 8841” "
        "by refund-desk; its answer was given 2 times" in text
    )
    assert "refund:pi_3PqLw8Kd81" in text
    assert "No steps of its own" in text
    assert "proposed nothing" not in text
    page = client.get(reverse("ledger:saga-detail", args=[second])).content.decode()
    assert f'href="{reverse("ledger:saga-detail", args=[first])}#step-2"' in page
    assert "Deduplicated" not in text_of(client, first)


def test_a_saga_that_waits_for_another_sagas_step_says_so_and_says_it_once(
    stage: Stage, client: Client
) -> None:
    """Case C101: the first is not finished, so the agent was told 409; the page tells it too."""
    _, step = stage.waiting_refund()
    second = stage.saga("Refund order 8841, once more", "another-task")
    for _ in range(3):
        assert stage.refund(second, "impatient") == step
    text = text_of(client, second)
    assert "impatient deduplicated to refund of “Refund order 8841” by refund-desk refund:" in text
    assert Entry.objects.filter(saga=second, kind="step.deduplicated").count() == 1
    stage.decide(step)
    stage.work()
    stage.refund(second, "impatient")
    assert "its answer was given 1 time " in text_of(client, second)
    assert list(verify()) == []


def test_another_name_for_an_effect_of_the_same_saga_is_shown_beside_its_steps(
    stage: Stage, client: Client
) -> None:
    """Case C101, C98: a new name each turn, within one saga."""
    saga, step = refunded(stage)
    assert stage.refund(saga, "call_9fQ") == step
    assert "call_9fQ deduplicated to refund of this saga; its answer was given 1 time" in text_of(
        client, saga
    )


def test_a_saga_that_asked_for_nothing_still_says_that(stage: Stage, client: Client) -> None:
    """Case C101: nothing to deduplicate is not shown as deduplication."""
    text = text_of(client, stage.saga())
    assert "proposed nothing so far" in text
    assert "Deduplicated" not in text


NUL = "why\x00not"


@pytest.mark.parametrize(
    ("page", "query"),
    [
        ("ledger:saga-list", "q"),
        ("ledger:saga-list", "agent"),
        ("ledger:saga-list", NUL),
        ("ledger:saga-detail", "step"),
        ("approvals:inbox", "anything"),
    ],
)
def test_nul_in_an_address_is_a_designed_400(
    stage: Stage, client: Client, page: str, query: str
) -> None:
    """Case C93, at the door of the pages."""
    args = [stage.saga()] if page == "ledger:saga-detail" else []
    answer = client.get(reverse(page, args=args), {query: NUL})
    assert answer.status_code == 400
    assert "This cannot be read" in answer.content.decode()


def test_nul_in_a_form_is_a_designed_400_and_changes_nothing(stage: Stage) -> None:
    """Case C93: an operator's words go into jsonb and text too."""
    operator = Client()
    sign_in(operator, stage.oncall)
    _, unknown = stage.unknown_refund()
    _, stuck = stage.stuck_undo()
    _, waiting = stage.waiting_refund()
    request = stage.request(waiting)
    before = Entry.objects.count()
    forms = [
        (reverse("ledger:freeze"), {"scope": "all", "reason": NUL}),
        (reverse("ledger:freeze"), {"scope": "tool", "value": NUL, "reason": "why"}),
        (reverse("ledger:resolve", args=[unknown]), {"answer": "happened", "reason": NUL}),
        (reverse("ledger:retry", args=[stuck]), {"reason": NUL}),
        (
            reverse("approvals:decide", args=[request.pk]),
            {"answer": "reject", "args_digest": request.args_digest, "reason": NUL},
        ),
    ]
    for address, form in forms:
        answer = operator.post(address, form)
        assert answer.status_code == 400, address
        assert "Nothing was changed" in answer.content.decode()
    assert Entry.objects.count() == before
    assert not Freeze.objects.exists()
    request.refresh_from_db()
    assert request.state == "pending"
