"""The database's triggers and the tables in ledger/states.py are one and the same."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from psycopg.types.json import Jsonb

from approvals import doors as approvals_doors
from approvals import messagewalls as approvals_messagewalls
from approvals import walls as approvals_walls
from approvals import walls_who
from ledger import doors, drill_walls, messagewalls, walls, walls_frozen
from ledger.states import (
    ATTEMPT_TRANSITIONS,
    MESSAGE_TRANSITIONS,
    RECORD_TRANSITIONS,
    SAGA_ENDED,
    SAGA_TRANSITIONS,
    STEP_TRANSITIONS,
    AttemptState,
    MessageState,
    RecordState,
    SagaState,
    StepState,
)
from tests.proofcast import Agent, Console, address, step, wait_for_states

# In the order in which they are installed.
OWN: tuple[Any, ...] = (drill_walls, messagewalls, approvals_messagewalls)
SOURCES: tuple[Any, ...] = (walls, doors, approvals_walls, walls_who, approvals_doors, *OWN)
# Those of messages have a migration each, which this pins.
MESSAGES = {
    "ledger": "1666b3c1eea17890814f0596c0259f78babfe40c1d5f1d6376969c8786588ee7",
    "approvals": "6e5a0ba3826db1c301f00e21ce00021c345d4e2896de4ffef531fe46401950f8",
}
# The walls that the newest migration of each app installs. A change of a state table changes
# them: write a migration that runs INSTALL again, and put its name and the new digest here.
WALLS = {
    "ledger": walls.INSTALL + walls_frozen.FROZEN + doors.INSTALL + walls.SEAL,
    "approvals": approvals_walls.INSTALL
    + approvals_walls.DOOR
    + approvals_walls.LIMITS
    + walls_who.INSTALL
    + approvals_doors.INSTALL
    + approvals_walls.SEAL,
}
INSTALLED = {
    "ledger": (
        "0020_walls_of_columns",
        "68a70c2dfd098e32bea48b6775517f77b9949db5bb940ed9b043cd9dab3b95d8",
    ),
    "approvals": (
        "0010_walls_of_columns",
        "0bc1af8d85353ebe6bcbca216a496855709757ed1ace48ef6c35bb908efd7e44",
    ),
}

# The walls of drills came later, and stand apart.
DRILLS_INSTALLED = (
    "0005_drills",
    "1e3f1307c03df264cce1f30825f42dfec491f925d0cc81a9f606e26ba7089e15",
)


@dataclass(frozen=True)
class Table:
    """One table of states, and what else a row must say when its state is set by hand."""

    name: str
    states: type[StrEnum]
    transitions: Mapping[Any, frozenset[Any]]
    also: str
    starts: frozenset[str]
    fresh: Mapping[str, Any]


ANEW = "00000000-0000-7000-8000-000000000001"
ENDED = ", ".join(f"'{state}'" for state in sorted(SAGA_ENDED))
TABLES = {
    "step": Table(
        "ledger_step",
        StepState,
        STEP_TRANSITIONS,
        "executed_at = CASE WHEN %(state)s::text = 'committed' THEN coalesce(executed_at, now()) "
        # Before the change: whoever is being undone had an effect, and a stuck step none yet.
        "WHEN %(state)s::text LIKE 'comp%%' OR executed_at IS NOT NULL AND %(at_first)s IS FALSE "
        "THEN executed_at END",
        frozenset(walls.STEP_START),
        {"id": ANEW, "step_id": "anew", "position": 99, "executed_at": None},
    ),
    "saga": Table(
        "ledger_saga",
        SagaState,
        SAGA_TRANSITIONS,
        f"ended_at = CASE WHEN %(state)s::text IN ({ENDED}) THEN coalesce(ended_at, now()) END",
        frozenset({"running"}),
        {"id": ANEW, "task_id": "anew"},
    ),
    "record": Table(
        "ledger_idempotencyrecord",
        RecordState,
        RECORD_TRANSITIONS,
        "updated_at = now()",
        frozenset({"pending"}),
        {"key": "anew"},
    ),
    # Its step is committed by then, and takes no other attempt: that is tests/test_proof_walls.py.
    "attempt": Table(
        "ledger_attempt",
        AttemptState,
        ATTEMPT_TRANSITIONS,
        "ended_at = now()",
        frozenset(),
        {"id": ANEW, "fence": 99},
    ),
    "message": Table(
        "ledger_message",
        MessageState,
        MESSAGE_TRANSITIONS,
        "delivered_at = CASE WHEN %(state)s::text = 'delivered' THEN now() END",
        frozenset({"waiting"}),
        {"id": ANEW, "channel": "anew"},
    ),
}
PAIRS = {
    name: [(old, new) for old, new in product(table.states, repeat=2) if old != new]
    for name, table in TABLES.items()
}


A_MESSAGE = """
WITH notice AS (
    INSERT INTO ledger_notice (saga_id, about, kind, round, groups)
    VALUES (%s, %s, 'saga.stuck', 7, '[]') RETURNING id, about
)
INSERT INTO ledger_message (id, notice_id, about, channel, form, recipients, content, state, tries,
    last_error)
