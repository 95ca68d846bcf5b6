"""Coming back: a saga as it left, and nothing that was changed meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction

from ledger.exports import BadExport, SagaLines, Writer
from ledger.models import Entry, Saga, Step, Tombstone
from ledger.services.restoring import restore_file
from tests.archivecast import archive_all, ended, faults_of, undone
from tests.shop import Shop, assert_verifies


def test_a_restored_saga_is_as_it_left_and_tells_where_it_was(shop: Shop, tmp_path: Path) -> None:
    saga = undone(shop)
    before: dict[str, Any] = dict(Saga.objects.filter(pk=saga).values().get())
    entries = list(Entry.objects.filter(saga_id=saga).order_by("seq").values())
    steps = list(Step.objects.filter(saga_id=saga).order_by("position").values())
    path = archive_all(tmp_path).path
    assert [found.is_news for found in restore_file(path)] == [True]
    assert [found.is_news for found in restore_file(path)] == [False]
    after: dict[str, Any] = dict(Saga.objects.filter(pk=saga).values().get())
    moved = {"head_seq", "head_hash", "updated_at"}
    assert {name for name in before if before[name] != after[name]} == moved
    assert list(Step.objects.filter(saga_id=saga).order_by("position").values()) == steps
    now = list(Entry.objects.filter(saga_id=saga).order_by("seq").values())
    assert now[: len(entries)] == entries
    assert [entry["kind"] for entry in now[len(entries) :]] == ["saga.archived", "saga.restored"]
    assert_verifies()
    # Back and gone again: below a second tombstone, with the same answers.
    assert archive_all(tmp_path).left == 1
    assert Tombstone.objects.filter(saga_id=saga).count() == 2
    assert_verifies()


def test_only_the_wanted_saga_comes_back(shop: Shop, tmp_path: Path) -> None:
    one, two = ended(shop), ended(shop)
    path = archive_all(tmp_path).path
    assert [found.saga for found in restore_file(path, only=two)] == [str(two)]
    assert list(Saga.objects.values_list("pk", flat=True)) == [two]
    with pytest.raises(BadExport):
        list(restore_file(path, only=shop.bearer.agent_id))
    assert Tombstone.objects.filter(saga_id=one).exists()
    assert_verifies()


def forged(path: Path, change: Callable[[str], str]) -> Path:
    """The same export with one thing changed, and every digest in it made anew."""
    lines = path.read_text().splitlines()
    about = json.loads(lines[1])
    changed = [change(line) for line in lines[2:-2]]
    other = path.with_name("forged.jsonl")
    with Writer(other) as writer:
        writer.add(SagaLines(about.pop("saga"), about, changed))
        writer.finish()
    return other


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ((b"ada@", b"eve@"), "another sha256"),
        ((b'"kind":"manifest"', b'"kind":"other"'), "does not belong here"),
        ((b'{"row"', b"{row"), "no JSON"),
    ],
)
def test_a_changed_export_does_not_verify_and_is_not_restored(
    shop: Shop, tmp_path: Path, change: tuple[bytes, bytes], why: str
) -> None:
    ended(shop)
    path = archive_all(tmp_path).path
    path.write_bytes(path.read_bytes().replace(*change))
    assert why in faults_of(path)[0]
    with pytest.raises(BadExport):
        list(restore_file(path))
    assert Saga.objects.count() == 0


def test_an_export_that_is_cut_off_does_not_verify(shop: Shop, tmp_path: Path) -> None:
    ended(shop)
    path = archive_all(tmp_path).path
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert "cut off" in faults_of(path)[0]


def test_a_forgery_with_good_digests_is_found_by_its_chain_and_refused(
    shop: Shop, tmp_path: Path
) -> None:
    ended(shop)
    path = forged(archive_all(tmp_path).path, lambda line: line.replace("ada@", "eve@"))
    assert "does not match its hash" in faults_of(path)[0]
    (found,) = restore_file(path)
    assert "does not verify" in found.why_not
    assert Saga.objects.count() == 0


def test_a_forgery_outside_the_chain_is_refused_by_the_tombstone(
    shop: Shop, tmp_path: Path
) -> None:
    """The reason of a step is in no hash of an entry, but in the digest of what left."""
    ended(shop)
    path = forged(
        archive_all(tmp_path).path, lambda line: line.replace('"reason": ""', '"reason": "x"')
    )
    assert faults_of(path) == []
    (found,) = restore_file(path)
    assert "another digest" in found.why_not
    assert Saga.objects.count() == 0


def test_a_saga_of_another_ledger_is_not_restored(shop: Shop, tmp_path: Path) -> None:
    ended(shop)
    path = archive_all(tmp_path).path
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_tombstone DISABLE TRIGGER ledger_tombstone_no_change")
        cursor.execute("DELETE FROM ledger_tombstone")
        cursor.execute("ALTER TABLE ledger_tombstone ENABLE TRIGGER ledger_tombstone_no_change")
    (found,) = restore_file(path)
    assert "no tombstone" in found.why_not
