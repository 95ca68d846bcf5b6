"""An operator's answer counts once, for the question that was seen, and is told to all others."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from ledger import errors
from ledger.models import Entry, Step
from ledger.services.cases import cases
from ledger.services.operating import resolve
from tests.shop import assert_verifies
from tests.stage import Stage, a_stage

__all__ = ["a_stage"]

ONA, PER = "person:ona", "person:per"


def question(step: UUID) -> str:
    return cases([step])[step].question


def told(step: UUID, kind: str) -> list[dict[str, Any]]:
    row = Step.objects.get(pk=step)
    found = Entry.objects.filter(saga_id=row.saga_id, step_id=row.step_id, kind=kind)
    return [json.loads(entry.payload) for entry in found.order_by("seq")]


def test_the_same_answer_again_is_a_replay_and_names_who_gave_it(stage: Stage) -> None:
    _, step = stage.unknown_refund()
    asked = question(step)
    first = resolve(
        step, "happened", result={"id": "re_1"}, reason="seen", actor=ONA, question=asked
    )
    assert not first.replayed
    for again in (asked, ""):
        second = resolve(
            step, "happened", result={"id": "re_1"}, reason="me too", actor=PER, question=again
        )
        assert (second.replayed, second.by) == (True, ONA)
    assert len(told(step, "operator.resolved")) == 1
    assert_verifies()


@pytest.mark.parametrize(
    ("answer", "result"), [("did_not_happen", None), ("end_saga", None), ("happened", {"id": "x"})]
)
def test_another_answer_is_told_who_answered_what_when_and_why(
    stage: Stage, answer: Any, result: Any
) -> None:
    _, step = stage.unknown_refund()
    asked = question(step)
    resolve(step, "happened", result={"id": "re_1"}, reason="seen at the bank", actor=ONA)
    for seen in (asked, ""):
        with pytest.raises(errors.AlreadyDecided, match="ona said 'happened'") as refused:
            resolve(step, answer, result=result, reason="no trace", actor=PER, question=seen)
        fact = refused.value.extra["decided"]
        assert (fact["by"], fact["answer"], fact["reason"]) == (ONA, "happened", "seen at the bank")
        assert fact["at"].endswith("Z")
    assert Step.objects.get(pk=step).state == "committed"
    assert told(step, "operator.late")[0]["said"] == answer
    assert_verifies()
