"""To be sent again, and not possible here: a doubt, and not only a step that is parked."""

from __future__ import annotations

from uuid import UUID

import pytest

from ledger import errors
from ledger.actions import Action, Trouble
from ledger.backoff import LOOKS
from ledger.outcomes import StillUnknown
from ledger.services.cases import cases
from ledger.services.operating import resolve, retry
from tests.deploys import Till, a_till, booking, state_of, step_of
from tests.doubtcast import CUT, ONA, due_now
from tests.heldcast import offered
from tests.shop import assert_verifies

__all__ = ["a_till"]


def sent_again(till: Till) -> UUID:
    """It has happened, nobody could see it, and the target dedupes: it waits to be sent again."""
    till.release(dedupes=True, dedupes_for_s=600.0, retries=3)
    saga = till.open(booking("one"))
    (taken,) = till.claim()
    taken.tool.run(taken.call)
    till.answer([taken], CUT)
    for _ in range(LOOKS):
        due_now()
        till.answer(till.claim(), StillUnknown("503"))
    assert step_of(saga).state == "queued"
    return saga


def test_what_was_to_be_sent_again_and_is_parked_is_a_doubt(till: Till) -> None:
    saga = sent_again(till)
    till.withdraw()
    due_now()
    assert till.claim() == []
    step = step_of(saga)
    assert (step.state, cases([step.pk])[step.pk].trouble) == ("queued", Trouble.DOUBT)
    assert offered(step.pk) == {Action.HAPPENED, Action.DID_NOT_HAPPEN, Action.END_SAGA}
    with pytest.raises(errors.AlreadyDecided):
        retry(step.pk, reason="other", actor=ONA, args={"sum": 5})
    resolve(step.pk, "end_saga", reason="leave it", actor=ONA)
    left = step_of(saga)
    assert (left.state, left.residue, state_of(saga)) == ("unknown", True, "compensated")
    assert_verifies()


def test_a_look_instead_of_sending_again_sends_nothing(till: Till) -> None:
    saga = sent_again(till)
    retry(step_of(saga).pk, reason="it answers now", actor=ONA)
    assert step_of(saga).state == "unknown"
    till.work()
    assert (step_of(saga).state, till.effects()) == ("committed", 1)
    assert_verifies()
