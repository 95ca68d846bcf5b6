"""The two narrow doors in the walls: how an ended saga leaves, and how it comes back.

Both open by a row that is told what is about to happen, and are shut again by the COMMIT:

- **Leaving.** A tombstone can be made of an ended saga only, with nothing of it open. The
  database fills it in from the rows themselves: answers, claims, the seal of the chain, and it
  compares the writer's digest with one of its own over every row that leaves. From then on,
  in that transaction, the walls let the rows of exactly this saga be deleted; the COMMIT is
  refused unless all of them are gone.
- **Coming back.** A restoration names the tombstone. From then on, in that transaction,
  entries of this saga keep the numbers, times and hashes that they had, and each must fit the
  one before; the COMMIT is refused unless the chain has reached the seal.

So a saga is either here or below its tombstone, and never neither: psql included. The walls
themselves (ledger/walls.py) ask `ledger_is_leaving` and `ledger_is_returning`.
"""

from __future__ import annotations

from ledger.doors.exported import ANSWERS, LINES
from ledger.doors.leaving import LEAVING, OPEN, SEALED
from ledger.doors.returning import NOT_ANEW, RETURNING
from ledger.walls_sql import REFUSED, append_only

__all__ = ["FUNCTIONS", "INSTALL", "LATE_WORDS", "OPEN", "REMOVE", "SEALED"]

KEPT = (
    "".join(
        append_only(table)
        for table in (
            "ledger_tombstone",
            "ledger_claimtombstone",
            "ledger_restoration",
        )
    )
    + f"""
CREATE OR REPLACE FUNCTION ledger_export_kept() RETURNS trigger LANGUAGE plpgsql AS $door$
BEGIN
    IF TG_OP <> 'UPDATE' OR OLD.finished_at IS NOT NULL
        OR to_jsonb(OLD) - 'finished_at' <> to_jsonb(NEW) - 'finished_at' THEN
        RAISE EXCEPTION 'what is known of an export is kept: % is refused', TG_OP
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $door$;
CREATE OR REPLACE TRIGGER ledger_export_no_change BEFORE UPDATE OR DELETE ON ledger_export
    FOR EACH ROW EXECUTE FUNCTION ledger_export_kept();
CREATE OR REPLACE TRIGGER ledger_export_no_truncate BEFORE TRUNCATE ON ledger_export
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_export_kept();
"""
)

# Apart from the others, which stand since before its table.
LATE_WORDS = append_only("ledger_lateword")
INSTALL = LINES + ANSWERS + RETURNING + LEAVING + NOT_ANEW + KEPT
FUNCTIONS = {
    "ledger_saga_lines": "uuid",
    "ledger_saga_digest": "uuid",
    "ledger_saga_answers": "uuid",
    "ledger_is_leaving": "uuid",
    "ledger_is_returning": "uuid",
    "ledger_tombstone_true": "",
    "ledger_tombstone_left": "",
    "ledger_steptombstone_true": "",
    "ledger_claimtombstone_true": "",
    "ledger_saga_not_anew": "",
    "ledger_effectclaim_not_anew": "",
    "ledger_restoration_true": "",
    "ledger_restoration_whole": "",
    "ledger_export_kept": "",
}
REMOVE = "\n".join(
    f"DROP FUNCTION IF EXISTS {name}({takes}) CASCADE;" for name, takes in FUNCTIONS.items()
)
