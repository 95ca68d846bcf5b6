"""Retention: what leaves, what stays, and that a crash in between loses nothing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ledger.models import Entry, Export, Saga, StepTombstone, Tombstone
from ledger.services import closing
from ledger.services.archiving import Report, Wish, archive
from ledger.services.restoring import restore_file
from ledger.services.verifying_exports import verify_file
from tests.shop import Shop, assert_verifies, customer, work_saga


def ended(shop: Shop, *, task_id: str = "", email: str = "ada@example.com") -> UUID:
    """A saga that has completed with one customer."""
    saga = shop.open(customer("one", email), task_id=task_id)
    closing.complete(saga, bearer=shop.bearer)
    work_saga(saga, "completed")
    return saga


def archived(folder: Path, **more: Any) -> Report:
    return archive(Wish(timedelta(0), folder / "archive", **more))


def assert_export_verifies(path: Path) -> None:
    assert [str(fault) for fault in verify_file(path)] == []


def test_an_ended_saga_leaves_for_an_export_that_verifies(shop: Shop, tmp_path: Path) -> None:
    saga = ended(shop)
    report = archived(tmp_path)
    assert (report.exported, report.left) == (1, 1)
    assert not Saga.objects.filter(pk=saga).exists()
    assert not Entry.objects.filter(saga_id=saga).exists()
    tombstone = Tombstone.objects.get(saga_id=saga)
    assert (tombstone.state, tombstone.steps) == ("completed", 1)
    assert StepTombstone.objects.get(saga_id=saga).state == "committed"
    assert Export.objects.get().finished_at is not None
    assert_export_verifies(report.path)
    assert_verifies()


def test_a_restored_saga_is_as_it_left_and_tells_where_it_was(shop: Shop, tmp_path: Path) -> None:
    saga = ended(shop)
    before = Saga.objects.filter(pk=saga).values().get()
    entries = list(Entry.objects.filter(saga_id=saga).order_by("seq").values())
    path = archived(tmp_path).path
    assert [found.is_news for found in restore_file(path)] == [True]
    assert [found.is_news for found in restore_file(path)] == [False]
    after = Saga.objects.filter(pk=saga).values().get()
    moved = {"head_seq", "head_hash", "updated_at"}
    assert {k: v for k, v in after.items() if k not in moved} == {
        k: v for k, v in before.items() if k not in moved
    }
    now = list(Entry.objects.filter(saga_id=saga).order_by("seq").values())
    assert now[: len(entries)] == entries
    assert [entry["kind"] for entry in now[len(entries) :]] == ["saga.archived", "saga.restored"]
    assert_verifies()
    # Back and gone again: below a second tombstone, and its answers are the same.
    assert archived(tmp_path).left == 1
    assert Tombstone.objects.filter(saga_id=saga).count() == 2
    assert_verifies()