SELECT gen_random_uuid(), id, about, 'desk', 'mail', '[]', '{}', 'waiting', 0, '' FROM notice
"""


@pytest.fixture
def one_row_each(console: Console, prover: Agent) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """A superuser in a transaction over a ledger with at least one step; all of it undone."""
    saga = prover.open(step("one", address()))
    wait_for_states(prover, [saga], "committed")
    with console.database("postgres") as superuser, superuser.transaction(force_rollback=True):
        superuser.execute(A_MESSAGE, [saga, saga])
        # Deferred rules ask whether an entry tells of the change; here only the edge matters.
        yield superuser


@pytest.mark.parametrize("noun", TABLES)
def test_the_database_permits_exactly_the_edges_of_the_table(
    one_row_each: psycopg.Connection[dict[str, Any]], noun: str
) -> None:
    table, superuser = TABLES[noun], one_row_each
    key = "key" if noun == "record" else "id"
    row: Any = superuser.execute(f"SELECT {key} AS id FROM {table.name} LIMIT 1").fetchone()
    put = f"UPDATE {table.name} SET state = %(state)s::text, {table.also} WHERE {key} = %(id)s"
    permitted = set()
    for old, new in PAIRS[noun]:
        with superuser.transaction(force_rollback=True):
            superuser.execute("SET LOCAL session_replication_role = replica")
            superuser.execute(put, {"id": row["id"], "state": old, "at_first": True})
            superuser.execute("SET LOCAL session_replication_role = origin")
            if goes(superuser, put, {"id": row["id"], "state": new, "at_first": False}):
                permitted.add((old, new))
    edges = {(old, new) for old, targets in table.transitions.items() for new in targets}
    assert permitted == edges


def goes(superuser: psycopg.Connection[Any], put: str, values: Mapping[str, Any]) -> bool:
    """Whether the change is made; a refusal must be the wall's own."""
    try:
        assert superuser.execute(put, values).rowcount == 1
    except psycopg.Error as error:
        if error.sqlstate != walls.REFUSED:
            raise
        return False
    return True


@pytest.mark.parametrize("noun", TABLES)
def test_the_database_lets_a_row_begin_only_where_it_may(
    one_row_each: psycopg.Connection[dict[str, Any]], noun: str
) -> None:
    table, superuser = TABLES[noun], one_row_each
    copy = (
        f"INSERT INTO {table.name} SELECT (jsonb_populate_record(t, %(fresh)s)).* "
        f"FROM {table.name} t LIMIT 1"
    )
    begins = set()
    for state in table.states:
        fresh = table.fresh | {"state": state, "ended_at": "now" if state in SAGA_ENDED else None}
        with superuser.transaction(force_rollback=True):
            if goes(superuser, copy, {"fresh": Jsonb(fresh)}):
                begins.add(state)
    assert begins == table.starts


def definitions() -> dict[str, str]:
    """Every function and trigger of ours in this database, as Postgres itself writes it."""
    names = [name for source in SOURCES for name in source.FUNCTIONS]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE proname = ANY(%s) "
            "UNION ALL SELECT tgrelid::regclass || ' ' || tgname, pg_get_triggerdef(oid) "
            "FROM pg_trigger WHERE NOT tgisinternal",
            [names],
        )
        return dict(cursor.fetchall())


@pytest.mark.django_db
def test_a_migrated_database_holds_exactly_the_walls_of_the_source() -> None:
    """Functions and triggers, from an empty slate: nothing more, nothing less."""
    migrated = definitions()
    with connection.cursor() as cursor:
        for source in reversed(SOURCES):
            cursor.execute(source.REMOVE)
        assert definitions() == {}
        own = (*(source.INSTALL for source in OWN), doors.LATE_WORDS)
        for install in (*WALLS.values(), *own, walls.SEAL, approvals_walls.SEAL):
            cursor.execute(install)
    assert definitions() == migrated
    assert len(migrated) > sum(len(source.FUNCTIONS) for source in SOURCES)


def test_a_changed_wall_of_drills_comes_with_a_migration() -> None:
    digest = hashlib.sha256(drill_walls.INSTALL.encode()).hexdigest()
    assert ("0005_drills", digest) == DRILLS_INSTALLED


@pytest.mark.parametrize("app", WALLS)
def test_a_changed_wall_comes_with_a_migration(app: str) -> None:
    """A database that was migrated before the change would keep the old wall."""
    found = MigrationLoader(None).disk_migrations.items()
    texts = {name: inspect.getsource(type(made)) for (label, name), made in found if label == app}
    newest = max(name for name, text in texts.items() if "walls." in text)
    digest = hashlib.sha256(WALLS[app].encode()).hexdigest()
    assert (newest, digest) == INSTALLED[app]


@pytest.mark.parametrize(
    ("app", "source"), [("ledger", messagewalls), ("approvals", approvals_messagewalls)]
)
def test_a_changed_wall_of_messages_comes_with_a_migration(app: str, source: Any) -> None:
    assert hashlib.sha256(source.INSTALL.encode()).hexdigest() == MESSAGES[app]
