"""A page that says that tries are used up says whose: the step's own, or all that its saga has."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from ledger.models import OutboxMessage, Saga, Step
from ledger.outcomes import Failed
from ledger.services import opening
from ledger.services.proposals import Opening
from tests.stage import Stage, a_stage

__all__ = ["a_stage"]
pytestmark = pytest.mark.django_db(transaction=True)

BUSY = Failed("503: busy", retryable=True)


def fail_until_nothing_is_due(stage: Stage, outcome: Failed = BUSY) -> None:
    """Every try comes to this, and the next one is due at once."""
    while taken := stage.claim():
        stage.answer(taken, outcome)
        OutboxMessage.objects.filter(taken_at__isnull=True).update(due_at=datetime.now(UTC))


def past_the_pivot(stage: Stage, retry_budget: int) -> tuple[UUID, UUID]:
    """A saga whose refund is out and whose charge is next: (saga, step)."""
    opened = Opening("o-1", "Order 1", retry_budget=retry_budget)
    saga = opening.open_saga(opened, bearer=stage.agent).saga
    stage.decide(stage.refund(saga))
    stage.work()
    return saga, stage.charge(saga)


def pages(stage: Stage, saga: UUID) -> list[str]:
    client = Client()
    client.force_login(stage.oncall)
    addresses = [reverse("ledger:attention"), reverse("ledger:saga-detail", args=[saga])]
    return [client.get(address).content.decode() for address in addresses]


def test_a_refusal_is_not_told_as_tries_that_are_used_up(stage: Stage) -> None:
    saga, step = stage.stuck_undo()
    why = Step.objects.get(pk=step).held_why
    assert why == (
        "A failure like this is not tried again by itself: 403: this key may not void charges"
    )
    for html in pages(stage, saga):
        assert "tries are used up" not in html
        assert "A failure like this is not tried again by itself" in html


def test_a_step_that_used_up_its_own_tries_says_so_whatever_the_saga_has_left(
    stage: Stage,
) -> None:
    saga, step = past_the_pivot(stage, retry_budget=20)
    fail_until_nothing_is_due(stage)
    found = Step.objects.get(pk=step)
    assert found.state == "stuck"
    told = "The step's own tries are used up (its tool allows 5 retries): 503: busy"
    assert found.held_why == told
    assert Saga.objects.get(pk=saga).retries_used == 5
    for html in pages(stage, saga):
        assert "The step&#x27;s own tries are used up (its tool allows 5 retries)" in html
    assert "<dt>Shared retries used</dt><dd>5 of 20</dd>" in pages(stage, saga)[1]


def test_the_shared_budget_is_named_where_it_was_what_ran_out(stage: Stage) -> None:
    saga, step = past_the_pivot(stage, retry_budget=2)
    fail_until_nothing_is_due(stage)
    assert Step.objects.get(pk=step).held_why == (
        "The retries that all steps of this saga share are used up (2 of 2): 503: busy"
    )
    for html in pages(stage, saga):
        assert "share are used up (2 of 2)" in html
        assert "own tries" not in html


def test_a_saga_that_turned_back_for_want_of_retries_says_so(stage: Stage) -> None:
    opened = Opening("o-2", "Order 2", retry_budget=1)
    saga = opening.open_saga(opened, bearer=stage.agent).saga
    stage.charge(saga)
    fail_until_nothing_is_due(stage)
    assert Saga.objects.get(pk=saga).ended_backward_why == (
        "step charge failed: 503: busy. The retries that all steps of this saga share are used "
        "up (1 of 1)."
    )
    entry = pages(stage, saga)[1]
    assert "share are used up (1 of 1)" in entry


def test_an_undo_uses_up_its_own_tries_and_none_of_the_sagas(stage: Stage) -> None:
    saga = stage.saga()
    step = stage.charge(saga)
    stage.work()
    stage.propose(saga, "cancel", "orders.cancel", {"order": "8777"})
    stage.answer(stage.claim(), Failed("404: no such order"))
    fail_until_nothing_is_due(stage)
    found = Step.objects.get(pk=step)
    assert found.state == "stuck"
    assert found.held_why.startswith("The step's own tries are used up (its tool allows 5 retries)")
    assert "<dt>Shared retries used</dt><dd>0 of 20</dd>" in pages(stage, saga)[1]
