"""Tampered copies of a trace, judged from outside: every one is found out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledger import storage
from ledger.bearer import Bearer
from ledger.services.unit import Unit
from tests.shop import Shop
from tests.tracecast import (
    FAIL,
    INCOMPLETE,
    Events,
    ana,
    answer,
    approved_refund,
    check,
    events,
    refund,
)

__all__ = ["ana", "check"]
pytestmark = pytest.mark.django_db(transaction=True)


def at(found: Events, kind: str) -> int:
    """Where the refund's event of this type is."""
    return next(
        index
        for index, event in enumerate(found)
        if event["type"] == kind and event["action_id"].startswith("refund")
    )


def change_args(found: Events) -> None:
    found[at(found, "action_executed")]["action"]["parameters"]["amount"] = 100_000


def change_key(found: Events) -> None:
    found[at(found, "action_executed")]["action"]["resource"] = "another key"


def run_unasked(found: Events) -> None:
    del found[at(found, "action_executed")]["approval_id"]
    del found[at(found, "approval_decision")]
    del found[at(found, "approval_requested")]


def run_first(found: Events) -> None:
    decision, ran = at(found, "approval_decision"), at(found, "action_executed")
    found[decision], found[ran] = found[ran], found[decision]


def run_twice(found: Events) -> None:
    found.insert(len(found) - 1, found[at(found, "action_executed")])


def run_though_denied(found: Events) -> None:
    found[at(found, "approval_decision")]["decision"] = "deny"


def run_late(found: Events) -> None:
    found[at(found, "approval_decision")]["expires_at"] = "2020-01-01T00:00:00Z"


TAMPERINGS = [
    (change_args, FAIL, "ACK003"),
    (change_key, FAIL, "ACK003"),
    (run_unasked, FAIL, "ACK001"),
    (run_first, FAIL, "ACK006"),
    (run_twice, FAIL, "ACK004"),
    (run_though_denied, FAIL, "ACK002"),
    (run_late, FAIL, "ACK005"),
    (lambda found: found.pop(at(found, "approval_decision")), INCOMPLETE, "ACK009"),
    (lambda found: found.pop(), INCOMPLETE, "ACK009"),
]


def test_every_tampered_copy_is_found_out(shop: Shop, ana: Bearer, check: Any) -> None:
    original = events(approved_refund(shop, ana))
    for tamper, code, rule in TAMPERINGS:
        found = json.loads(json.dumps(original))
        tamper(found)
        judged, said = check(found)
        assert (judged, rule in said) == (code, True), (tamper, said)


@pytest.mark.by_hand
def test_what_the_ledger_says_ran_is_what_the_trace_says(shop: Shop, ana: Bearer) -> None:
    """Not a copy of the proposal: an intent that differs is told as it was written."""
    saga = shop.open(refund(shop))
    answer(ana, saga)
    unit_facts = {"direction": "forward", "tool": "payments.refund", "args": {"amount": 7}}
    text = json.dumps(unit_facts | {"args_digest": "-", "idempotency_key": "k"})

    @storage.transition
    def forge() -> None:
        unit = Unit("intruder")
        unit.lock([saga])
        unit.entry(unit.sagas[saga], "attempt.started", "refund", **json.loads(text))
        unit.flush()

    forge()
    (ran,) = [event for event in events(saga) if event["type"] == "action_executed"]
    assert ran["action"]["resource"] == "k"
    assert ran["action"]["parameters"] == {"args_digest": "-"}
