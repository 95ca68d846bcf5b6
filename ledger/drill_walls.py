"""What the database itself refuses about drills, whoever connects.

Beside ledger/walls.py, whose functions `ledger_append_only` and `ledger_outbox_wake` it uses:
those walls were installed before there were drills. tests/test_drill_walls.py proves that a
database holds exactly this text.
"""

from __future__ import annotations

from ledger.legs import ENDS, Leg

_TABLES = ("ledger_drill", "ledger_drillleg")
_ENDS = ", ".join(f"'{end}'" for end in sorted(ENDS))

APPEND_ONLY = "".join(
    f"""
CREATE OR REPLACE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION ledger_append_only();
CREATE OR REPLACE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_append_only();
"""
    for table in _TABLES
)

# The drill's row is the lock: a worker that comes back late and the sweep that has given it up
# meet here, and the second sees what the first has written.
FITS = f"""
CREATE OR REPLACE FUNCTION ledger_drillleg_fits() RETURNS trigger LANGUAGE plpgsql AS $wall$
DECLARE known text[];
BEGIN
    PERFORM 1 FROM ledger_drill WHERE id = NEW.drill_id FOR UPDATE;
    SELECT coalesce(array_agg(leg::text), '{{}}') INTO known
        FROM ledger_drillleg WHERE drill_id = NEW.drill_id;
    IF '{Leg.END}' = ANY(known) THEN
        RAISE EXCEPTION 'drill % has ended', NEW.drill_id USING ERRCODE = 'P0409';
    END IF;
    IF (NEW.leg = '{Leg.START}') <> (cardinality(known) = 0) THEN
        RAISE EXCEPTION 'a drill begins with its start, once' USING ERRCODE = 'P0409';
    END IF;
    IF NEW.leg = '{Leg.END}' AND NEW.outcome NOT IN ({_ENDS}) THEN
        RAISE EXCEPTION 'a drill cannot end as %', NEW.outcome USING ERRCODE = 'P0409';
    END IF;
    NEW.at := clock_timestamp();
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_drillleg_fits BEFORE INSERT ON ledger_drillleg
    FOR EACH ROW EXECUTE FUNCTION ledger_drillleg_fits();
"""

# The doorbell of all work: relays and shifts hear it.
WAKE = """
CREATE OR REPLACE TRIGGER ledger_drill_wake AFTER INSERT ON ledger_drill
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_outbox_wake();
"""

INSTALL = APPEND_ONLY + FITS + WAKE
FUNCTIONS = ("ledger_drillleg_fits",)
REMOVE = "".join(
    f"DROP TRIGGER IF EXISTS {table}_{rule} ON {table};\n"
    for table in _TABLES
    for rule in ("no_change", "no_truncate")
) + (
    "DROP TRIGGER IF EXISTS ledger_drill_wake ON ledger_drill;\n"
    "DROP FUNCTION IF EXISTS ledger_drillleg_fits() CASCADE;\n"
)
