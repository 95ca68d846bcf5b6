"""What was asked and decided about a saga leaves, and comes back, under the seal of its steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from django.db import connection

from approvals.models import Approval, Decision
from ledger import doors, walls
from ledger.doors import leaving
from ledger.exports import Writer, read, table_of
from ledger.models import Saga, Tombstone
from ledger.services import archiving, closing
from ledger.services.exporting import write_one
from ledger.services.restoring import restore_file
from tests.approvalcast import behind_the_ledger
from tests.archivecast import archive_all, faults_of
from tests.shop import assert_verifies
from tests.stage import Stage, a_stage

__all__ = ["a_stage"]
pytestmark = pytest.mark.django_db(transaction=True)


def refunded(stage: Stage) -> UUID:
    """An ended saga about which a person was asked."""
    saga = stage.saga()
    stage.decide(stage.refund(saga))
    stage.work()
    closing.complete(saga, bearer=stage.agent)
    return saga


def left(folder: Path) -> Path:
    report = archive_all(folder)
    assert (report.left, Saga.objects.count()) == (1, 0)
    assert report.path is not None
    return report.path


def rewritten(path: Path, change: Callable[[str], str]) -> Path:
    """The same export, with every digest made anew over changed lines of the gate."""
    other = path.with_name("edited.jsonl")
    with Writer(other, made_by="eve") as writer:
        for saga in read(path):
            saga.lines = [
                change(line) if table_of(line).startswith("approvals_") else line
                for line in saga.lines
            ]
            writer.add(saga)
        writer.finish()
    return other


def why_not(path: Path) -> str:
    (found,) = restore_file(path)
    return found.why_not


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace('"approvers"', '"nobody"'),
        lambda line: line.replace('"rule": "', '"rule": "another '),
        lambda line: line.replace('"state": "approved"', '"state": "superseded"'),
    ],
)
def test_what_people_decided_comes_back_as_it_left_or_not_at_all(
    stage: Stage, tmp_path: Path, change: Callable[[str], str]
) -> None:
    refunded(stage)
    asked = list(Approval.objects.values())
    path = left(tmp_path)
    edited = rewritten(path, change)
    assert faults_of(edited) == []
    assert "what was asked and decided about it is not what left" in why_not(edited)
    assert (Saga.objects.count(), Approval.objects.count()) == (0, 0)
    assert why_not(path) == ""
    assert list(Approval.objects.values()) == asked
    assert Decision.objects.count() == 1
    assert_verifies()


def test_an_export_of_one_archived_saga_is_as_good_as_the_whole(
    stage: Stage, tmp_path: Path
) -> None:
    saga = refunded(stage)
    left(tmp_path)
    write_one(saga, tmp_path / "one.jsonl", actor="test")
    assert why_not(tmp_path / "one.jsonl") == ""
    assert Decision.objects.count() == 1


@pytest.mark.by_hand
def test_what_is_not_what_the_file_holds_stays(stage: Stage, tmp_path: Path) -> None:
    """Something about it changed after the file was written: it leaves with a later one."""
    refunded(stage)
    bury_all = archiving._bury_all
    said: list[str] = []

    def meanwhile(export: UUID, path: Path, actor: str, _say: object) -> int:
        with behind_the_ledger() as cursor:
            cursor.execute("UPDATE approvals_approval SET why = 'another reason'")
        return bury_all(export, path, actor, said.append)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archiving, "_bury_all", meanwhile)
        assert archive_all(tmp_path).left == 0
    assert any("asked and decided about it is not what its export holds" in one for one in said)
    left(tmp_path)
    assert_verifies()


@contextmanager
def an_earlier_release() -> Iterator[None]:
    """Whose seals were not over what the gate keeps."""
    assert leaving.UNSEALED != leaving.LEAVING
    with connection.cursor() as cursor:
        cursor.execute(leaving.UNSEALED)
        try:
            yield
        finally:
            cursor.execute(doors.INSTALL + walls.SEAL)


def test_what_left_under_an_earlier_seal_comes_back_from_its_own_file_alone(
    stage: Stage, tmp_path: Path
) -> None:
    saga = refunded(stage)
    with an_earlier_release():
        path = left(tmp_path)
    tombstone = Tombstone.objects.get()
    assert "gate_sha256" not in json.loads(tombstone.payload)
    edited = rewritten(path, lambda line: line.replace('"approvers"', '"nobody"'))
    assert f"it comes back only from {path.name}" in why_not(edited)
    write_one(saga, tmp_path / "one.jsonl", actor="test")
    assert f"it comes back only from {path.name}" in why_not(tmp_path / "one.jsonl")
    assert Approval.objects.count() == 0
    assert why_not(path) == ""
    assert Decision.objects.count() == 1
