"""Retention: what leaves and what stays, and that a crash in between loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from ledger.exports import UNFINISHED, BadExport, Writer
from ledger.models import Entry, Export, OutboxMessage, Saga, Step, StepTombstone, Tombstone
from ledger.services import archiving, closing, operating
from ledger.services.acknowledging import acknowledge_residue
from ledger.services.archiving import ArchiveBusy, Wish, archive, due, held_back
from tests.archivecast import archive_all, ended, faults_of
from tests.shop import Shop, assert_verifies, customer, work, work_saga

CRASHES = {
    "before the manifest": (Writer, "finish"),
    "before the database knows of the file": (archiving.storage, "execute"),
    "before the first saga leaves": (archiving, "_bury_all"),
    "in the middle of a saga": (archiving, "gate"),
    "after the first saga": (archiving, "bury"),
}


def test_an_ended_saga_leaves_for_an_export_that_verifies(shop: Shop, tmp_path: Path) -> None:
    saga = ended(shop)
    report = archive_all(tmp_path)
    assert (report.exported, report.left) == (1, 1)
    assert not Saga.objects.filter(pk=saga).exists()
    assert not Entry.objects.filter(saga_id=saga).exists()
    tombstone = Tombstone.objects.get(saga_id=saga)
    assert (tombstone.state, tombstone.steps) == ("completed", 1)
    assert StepTombstone.objects.get(saga_id=saga).state == "committed"
    assert Export.objects.get().finished_at is not None
    assert faults_of(report.path) == []
    assert_verifies()


def test_what_is_not_old_or_not_ended_stays(shop: Shop, tmp_path: Path) -> None:
    young = ended(shop)
    still_open = shop.open(customer("one", "bob@example.com"))
    report = archive(Wish(timedelta(days=90), tmp_path))
    assert (report.exported, report.path) == (0, None)
    assert set(Saga.objects.values_list("pk", flat=True)) == {young, still_open}
    assert list(due(Wish(timedelta(0), tmp_path))) == [young]


def test_a_replay_makes_a_saga_young_again(shop: Shop, tmp_path: Path) -> None:
    """Old is what nobody has asked about for so long, not what ended so long ago."""
    saga = ended(shop)
    aged(saga)
    wish = Wish(timedelta(hours=1), tmp_path)
    assert list(due(wish)) == [saga]
    shop.propose(saga, "one", "crm.customer", args={"email": "ada@example.com"})
    assert list(due(wish)) == []


def aged(saga: Any) -> None:
    """As if nothing had happened in it for years."""
    Saga.objects.filter(pk=saga).update(
        updated_at="2020-01-01T00:00:00Z", created_at="2020-01-01T00:00:00Z"
    )


def test_residue_stays_until_a_person_has_acknowledged_it(shop: Shop, tmp_path: Path) -> None:
    saga = shop.open(customer("one", "ann@example.com"))
    shop.propose(saga, "sticky", "crm.sticky", args={"email": "sue@example.com"})
    work(lambda: Step.objects.filter(saga_id=saga, state="committed").count() == 2)
    closing.abort(saga, "changed my mind", bearer=shop.bearer)
    work(lambda: Step.objects.filter(saga_id=saga, state="stuck").exists())
    wish = Wish(timedelta(0), tmp_path)
    assert list(due(wish)) == []
    stuck = Step.objects.get(saga_id=saga, state="stuck")
    operating.resolve(stuck.pk, "end_saga", reason="the target says no", actor="person:oskar")
    work_saga(saga, "compensated")
    assert list(due(wish)) == []
    assert held_back(wish) == (0, 1)
    assert list(due(Wish(timedelta(0), tmp_path, with_residue=True))) == [saga]
    acknowledge_residue(saga, reason="paid back by hand", actor="person:oskar")
    assert list(due(wish)) == [saga]
    acknowledge_residue(saga, reason="again", actor="person:oskar")
    assert Entry.objects.filter(saga_id=saga, kind="residue.acknowledged").count() == 1
    assert archive_all(tmp_path).left == 1
    assert_verifies()


def test_a_saga_that_does_not_verify_stays(shop: Shop, tmp_path: Path) -> None:
    saga = ended(shop)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_step DISABLE TRIGGER ledger_step_recorded")
        cursor.execute("UPDATE ledger_step SET result_text = '{}'")
        cursor.execute("ALTER TABLE ledger_step ENABLE TRIGGER ledger_step_recorded")
    said: list[str] = []
    report = archive(Wish(timedelta(0), tmp_path / "archive"), said.append)
    assert (report.exported, report.left, report.path) == (0, 0, None)
    assert any("its result is not the recorded one" in line for line in said)
    assert Saga.objects.filter(pk=saga).exists()
    assert list((tmp_path / "archive").iterdir()) == []


def test_a_saga_that_moved_after_it_was_written_stays_and_leaves_with_the_next_export(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saga = ended(shop)
    bury_all = archiving._bury_all

    def asked_meanwhile(*args: Any) -> int:
        shop.propose(saga, "one", "crm.customer", args={"email": "ada@example.com"})
        return bury_all(*args)

    with monkeypatch.context() as patch:
        patch.setattr(archiving, "_bury_all", asked_meanwhile)
        first = archive_all(tmp_path)
    assert (first.exported, first.left) == (1, 0)
    assert Saga.objects.filter(pk=saga).exists()
    assert archive_all(tmp_path).left == 1
    assert_verifies()


class Killed(BaseException):
    """As abrupt as a signal: no handler of ours catches it."""


@pytest.mark.parametrize("point", CRASHES)
def test_a_crash_loses_nothing_and_the_next_run_finishes(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """P24, first half: whatever has left the database is whole on the disk."""
    sagas = {str(ended(shop, email=f"{n}@example.com")) for n in range(3)}
    owner, name = CRASHES[point]
    real = getattr(owner, name)
    calls = iter([point == "after the first saga"])

    def die(*args: Any, **more: Any) -> Any:
        if owner is archiving.storage and "ledger_export" not in args[0]:
            return real(*args, **more)
        if next(calls, False):
            return real(*args, **more)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, die)
        with pytest.raises(Killed):
            archive_all(tmp_path)
    assert_nothing_lost(tmp_path, sagas)
    assert_verifies()
    archive_all(tmp_path)
    assert Saga.objects.count() == 0
    assert_nothing_lost(tmp_path, sagas)
    assert not list(tmp_path.rglob(f"*{UNFINISHED}"))
    assert not Export.objects.filter(finished_at__isnull=True).exists()
    assert_verifies()
    assert archive_all(tmp_path).left == 0


def assert_nothing_lost(folder: Path, sagas: set[str]) -> None:
    """Each saga is here, or below a tombstone and whole in a file that verifies."""
    here = {str(pk) for pk in Saga.objects.values_list("pk", flat=True)}
    gone = {str(pk) for pk in Tombstone.objects.values_list("saga_id", flat=True)}
    assert here | gone == sagas
    assert here & gone == set()
    files = list(folder.rglob("*.jsonl"))
    assert [fault for path in files for fault in faults_of(path)] == []
    text = "".join(path.read_text() for path in files)
    assert [saga for saga in gone if f'"kind":"saga.end","saga":"{saga}"' not in text] == []


def test_nothing_leaves_by_a_file_that_was_changed(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saga = ended(shop)
    with monkeypatch.context() as patch:
        patch.setattr(archiving, "_bury_all", lambda *_: 0)
        path = archive_all(tmp_path).path
    path.write_bytes(path.read_bytes().replace(b"ada@", b"eve@"))
    with pytest.raises(BadExport):
        archive_all(tmp_path)
    assert Saga.objects.filter(pk=saga).exists()


def test_an_export_that_was_taken_away_before_all_had_left_is_made_anew(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(shop)
    with monkeypatch.context() as patch:
        patch.setattr(archiving, "_bury_all", lambda *_: 0)
        archive_all(tmp_path).path.unlink()
    assert archive_all(tmp_path).left == 1
    assert_verifies()


@contextmanager
def another_session() -> Iterator[psycopg.Connection[Any]]:
    """A connection of somebody else to the test's database, in a transaction."""
    with connection.cursor() as cursor:
        where = cursor.connection.info
        other = psycopg.connect(where.dsn, password=where.password)
    with other:
        yield other
        other.rollback()


