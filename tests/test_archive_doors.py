"""A door that a saga has gone through, out and back, does not open a second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.services.restoring import restore_file
from tests.archivecast import archive_all, ended
from tests.shop import Shop, assert_verifies
from tests.test_archive_walls import refused

HEAD_BACK = (
    "CREATE TEMP TABLE lever (saga uuid, head bigint) ON COMMIT DROP",
    """CREATE FUNCTION pg_temp.pull() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE
    public.ledger_saga SET head_seq = NEW.head WHERE id = NEW.saga; RETURN NEW; END $$""",
    "CREATE TRIGGER pull BEFORE INSERT ON lever FOR EACH ROW EXECUTE FUNCTION pg_temp.pull()",
    "INSERT INTO lever SELECT saga_id, seq - 1 FROM ledger_tombstone WHERE saga_id = %(saga)s",
)


@pytest.mark.parametrize("table", ["ledger_entry", "ledger_attempt", "ledger_idempotencyrecord"])
def test_no_door_opens_again_below_a_tombstone_that_was_come_back_from(
    shop: Shop, tmp_path: Path, table: str
) -> None:
    """Whatever became of the head: a trigger of anybody's own table moves it, as entries do."""
    saga = ended(shop)
    assert next(restore_file(archive_all(tmp_path).path)).why_not == ""
    steps = "step_id IN (SELECT id FROM ledger_step WHERE saga_id = %(saga)s)"
    where = "saga_id = %(saga)s" if table == "ledger_entry" else steps
    refused(*HEAD_BACK, f"DELETE FROM {table} WHERE {where}", saga=saga)
    begins = "UPDATE ledger_saga SET state = 'running', ended_at = NULL WHERE id = %(saga)s"
    refused(*HEAD_BACK, begins, saga=saga)
    assert_verifies()


def test_nothing_begins_as_ended_in_a_saga_that_has_come_back(shop: Shop, tmp_path: Path) -> None:
    saga = ended(shop)
    assert next(restore_file(archive_all(tmp_path).path)).why_not == ""
    as_ended = (
        "INSERT INTO ledger_attempt SELECT (jsonb_populate_record(a, jsonb_build_object("
        "'id', gen_random_uuid(), 'fence', 99))).* FROM ledger_attempt a"
    )
    assert "cannot begin as done" in refused(*HEAD_BACK, as_ended, saga=saga)
