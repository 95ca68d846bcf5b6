"""What is done about an effect follows from what the ledger recorded of its tool.

Never from whether this process happens to have the code: without it the step waits, visibly.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from ledger.actions import Action, Trouble
from ledger.models import EffectClaim, Entry, IdempotencyRecord, ToolVersion
from ledger.services import tooling
from ledger.services.cases import Case, cases
from ledger.services.closing import abort
from ledger.services.operating import Pressed, press, resolve, retry
from ledger.tools.installed import registry
from tests.deploys import Till, a_till, booking, state_of, step_of
from tests.doubtcast import ONA, due_now
from tests.shop import assert_verifies
from tests.stage import TOOLS, Stage, a_stage, sign_in

__all__ = ["a_stage", "a_till"]

MAIL: dict[str, Any] = {"tier": "non_compensatable", "effect_key": "mail:{args.sum}"}


def case_of(saga: UUID) -> Case:
    step = step_of(saga)
    return cases([step.pk])[step.pk]


def offered(saga: UUID) -> set[Action]:
    return {offer.action for offer in case_of(saga).offers}


def kinds(saga: UUID) -> list[str]:
    return list(Entry.objects.filter(saga=saga).order_by("seq").values_list("kind", flat=True))


def sent(till: Till, **release: Any) -> UUID:
    """A saga whose mail is out."""
    till.release(**MAIL | release)
    saga = till.open(booking("one"))
    till.work()
    assert step_of(saga).state == "committed"
    return saga


def half_corrected(till: Till) -> UUID:
    """A saga whose correction was refused by the target, and is stuck."""
    saga = sent(till)
    till.jam()
    abort(saga, "no more", bearer=till.agent)
    till.work()
    till.unjam()
    assert (step_of(saga).state, state_of(saga)) == ("stuck", "stuck")
    return saga


def assert_waits(saga: UUID, why: str) -> None:
    step = step_of(saga)
    assert (step.state, step.residue, state_of(saga)) == ("compensating", False, "compensating")
    assert case_of(saga).trouble == Trouble.PARKED
    assert why in step.held_why
    assert "step.residue" not in kinds(saga)


def test_a_correction_waits_for_a_yes_to_changed_code(till: Till) -> None:
    saga = sent(till)
    seen = till.release(version="2", **MAIL)
    abort(saga, "no more", bearer=till.agent)
    till.work()
    assert_waits(saga, "version 1 then, 2 now")
    assert offered(saga) == {Action.CONFIRM, Action.HAPPENED, Action.SKIP}
    press(step_of(saga).pk, Pressed(Action.CONFIRM, "read the diff", ONA, tool_digest=seen))
    till.work()
    assert (step_of(saga).state, state_of(saga)) == ("corrected", "compensated")
    assert till.lines()[-1].startswith("correct ")
    assert_verifies()


def test_a_correction_waits_for_the_code_that_was_taken_away(till: Till) -> None:
    saga = sent(till)
    till.withdraw()
    abort(saga, "no more", bearer=till.agent)
    till.work()
    assert_waits(saga, "not registered on this worker")
    till.release(**MAIL)
    due_now()
    till.work()
    assert (step_of(saga).state, state_of(saga)) == ("corrected", "compensated")


def test_a_correction_waits_while_the_secret_of_its_definition_is_gone(
    stage: Stage, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deploy(version: str, secret: str) -> None:
        text = TOOLS.replace(
            '"Send a mail"\nversion = "1"', f'"Send a mail"\nversion = "{version}"'
        )
        headers = f'headers = {{ Authorization = "env:{secret}" }}\n'
        Path(settings.SAGA_TOOLS).write_text(text + headers)
        registry.cache_clear()
        tooling._rebuilt.cache_clear()

    monkeypatch.setenv("MAIL_OLD", "x")
    monkeypatch.setenv("MAIL_NEW", "y")
    deploy("1", "MAIL_OLD")
    saga = stage.saga()
    stage.propose(saga, "one", "mail.send", {"to": "ada@example.com", "text": "Hello"})
    stage.work()
    monkeypatch.delenv("MAIL_OLD")
    deploy("2", "MAIL_NEW")
    abort(saga, "no more", bearer=stage.agent)
    assert stage.claim() == []
    assert_waits(saga, "has changed")


def test_a_correction_runs_under_code_that_says_it_is_as_good(till: Till) -> None:
    saga = sent(till)
    till.release(version="2", compatible_with=["1"], **MAIL)
    abort(saga, "no more", bearer=till.agent)
    till.work()
    assert (step_of(saga).state, state_of(saga)) == ("corrected", "compensated")


def test_what_was_recorded_without_a_correction_is_residue_without_its_code(till: Till) -> None:
    saga = sent(till, undo="say_sorry")
    till.withdraw()
    abort(saga, "no more", bearer=till.agent)
    assert (step_of(saga).state, step_of(saga).residue) == ("committed", True)
    assert state_of(saga) == "compensated"


def recorded_by_an_earlier_release() -> None:
    """Which did not write down what a tool in Python is able to do; its digest is the same."""
    tool = registry().get("till.book")
    told = {name: value for name, value in tool.definition.items() if name != "directions"}
    ToolVersion.objects.create(
        digest=tool.digest, key=tool.key, version=tool.version, definition=told
    )


def test_what_no_ledger_and_no_code_tells_is_not_told_as_none(till: Till) -> None:
    till.release(undo="say_sorry", **MAIL)
    recorded_by_an_earlier_release()
    saga = sent(till, undo="say_sorry")
    till.withdraw()
    abort(saga, "no more", bearer=till.agent)
    till.work()
    assert_waits(saga, "not registered on this worker")
    till.release(undo="say_sorry", **MAIL)
    due_now()
    till.work()
    assert (step_of(saga).state, step_of(saga).residue) == ("stuck", False)
    assert "has no correct; nothing was sent" in step_of(saga).held_why
    press(step_of(saga).pk, Pressed(Action.SKIP, "it never had one", ONA))
    assert (step_of(saga).residue, state_of(saga)) == (True, "compensated")


def test_a_snapshot_whose_numbers_cannot_be_read_back_tells_nothing(till: Till) -> None:
    limits = {"sum": {"type": "integer", "maximum": 1e23}}
    saga = sent(till, schema={"type": "object", "properties": limits})
    till.withdraw()
    abort(saga, "no more", bearer=till.agent)
    till.work()
    assert_waits(saga, "not registered on this worker")


def test_code_that_is_here_tells_what_an_earlier_release_did_not_record(till: Till) -> None:
    till.release(**MAIL)
    recorded_by_an_earlier_release()
    saga = sent(till)
    abort(saga, "no more", bearer=till.agent)
    till.work()
    assert (step_of(saga).state, state_of(saga)) == ("corrected", "compensated")


@pytest.mark.parametrize("deploy", ["gone", "changed"])
def test_a_correction_that_is_done_by_hand_is_a_correction(till: Till, deploy: str) -> None:
    """The mail is out: its effect stays claimed, and nobody sends it once more."""
    saga = half_corrected(till)
    if deploy == "gone":
        till.withdraw()
    else:
        till.release(version="2", **MAIL)
    resolve(step_of(saga).pk, "happened", reason="wrote to her myself", actor=ONA)
    assert (step_of(saga).state, state_of(saga)) == ("corrected", "compensated")
    spent = IdempotencyRecord.objects.filter(step__saga=saga, state="executed")
    assert sorted(one.key.partition(":")[0] for one in spent if ":" in one.key) == ["corr"]
    assert EffectClaim.objects.get(step__saga=saga).released_at is None
    till.release(**MAIL)
    till.open(booking("another"))
    till.work()
    assert till.effects() == 1
    assert_verifies()


def test_a_stuck_correction_runs_under_todays_code_after_a_yes(till: Till) -> None:
    saga = half_corrected(till)
    till.release(version="2", **MAIL)
    assert next(offer.label for offer in case_of(saga).offers) == "Run it under today's code"
    retry(step_of(saga).pk, reason="read the diff", actor=ONA)
    till.work()
    assert (step_of(saga).state, state_of(saga)) == ("corrected", "compensated")
    tries = Entry.objects.filter(saga=saga, kind="attempt.started").order_by("seq")
    ways = [json.loads(one.payload)["direction"] for one in tries]
    assert ways == ["forward", "correct", "correct"]
    assert "step.compensating" not in kinds(saga)
    assert_verifies()


def test_code_that_has_lost_its_correction_is_offered_to_nobody(till: Till) -> None:
    saga = half_corrected(till)
    till.release(version="2", undo="say_sorry", **MAIL)
    assert offered(saga) == {Action.HAPPENED, Action.SKIP}
    assert "has no correct now" in case_of(saga).why


def test_people_are_told_of_a_correction_whatever_code_is_here(
    stage: Stage, settings: Any, client: Client
) -> None:
    saga = stage.saga()
    stage.propose(saga, "one", "mail.send", {"to": "ada@example.com", "text": "Hello"})
    stage.work()
    request = stage.request(stage.refund(saga))
    Path(settings.SAGA_TOOLS).write_text(TOOLS.partition('[tools."mail.send"]')[0])
    registry.cache_clear()
    sign_in(client, stage.approver)
    page = client.get(reverse("approvals:approval-detail", args=[request.pk])).content.decode()
    assert "1 effect would be answered by a correction" in page