def test_two_archives_do_not_run_at_once(shop: Shop, tmp_path: Path) -> None:
    with another_session() as other:
        other.execute("SELECT pg_advisory_lock(%s)", [archiving.LOCK])
        with pytest.raises(ArchiveBusy):
            archive_all(tmp_path)


def test_a_saga_in_use_is_left_alone_and_nobody_waits(shop: Shop, tmp_path: Path) -> None:
    saga = ended(shop)
    with another_session() as other:
        other.execute("SELECT 1 FROM ledger_saga WHERE id = %s FOR UPDATE", [saga])
        assert archive_all(tmp_path).left == 0
    assert archive_all(tmp_path).left == 1


def test_nothing_of_a_saga_is_left_behind(shop: Shop, tmp_path: Path) -> None:
    """Every table that leads to a saga, a step or a request belongs to what leaves, or stays.

    A new one must be named: in `EXPORTED` or `SPENT` (ledger/doors/exported.py), in the gate's
    own (approvals/doors.py), or here, with the reason why it stays.
    """
    from approvals import doors
    from ledger.doors.exported import EXPORTED, SPENT

    query = """
        SELECT DISTINCT conrelid::regclass::text FROM pg_constraint
        WHERE contype = 'f' AND confrelid::regclass::text = ANY(%s)
    """
    named = {table for table, *_ in EXPORTED} | set(SPENT) | {table for table, _ in doors.EXPORTED}
    with connection.cursor() as cursor:
        cursor.execute(query, [sorted(named - {"ledger_toolversion"})])
        leading = {table for (table,) in cursor.fetchall()}
    assert leading - named == set()
    ended(shop)
    archive_all(tmp_path)
    assert OutboxMessage.objects.count() == 0
