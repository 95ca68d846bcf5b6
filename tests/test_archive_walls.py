"""The doors are narrow: what the application's own role cannot do around an archive."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, transaction

from ledger import storage
from ledger.models import Export, Saga, Step, Tombstone
from ledger.models.fields import uuid7
from ledger.services import archiving, closing
from ledger.services.restoring import restore_file
from ledger.services.verifying import verify
from ledger.walls import KEEPS
from ledger.walls_sql import REFUSED
from tests.archivecast import archive_all, ended, undone
from tests.shop import Shop, assert_verifies, customer, work_saga

TABLES = ("ledger_entry", *KEEPS, "approvals_approval", "approvals_decision")


def refused(*statements: str, **values: Any) -> str:
    """Why the database refuses the last of these, or the COMMIT after it."""

    def try_all() -> None:
        with transaction.atomic():
            for statement in statements:
                storage.execute(statement, values)

    with pytest.raises(DatabaseError) as caught:
        try_all()
    assert storage.sqlstate(caught.value) in (REFUSED, "40001", "23503"), caught.value
    return str(caught.value)


def export() -> UUID:
    """An export that somebody claims to have made."""
    made = Export.objects.create(
        name=f"claimed {uuid7()}",
        folder="/",
        sha256="0" * 64,
        size=1,
        sagas=1,
        entries=1,
        made_by="eve",
    )
    return UUID(str(made.pk))


DIGEST = "(SELECT ledger_saga_digest(%(saga)s))"
# Nothing was asked about these sagas.
OF_NOTHING = f"'{hashlib.sha256().hexdigest()}'"


def bury(sha256: str = DIGEST, gate_sha256: str = OF_NOTHING) -> str:
    return (
        "INSERT INTO ledger_tombstone (id, saga_id, export_id, sha256, gate_sha256, actor) "
        f"VALUES (%(id)s, %(saga)s, %(export)s, {sha256}, {gate_sha256}, 'eve')"
    )


def values(saga: UUID) -> dict[str, Any]:
    return {"saga": saga, "export": export(), "id": uuid7()}


@pytest.mark.parametrize("table", TABLES)
def test_no_row_of_an_ended_saga_can_just_be_deleted(shop: Shop, table: str) -> None:
    saga = ended(shop)
    key = {"ledger_saga": "id", "ledger_entry": "saga_id", "ledger_step": "saga_id"}.get(table)
    where = f"WHERE {key} = %(saga)s" if key else ""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table} {where}", {"saga": saga})
        (count,) = cursor.fetchone()
    if count:
        assert "is refused" in refused(f"DELETE FROM {table} {where}", saga=saga)
    assert_verifies()


def test_a_tombstone_without_leaving_is_refused_at_the_commit(shop: Shop) -> None:
    saga = ended(shop)
    assert "is still here" in refused(bury(), **values(saga))


@pytest.mark.parametrize("left_out", range(len(archiving.LEAVE)))
def test_a_saga_leaves_whole_or_not_at_all(shop: Shop, left_out: int) -> None:
    saga = ended(shop)
    statements = [text for n, text in enumerate(archiving.LEAVE) if n != left_out]
    spent = any(table in archiving.LEAVE[left_out] for table in ("resourcehold", "effectclaim"))
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ledger_outboxmessage")
        (messages,) = cursor.fetchone()
    if spent or ("outbox" in archiving.LEAVE[left_out] and not messages):
        return  # this saga has no such rows
    refused(bury(), *statements, **values(saga))
    assert Saga.objects.filter(pk=saga).exists()
    assert_verifies()


def test_a_saga_that_has_not_ended_cannot_be_buried(shop: Shop) -> None:
    saga = shop.open(customer("one", "ada@example.com"))
    assert "it has not ended" in refused(bury(), *archiving.LEAVE, **values(saga))


def test_a_tombstone_must_have_the_digest_of_what_leaves(shop: Shop) -> None:
    saga = ended(shop)
    said = refused(bury("repeat('0', 64)"), *archiving.LEAVE, **values(saga))
    assert "not what its export holds" in said
    said = refused(bury(gate_sha256="''"), *archiving.LEAVE, **values(saga))
    assert "asked and decided about it is not what its export holds" in said


def test_what_a_writer_says_of_a_saga_is_overwritten_by_what_is_so(shop: Shop) -> None:
    """A tombstone is filled in from the rows: nobody can bury a saga under another story."""
    saga = ended(shop)
    lie = (
        "INSERT INTO ledger_tombstone (id, saga_id, export_id, sha256, gate_sha256, actor, "
        "task_id, name, state, seq, payload, hash) VALUES (%(id)s, %(saga)s, %(export)s, "
        f"{DIGEST}, {OF_NOTHING}, 'eve', 'x', 'y', 'compensated', 99, '{{}}', 'h')"
    )
    with transaction.atomic():
        for statement in (lie, *archiving.LEAVE):
            storage.execute(statement, values(saga) if statement is lie else {"saga": saga})
    found = Tombstone.objects.get()
    assert (found.state, found.name) == ("completed", "Shopping")
    assert_verifies()


def test_another_saga_does_not_leave_by_the_door(shop: Shop) -> None:
    saga, other = ended(shop), ended(shop, email="bob@example.com")
    steal = f"DELETE FROM ledger_entry WHERE saga_id = '{other}'"
    assert "append-only" in refused(bury(), steal, *archiving.LEAVE, **values(saga))
    steal = (
        "DELETE FROM ledger_idempotencyrecord WHERE step_id IN "
        f"(SELECT id FROM ledger_step WHERE saga_id = '{other}')"
    )
    assert "keeps its rows" in refused(bury(), steal, *archiving.LEAVE, **values(saga))


FORGERIES: dict[str, str] = {
    "change a tombstone": "UPDATE ledger_tombstone SET name = 'x'",
    "delete a tombstone": "DELETE FROM ledger_tombstone",
    "change an answer": "UPDATE ledger_steptombstone SET result_text = '{}'",
    "delete an answer": "DELETE FROM ledger_steptombstone",
    "forget an effect": "DELETE FROM ledger_claimtombstone",
    "change an export": "UPDATE ledger_export SET sha256 = repeat('0', 64)",
    "open an export again": "UPDATE ledger_export SET finished_at = NULL",
    "delete an export": "DELETE FROM ledger_export",
    "delete a restoration": "DELETE FROM ledger_restoration",
    "bury a step that nobody knows": (
        "INSERT INTO ledger_steptombstone (id) VALUES (gen_random_uuid())"
    ),
    "claim an effect that nobody has": (
        "INSERT INTO ledger_claimtombstone (id) VALUES (gen_random_uuid())"
    ),
    "restore what is here": (
        "INSERT INTO ledger_restoration (id, saga_id, seq, actor, at) "
        "SELECT gen_random_uuid(), id, 1, 'eve', now() FROM ledger_saga LIMIT 1"
    ),
    "open the archived task anew": (
        "INSERT INTO ledger_saga (id, agent_id, task_id, name, opened_digest, metadata, webhook, "
        "state, fence, step_count, retry_budget, retries_used, started_by, ended_backward_why, "
        "head_seq, head_hash, created_at, updated_at) SELECT gen_random_uuid(), agent_id, task_id, "
        "'x', '', '{}', '', 'running', 0, 0, 0, 0, '', '', 0, '', now(), now() "
        "FROM ledger_tombstone LIMIT 1"
    ),
    "claim the archived effect anew": (
        "INSERT INTO ledger_effectclaim (id, key, skeleton, step_id, claimed_at) "
        "SELECT gen_random_uuid(), c.key, '', s.id, now() FROM ledger_claimtombstone c, "
        "ledger_step s LIMIT 1"
    ),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_the_applications_own_role_is_refused(shop: Shop, tmp_path: Path, what: str) -> None:
    saga = shop.open()
    shop.propose(saga, "one", "crm.exclusive", args={"email": "ada@example.com"})
    closing.complete(saga, bearer=shop.bearer)
    work_saga(saga, "completed")
    path = archive_all(tmp_path).path
    assert next(restore_file(path)).why_not == ""
    archive_all(tmp_path)
    shop.open(customer("here", "bob@example.com"))
    refused(FORGERIES[what])
    assert_verifies()


COMES_BACK = "INSERT INTO ledger_restoration (id, saga_id, actor) VALUES (%(id)s, %(saga)s, 'eve')"
INVENTED = (
    "INSERT INTO ledger_saga (id, agent_id, task_id, name, opened_digest, metadata, webhook, "
    "state, fence, step_count, retry_budget, retries_used, started_by, ended_backward_why, "
    "head_seq, head_hash, created_at, updated_at, ended_at) SELECT %(saga)s, agent_id, task_id, "
    "'x', '', '{}', '', 'completed', 0, 0, 0, 0, '', '', seq, hash, now(), now(), now() "
    "FROM ledger_tombstone WHERE saga_id = %(saga)s"
)
INVENTED_ENTRY = (
    "INSERT INTO ledger_entry (saga_id, seq, kind, step_id, at, actor, payload, state, prev_hash, "
    "hash) VALUES (%(saga)s, 1, 'saga.opened', '', now(), 'eve', '{\"state\":\"completed\"}', "
    "'completed', repeat('0', 64), {})"
)


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        ((COMES_BACK,), "did not come back as it left"),
        ((COMES_BACK, INVENTED), "was archived"),
        (
            (
                COMES_BACK,
                INVENTED.replace("seq, hash,", "0, repeat('0', 64),"),
                INVENTED_ENTRY.replace("{}", "repeat('1', 64)"),
            ),
            "does not fit its chain",
        ),
        ((INVENTED,), "cannot begin as completed"),
    ],
)
def test_nothing_comes_back_but_what_left(
    shop: Shop, tmp_path: Path, statements: tuple[str, ...], why: str
) -> None:
    saga = ended(shop)
    archive_all(tmp_path)
    assert why in refused(*statements, id=uuid7(), saga=saga)
    assert Saga.objects.count() == 0
    assert_verifies()


def tamper(table: str, change: str) -> None:
    """What a superuser could do."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER {table}_no_change")
        cursor.execute(change)
        cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER {table}_no_change")


