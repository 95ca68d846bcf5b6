"""Pages of what was archived: where it went, what it still answers, and a saga as a file."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client

from ledger.models import Entry, Saga
from ledger.services import archiving, closing, operating
from ledger.services.acknowledging import acknowledge_residue
from ledger.services.archiving import Wish, archive
from ledger.services.verifying_exports import verify_file
from tests.archivecast import tell
from tests.stage import Stage, a_stage

__all__ = ["a_stage"]


@pytest.fixture
def operator(stage: Stage) -> Client:
    return signed_in(stage.oncall)


def signed_in(person: Any) -> Client:
    client = Client()
    client.force_login(person)
    return client


def completed(stage: Stage) -> UUID:
    saga = stage.saga()
    stage.charge(saga)
    closing.complete(saga, bearer=stage.agent)
    stage.work()
    return saga


def leave(folder: Path) -> Path:
    tell()
    check_as_a_commit_would()
    report = archive(Wish(timedelta(0), folder))
    assert report.left == 1
    check_as_a_commit_would()
    return report.path


def check_as_a_commit_would() -> None:
    """Within this test's one transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


def test_an_archived_saga_has_a_page_that_says_where_it_went(
    stage: Stage, operator: Client, tmp_path: Path
) -> None:
    saga = completed(stage)
    path = leave(tmp_path)
    page = operator.get(f"/sagas/{saga}/")
    assert page.status_code == 200
    for told in (path.name, str(tmp_path), "charge", f"manage.py restore FILE --saga {saga}"):
        assert told in page.text
    assert operator.get(f"/sagas/{UUID(int=7)}/").status_code == 404


@pytest.mark.parametrize("text", ["{saga}", "refund-8841"])
def test_a_search_finds_what_is_archived(
    stage: Stage, operator: Client, tmp_path: Path, text: str
) -> None:
    saga = completed(stage)
    name = leave(tmp_path).name
    found = operator.get("/sagas/", {"q": text.format(saga=saga)}).text
    assert name in found
    assert f'href="/sagas/{saga}/"' in found
    assert name not in operator.get("/sagas/").text


def test_a_search_marks_what_left_effects_in_the_world(
    stage: Stage, operator: Client, tmp_path: Path
) -> None:
    saga, step = stage.stuck_undo()
    operating.resolve(step, "end_saga", reason="It stays.", actor="person:oskar")
    acknowledge_residue(saga, reason="Voided by hand.", actor="person:oskar")
    clean = completed(stage)
    tell()
    assert archive(Wish(timedelta(0), tmp_path)).left == 2
    assert '">residue</span>' in operator.get("/sagas/", {"q": str(saga)}).text
    assert '">residue</span>' not in operator.get("/sagas/", {"q": str(clean)}).text


def test_the_ledger_page_lists_exports(stage: Stage, operator: Client, tmp_path: Path) -> None:
    assert "Nothing has been archived" in operator.get("/ledger/").text
    completed(stage)
    name = leave(tmp_path).name
    assert name in operator.get("/ledger/").text


def test_a_saga_is_downloaded_as_an_export_that_verifies(
    stage: Stage, operator: Client, tmp_path: Path
) -> None:
    saga = completed(stage)
    here = b"".join(operator.get(f"/sagas/{saga}/export.jsonl").streaming_content)
    leave(tmp_path / "archive")
    archived = b"".join(operator.get(f"/sagas/{saga}/export.jsonl").streaming_content)
    for name, raw in (("here", here), ("archived", archived)):
        file = tmp_path / f"{name}.jsonl"
        file.write_bytes(raw)
        assert [str(fault) for fault in verify_file(file)] == []
    assert here.splitlines()[2:-1] == archived.splitlines()[2:-1]


def test_an_export_that_is_not_where_it_was_put_is_said(
    stage: Stage, operator: Client, tmp_path: Path
) -> None:
    saga = completed(stage)
    leave(tmp_path).unlink()
    assert operator.get(f"/sagas/{saga}/export.jsonl").status_code == 404
    assert "not there now" in operator.get(f"/sagas/{saga}/").text


def test_who_may_only_look_downloads_nothing(stage: Stage, tmp_path: Path) -> None:
    saga = completed(stage)
    assert signed_in(stage.viewer).get(f"/sagas/{saga}/export.jsonl").status_code == 403
    assert Client().get(f"/sagas/{saga}/export.jsonl").status_code == 302


def test_residue_is_acknowledged_with_a_reason_once(
    stage: Stage, operator: Client, tmp_path: Path
) -> None:
    saga, step = stage.stuck_undo()
    operating.resolve(step, "end_saga", reason="void by hand", actor="person:oskar")
    assert Saga.objects.get(pk=saga).state == "compensated"
    for reason in ("", "Refunded by bank transfer.", "Once more."):
        operator.post(f"/sagas/{saga}/acknowledge", {"reason": reason})
    (told,) = Entry.objects.filter(saga_id=saga, kind="residue.acknowledged")
    assert json.loads(told.payload)["reason"] == "Refunded by bank transfer."
    assert told.actor == "person:oskar"
    tell()
    assert "Acknowledged by" in operator.get(f"/sagas/{saga}/").text
    assert list(archiving.due(Wish(timedelta(0), tmp_path))) == [saga]


def test_a_page_about_an_archived_first_step_is_still_shown(
    stage: Stage, operator: Client, tmp_path: Path
) -> None:
    first = stage.saga()
    step = stage.refund(first)
    stage.decide(step)
    stage.work()
    closing.complete(first, bearer=stage.agent)
    second = stage.saga("Refund it again", "refund-again")
    leave(tmp_path)
    assert stage.refund(second, "again") == step
    page = operator.get(f"/sagas/{second}/").text
    assert "Deduplicated" in page
    assert f'href="/sagas/{first}/#step-1"' in page
