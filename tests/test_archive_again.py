"""A saga that came back and leaves once more: its tombstones tell how it left last."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from django.db import ProgrammingError, transaction

from ledger import storage
from ledger.actions import Action
from ledger.models import Saga, StepTombstone, Tombstone
from ledger.queries import archived
from ledger.services.operating import Pressed, press, resolve
from ledger.services.restoring import restore_file
from tests.archivecast import archive_all
from tests.deploys import Till, a_till, booking, step_of
from tests.doubtcast import ONA, zombie
from tests.shop import assert_verifies

__all__ = ["a_till"]
pytestmark = pytest.mark.django_db(transaction=True)


def residue_of(saga: UUID) -> list[str]:
    told = archived.saga(saga, str, None)
    assert told is not None
    return [one["step_id"] for one in told["residue"]]


def test_what_is_heard_in_between_is_told_when_it_has_left_again(
    till: Till, tmp_path: Path
) -> None:
    saga, taken, outcome = zombie(till)
    resolve(step_of(saga).pk, "did_not_happen", reason="saw nothing", actor=ONA)
    first = archive_all(tmp_path).path
    assert first is not None
    assert residue_of(saga) == []
    assert [one.why_not for one in restore_file(first)] == [""]
    till.answer(taken, outcome)
    press(step_of(saga).pk, Pressed(Action.ACKNOWLEDGE, "wrote it down", ONA))
    assert archive_all(tmp_path, with_residue=True).left == 1
    assert not Saga.objects.filter(pk=saga).exists()
    assert Tombstone.objects.filter(saga_id=saga).count() == 2
    assert residue_of(saga) == ["one"]
    assert_verifies()
    assert "its tombstone has another digest" in next(restore_file(first)).why_not


def test_a_step_that_is_here_cannot_be_told_otherwise_below_its_tombstone(
    till: Till, tmp_path: Path
) -> None:
    saga = till.open(booking("one", refuse="ada"))
    till.work()
    path = archive_all(tmp_path).path
    assert path is not None
    before = StepTombstone.objects.values().get(saga_id=saga)
    lie = "UPDATE ledger_steptombstone SET state = 'committed', residue = true"
    with pytest.raises(ProgrammingError, match="no finished step"), transaction.atomic():
        storage.execute(lie)
    assert [one.why_not for one in restore_file(path)] == [""]
    storage.execute(lie)
    assert StepTombstone.objects.values().get(saga_id=saga) == before
    till.open(booking("another"))
    with pytest.raises(ProgrammingError, match="is refused"), transaction.atomic():
        storage.execute("UPDATE ledger_steptombstone SET id = gen_random_uuid()")
    assert_verifies()
