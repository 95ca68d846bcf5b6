"""What the texts of all walls share."""

from __future__ import annotations

from collections.abc import Iterable

# SQLSTATE of a refused change: class P0 is PL/pgSQL's own, so no driver retries it.
REFUSED = "P0409"


def quoted(states: Iterable[str]) -> str:
    """States as a list of SQL literals."""
    return ", ".join(f"'{state}'" for state in sorted(states))


def append_only(table: str) -> str:
    """The triggers that refuse every change of a table's rows."""
    return f"""
CREATE OR REPLACE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION ledger_append_only();
CREATE OR REPLACE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_append_only();
"""
