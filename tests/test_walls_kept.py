"""What the ledger keeps, whoever connects: a row that is gone could be made anew, and run again."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from ledger.models import Attempt, ToolVersion
from ledger.services import tooling
from ledger.services.verifying import verify
from ledger.walls import KEEPS
from tests.stage import Stage, a_stage

__all__ = ["a_stage"]


def refused(statement: str, *params: Any) -> str:
    with (
        pytest.raises(DatabaseError) as caught,
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement, params)
    return str(caught.value)


@pytest.mark.parametrize("table", KEEPS)
def test_no_row_of_the_ledger_is_deleted(stage: Stage, table: str) -> None:
    stage.decide(stage.refund(stage.saga()))
    stage.work()
    assert Attempt.objects.count() == 1
    assert "keeps its rows" in refused(f"DELETE FROM {table}")


def test_a_recorded_tool_is_not_rewritten(stage: Stage) -> None:
    stage.charge(stage.saga())
    assert "keeps its rows" in refused("UPDATE ledger_toolversion SET definition = '{}'")


def test_the_args_are_frozen_in_both_their_forms(stage: Stage) -> None:
    stage.charge(stage.saga())
    assert "is frozen" in refused("UPDATE ledger_step SET args = '{}'")


def test_a_definition_that_does_not_fit_its_digest_is_not_run(stage: Stage) -> None:
    stage.charge(stage.saga())
    recorded = ToolVersion.objects.get()
    evil = recorded.definition | {"compensate": {"method": "POST", "url": "https://evil.example/"}}
    digest = "0" * 64
    ToolVersion.objects.create(digest=digest, key=recorded.key, version="3", definition=evil)
    assert tooling._rebuilt(digest) is None
    assert tooling._rebuilt(recorded.digest) is not None


def test_a_step_that_was_taken_away_and_proposed_anew_is_named(stage: Stage) -> None:
    saga = stage.saga()
    stage.charge(saga)
    with connection.cursor() as cursor:  # as an owner of the tables could
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE ledger_step DISABLE TRIGGER ledger_step_no_delete")
        cursor.execute("DELETE FROM ledger_outboxmessage")
        cursor.execute("DELETE FROM ledger_step")
        cursor.execute("ALTER TABLE ledger_step ENABLE TRIGGER ledger_step_no_delete")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
    stage.charge(saga)
    (fault,) = verify()
    assert "proposed anew" in str(fault)
