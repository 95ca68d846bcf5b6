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
