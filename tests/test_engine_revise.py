"""The agent's next version of a step that a person asked to change."""

from __future__ import annotations

import pytest

from ledger import errors
from ledger.models import Step
from tests.stage import Stage, a_stage

__all__ = ["a_stage"]


def test_the_next_version_keeps_the_effect_that_the_step_holds(stage: Stage) -> None:
    saga = stage.saga()
    step = stage.refund(saga)
    stage.decide(step, "request_change")
    with pytest.raises(errors.StepMismatch, match="must keep its effect"):
        stage.refund(saga, payment_intent="pi_of_somebody_else")
    assert Step.objects.get(pk=step).state == "change_requested"
    stage.refund(saga, amount=1)
    assert Step.objects.get(pk=step).state == "awaiting_approval"
