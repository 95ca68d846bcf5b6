"""Golden ledgers: what a release wrote, kept for every later one to read and to go on with.

    python -m tests.golden NAME

plays every scene of tests/goldenplay.py with real parts (Postgres, the payment server, shifts)
and writes tests/data/golden/NAME: `ledger.jsonl` (every row), the `tools.toml` it ran under, and
the exports it made. Run it when a release is made, with the release's name; never change one that
is there. tests/test_golden.py reads every folder it finds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
FOLDER = TESTS / "data" / "golden"
# Tools in a tools file are recorded with their address, which is under their digest: the target
# must be found there again. All of 127.0.0.0/8 is loopback, so nobody else is likely to be here.
HOST, PORT = "127.71.84.1", 8642
# Everything that a ledger is, in an order in which it can be inserted. No tokens, no sessions.
TABLES = (
    *("auth_group", "auth_user", "auth_user_groups", "ledger_agent", "ledger_toolversion"),
    *("ledger_saga", "ledger_step", "ledger_attempt", "ledger_idempotencyrecord"),
    *("ledger_effectclaim", "ledger_resourcehold", "ledger_outboxmessage", "ledger_freeze"),
    *("ledger_shift", "ledger_entry", "ledger_checkpoint", "ledger_checkpointhead"),
    *("ledger_export", "ledger_tombstone", "ledger_steptombstone", "ledger_claimtombstone"),
    *("ledger_restoration", "approvals_approval", "approvals_decision"),
    "approvals_review",
)


def tools_text() -> str:
    """The tools of the scenes, at the fixed address."""
    text = "".join((TESTS / "data" / name).read_text() for name in ("shop.toml", "golden.toml"))
    return text.replace("SHOP_URL", f"http://{HOST}:{PORT}")


def lines() -> Iterator[str]:
    """Every row, a line each."""
    from django.db import connection

    for table in TABLES:
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT jsonb_build_object('table', '{table}', 'row', to_jsonb(t))::text "
                f"FROM {table} t ORDER BY 1"
            )
            yield from (line for (line,) in cursor.fetchall())


def load(folder: Path) -> None:
    """Put a golden ledger into the empty database of this process.

    As an owner of the tables could: with their triggers asleep, because rows that were written
    by another release are no transitions of this one.
    """
    from django.db import connection, transaction

    with transaction.atomic(), connection.cursor() as cursor, asleep(cursor):
        rows: dict[str, list[Any]] = {}
        for line in (folder / "ledger.jsonl").read_text(encoding="utf-8").splitlines():
            told = json.loads(line)
            rows.setdefault(told["table"], []).append(told["row"])
        for table, found in rows.items():
            assert table in TABLES, f"{table} is not known any more"
            names = ", ".join(f'"{name}"' for name in found[0])
            cursor.execute(
                f"INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE SELECT {names} "
                f"FROM jsonb_populate_recordset(NULL::{table}, %s::jsonb) ON CONFLICT DO NOTHING",
                [json.dumps(found)],
            )
            if "id" in found[0] and isinstance(found[0]["id"], int):
                cursor.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table}"
                )


@contextmanager
def asleep(cursor: Any) -> Iterator[None]:
    """No trigger of ours fires meanwhile; those that slept already sleep on."""
    cursor.execute(
        "SELECT tgrelid::regclass::text, tgname FROM pg_trigger "
        "WHERE NOT tgisinternal AND tgenabled <> 'D' "
        "AND tgrelid::regclass::text ~ '^(ledger|approvals)_'"
    )
    found = cursor.fetchall()
    for table, name in found:
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER {name}")
    yield
    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # a foreign key must not wait for the ALTER
    for table, name in found:
        cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER {name}")


def make(name: str) -> None:
    """Play every scene in a console of its own, and keep what it wrote."""
    if not re.fullmatch(r"[\w.-]+", name):
        sys.exit(f"{name!r} is no name of a release")
    goal = FOLDER / name
    if goal.exists():
        sys.exit(f"{goal} is there: a golden ledger is never made anew")
    home = Path(tempfile.mkdtemp(prefix="saga-golden-"))
    tools = home / "tools.toml"
    tools.write_text(tools_text(), encoding="utf-8")
    os.environ |= {
        "SAGA_HOME": str(home / "home"),
        "SAGA_TOOLS": str(tools),
        "SAGA_APPS": "bench.noop",
        "DJANGO_SETTINGS_MODULE": "saga_console.settings",
        "SAGA_SHIFT_LINGER_S": "0.05",
        "SAGA_PROBE_APART_S": "0.2",
        "SAGA_LEASE_S": "1",
        "LOG_LEVEL": "WARNING",
    }
    try:
        _play(home, goal, tools)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _play(home: Path, goal: Path, tools: Path) -> None:
    import django

    django.setup()
    from saga_console.demo.faultproxy import FaultProxy
    from saga_console.servers import ensure_servers
    from tests.shop import AUTH, payment_server

    os.environ["SHOP_AUTH"] = AUTH
    uses = ensure_servers()
    exports = home / "exports"
    with payment_server() as target:
        host, port = target.removeprefix("http://").split(":")
        wire = FaultProxy((host, int(port)), PORT, host=HOST)
        wire.start()
        try:
            _act(target, wire, exports)
        finally:
            wire.stop()
        goal.mkdir(parents=True)
        for line in lines():
            with (goal / "ledger.jsonl").open("a", encoding="utf-8") as file:
                file.write(_without_secrets(line) + "\n")
        shutil.copy(tools, goal / "tools.toml")
        for path in exports.glob("*.jsonl"):
            shutil.copy(path, goal / f"export-{path.name}")
    for use in uses:
        use.release()


def _act(target: str, wire: Any, exports: Path) -> None:
    from django.core.management import call_command

    from ledger.services import tokens
    from ledger.services.verifying import verify
    from tests.goldenplay import Play, play_all
    from tests.shop import Shop

    call_command("migrate", interactive=False, verbosity=0)
    agent = tokens.bearer(tokens.issue_agent_token("shopper"))
    olivia, omar = (
        tokens.bearer(tokens.issue_operator_token(tokens.seat_operator(name, group="approvers")))
        for name in ("olivia", "omar")
    )
    play_all(Play(Shop(target, wire, agent), olivia, omar, exports), print)
    assert [str(fault) for fault in verify()] == []


def _without_secrets(line: str) -> str:
    """A password's hash is no part of a ledger, nor is a folder of whoever made this one."""
    line = re.sub(r'"password": "[^"]*"', '"password": "!"', line)
    return re.sub(r'"folder": "[^"]*"', '"folder": "/var/lib/saga/archive"', line)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make(sys.argv[1])
