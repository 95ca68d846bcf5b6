"""An answer that comes when its saga has left: kept below the tombstone, heard at its return."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, transaction

from ledger.models import Entry, LateWord, Saga, Step
from ledger.outcomes import Failed, NotApplied
from ledger.queries.pages_attention import attention, waiting_count
from ledger.services.operating import resolve
from ledger.services.restoring import restore_file
from tests.doubtcast import ONA, stopped_refund
from tests.shop import assert_verifies
from tests.stage import DONE, Stage, a_stage
from tests.test_archive_pages import leave, signed_in

__all__ = ["a_stage"]


def left_too_soon(stage: Stage, folder: Path) -> tuple[UUID, list[Any], Path]:
    """A refund whose worker was stopped; people said that it had not happened, and it left."""
    saga, step, taken = stopped_refund(stage)
    stage.decide(step, "reject")
    return saga, taken, leave(folder)


@pytest.mark.django_db(transaction=True)
def test_it_is_kept_once_and_waits_on_attention_until_the_saga_is_back(
    stage: Stage, tmp_path: Path
) -> None:
    saga, taken, path = left_too_soon(stage, tmp_path)
    assert attention().is_quiet
    for _ in range(2):
        stage.answer(taken, DONE)
    assert LateWord.objects.get().evidence["result"] == DONE.result
    assert len(attention().buried) == waiting_count(99) == 1
    client = signed_in(stage.oncall)
    for url in ("/attention/", f"/sagas/{saga}/"):
        page = " ".join(client.get(url).content.decode().split())
        assert "A late answer says that its effect was carried out" in page
    (back,) = restore_file(path)
    assert back.why_not == ""
    step = Step.objects.get(saga_id=saga)
    assert (step.state, step.residue) == ("rejected", True)
    assert [one.step.pk for one in attention().contradicted] == [step.pk]
    assert not attention().buried
    told = list(Entry.objects.filter(saga_id=saga).order_by("seq").values_list("kind", flat=True))
    assert told[-3:] == ["saga.restored", "attempt.late", "step.contradicted"]
    assert_verifies()


def test_only_what_was_carried_out_waits_for_a_person(stage: Stage, tmp_path: Path) -> None:
    saga, taken, _ = left_too_soon(stage, tmp_path)
    stage.answer(taken, Failed("no such payment"))
    assert LateWord.objects.count() == 1
    assert attention().is_quiet
    page = signed_in(stage.oncall).get(f"/sagas/{saga}/").content.decode()
    assert "no such payment" in page


def test_a_look_at_what_has_left_says_nothing(stage: Stage, tmp_path: Path) -> None:
    saga, step = stage.unknown_refund()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_outboxmessage SET due_at = clock_timestamp()")
    looks = stage.claim()
    resolve(step, "did_not_happen", reason="saw nothing", actor=ONA)
    stage.decide(step, "reject")
    leave(tmp_path)
    stage.answer(looks, NotApplied())
    assert not LateWord.objects.exists()
    assert not Saga.objects.filter(pk=saga).exists()


@pytest.mark.parametrize("change", ["UPDATE {} SET evidence = '{{}}'", "DELETE FROM {}"])
def test_it_stays_as_it_was_said(stage: Stage, tmp_path: Path, change: str) -> None:
    _, taken, _ = left_too_soon(stage, tmp_path)
    stage.answer(taken, DONE)
    with (
        pytest.raises(DatabaseError, match="append"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(change.format("ledger_lateword"))