@pytest.mark.parametrize(
    ("table", "change", "why"),
    [
        ("ledger_tombstone", "SET name = 'x'", "another name than its seal"),
        ("ledger_tombstone", "SET state = 'compensated'", "another outcome than its seal"),
        ("ledger_tombstone", "SET gate_sha256 = ''", "another gate_sha256 than its seal"),
        ("ledger_tombstone", "SET actor = 'eve'", "does not match its hash"),
        ("ledger_tombstone", "SET payload = payload || ' '", "does not match its hash"),
        ("ledger_steptombstone", "SET result_text = '{}'", "another answers than its seal"),
        ("ledger_steptombstone", "SET state = 'failed'", "another answers than its seal"),
        ("ledger_steptombstone", "SET fingerprint = repeat('0', 64)", "another answers"),
    ],
)
def test_a_forged_tombstone_is_found_by_verify_ledger(
    shop: Shop, tmp_path: Path, table: str, change: str, why: str
) -> None:
    saga = ended(shop)
    archive_all(tmp_path)
    tamper(table, f"UPDATE {table} {change}")
    (fault, *_) = [str(fault) for fault in verify()]
    assert fault.startswith(f"saga {saga}")
    assert why in fault


@pytest.mark.parametrize("table", ["ledger_tombstone", "ledger_steptombstone"])
def test_a_tombstone_that_is_taken_away_is_missed(shop: Shop, tmp_path: Path, table: str) -> None:
    """The checkpoints remember the seal, and the seal the steps."""
    saga = undone(shop)
    archive_all(tmp_path)
    tamper(table, f"DELETE FROM {table}")
    assert any(str(saga) in str(fault) for fault in verify())


def test_a_seal_is_anchored_by_a_checkpoint(shop: Shop, tmp_path: Path) -> None:
    saga = ended(shop)
    archive_all(tmp_path)
    seal = Tombstone.objects.get()
    assert storage.row(
        "SELECT 1 FROM ledger_checkpointhead WHERE saga_id = %s AND seq = %s AND hash = %s",
        [saga, seal.seq, seal.hash],
    )
    assert Step.objects.count() == 0
