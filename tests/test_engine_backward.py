"""Going back against a real target: in reverse, each once, and told truthfully."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from ledger import errors
from ledger.models import Entry, Step
from ledger.services.closing import abort
from ledger.services.operating import resolve, retry
from ledger.services.proposals import Proposal
from tests.shop import Shop, assert_verifies, broken, customer, kinds, states, work, work_saga


def customers_of(saga: UUID) -> list[str]:
    steps = Step.objects.filter(saga_id=saga, result_text__isnull=False).order_by("position")
    return [json.loads(step.result_text or "{}")["id"] for step in steps]


def test_a_failed_step_undoes_the_ones_before_it_in_reverse_order(shop: Shop) -> None:
    saga = shop.open(
        customer("one", "1@example.com"),
        customer("two", "2@example.com"),
        customer("three", "3@example.com"),
        broken("four"),
        customer("five", "5@example.com"),
    )
    work_saga(saga, "compensated")
    assert states(saga) == {
        "one": "compensated",
        "two": "compensated",
        "three": "compensated",
        "four": "failed",
        "five": "cancelled",
    }
    undone = kinds(saga, "step.compensated")
    assert [step for _, step in undone] == ["three", "two", "one"]
    assert not any(shop.is_there(customer) for customer in customers_of(saga))
    assert_verifies()


def test_an_undo_is_given_the_recorded_result_and_its_own_key(shop: Shop) -> None:
    saga = shop.open(customer("one"), broken("two"))
    work_saga(saga, "compensated")
    starts = [
        json.loads(entry.payload)
        for entry in Entry.objects.filter(saga_id=saga, kind="attempt.started", step_id="one")
    ]
    keys = [start["idempotency_key"] for start in starts]
    assert keys[1] == f"comp:{keys[0]}"


def test_an_undo_that_keeps_failing_stops_the_ones_below_it_and_waits_visibly(shop: Shop) -> None:
    """Cases C58, C60, I1: bounded tries, its place kept, the saga stuck, never silently done."""
    saga = shop.open(
        customer("one", "1@example.com"),
        Proposal("two", "crm.sticky", {"email": "2@example.com"}),
        broken("three"),
    )
    work_saga(saga, "stuck")
    assert states(saga) == {"one": "committed", "two": "stuck", "three": "failed"}
    two = Step.objects.get(saga_id=saga, step_id="two")
    assert two.held_why
    retry(two.pk, reason="the target was mended", actor="person:ona")
    work_saga(saga, "stuck")
    resolve(
        two.pk, "happened", result=None, reason="deleted it in the dashboard", actor="person:ona"
    )
    work_saga(saga, "compensated")
    assert states(saga) == {"one": "compensated", "two": "compensated", "three": "failed"}
    assert resolve(two.pk, "happened", reason="a second click", actor="person:per").replayed
    with pytest.raises(errors.AlreadyDecided, match="deleted it in the dashboard"):
        resolve(two.pk, "end_saga", reason="a third click", actor="person:per")
    assert_verifies()


def test_ending_a_saga_leaves_what_cannot_be_undone_as_residue(shop: Shop) -> None:
    saga = shop.open(
        customer("one", "1@example.com"),
        Proposal("two", "crm.sticky", {"email": "2@example.com"}),
        broken("three"),
    )
    work_saga(saga, "stuck")
    two = Step.objects.get(saga_id=saga, step_id="two")
    resolve(two.pk, "end_saga", reason="it may stay", actor="person:ona")
    work_saga(saga, "compensated")
    assert states(saga) == {"one": "compensated", "two": "committed", "three": "failed"}
    assert Step.objects.get(pk=two.pk).residue
    assert_verifies()


def test_abort_undoes_and_said_again_changes_nothing(shop: Shop) -> None:
    saga = shop.open(customer("one"), Proposal("two", "crm.customer", {"email": "2@example.com"}))
    work(lambda: states(saga)["two"] == "committed")
    abort(saga, "the order was a mistake", bearer=shop.bearer)
    abort(saga, "the order was a mistake", bearer=shop.bearer)
    work_saga(saga, "compensated")
    abort(saga, "the order was a mistake", bearer=shop.bearer)
    assert kinds(saga, "saga.compensating") == [("saga.compensating", "")]
    assert not any(shop.is_there(customer) for customer in customers_of(saga))


def test_a_saga_past_its_pivot_cannot_be_aborted(shop: Shop) -> None:
    charge = shop.charge()
    saga = shop.open(Proposal("refund", "payments.settle", {"charge": charge, "amount": 100}))
    work(lambda: states(saga)["refund"] == "committed")
    with pytest.raises(errors.SagaEnded, match="forward"):
        abort(saga, "too late", bearer=shop.bearer)


def test_a_failure_past_the_pivot_waits_for_an_operator(shop: Shop) -> None:
    charge = shop.charge()
    saga = shop.open(
        customer("before", f"{uuid4()}@example.com"),
        Proposal("refund", "payments.settle", {"charge": charge, "amount": 100}),
        broken("after"),
    )
    work_saga(saga, "stuck")
    assert states(saga) == {"before": "committed", "refund": "committed", "after": "stuck"}
    after = Step.objects.get(saga_id=saga, step_id="after")
    resolve(after.pk, "end_saga", reason="not needed", actor="person:ona")
    work_saga(saga, "compensated")
    assert states(saga) == {"before": "committed", "refund": "committed", "after": "failed"}
    assert Step.objects.filter(saga_id=saga, residue=True).count() == 2
    assert_verifies()


def test_resolving_needs_a_reason(shop: Shop) -> None:
    saga = shop.open(broken("one"))
    step: Any = Step.objects.get(saga_id=saga)
    with pytest.raises(errors.InvalidArgs, match="reason"):
        resolve(step.pk, "happened", reason=" ", actor="person:ona")
