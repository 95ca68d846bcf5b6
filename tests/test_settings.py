"""Settings come from the environment, are all documented, and are refused in one line."""

from __future__ import annotations

import os
import re
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

from ledger.listening import listen
from saga_console.home import BASE_DIR
from tests.running import manage

READERS = "text|number|seconds|flag|words|modules|private_folder"
READ = re.compile(rf"""(?:env|environment)\.(?:{READERS})\(\s*"([A-Z_]+)\"""")


def test_every_variable_that_is_read_is_in_the_operating_guide() -> None:
    read: set[str] = set()
    for app in ("saga_console", "approvals", "ledger"):
        for path in (BASE_DIR / app).rglob("*.py"):
            read |= set(READ.findall(path.read_text(encoding="utf-8")))
    guide = (BASE_DIR / "docs" / "operating.md").read_text(encoding="utf-8")
    assert "DATABASE_URL" in read
    assert {name for name in read if f"`{name}`" not in guide} == set()


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("DATABASE_URL", "mysql://localhost/saga", "postgresql://USER:PASSWORD@HOST:PORT/NAME"),
        ("DATABASE_URL", "postgresql://localhost/?nonsense=1", "nonsense"),
        ("SAGA_LEASE_S", "soon", "seconds are needed, not 'soon'"),
        ("SAGA_SHIFT_THREADS", "0", "must be 1 or more, not 0"),
        ("SAGA_APPS", "nobody.here", "there is no module 'nobody.here'"),
        ("SECURE", "maybe", "use 1 or 0, not 'maybe'"),
        ("SAGA_FAULTS", "/nobody/made/this", "No such file or directory"),
        ("SAGA_FAULTS", "/tmp", "that only this user can write into"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    tmp_path: Path, name: str, value: str, problem: str
) -> None:
    refused = manage(tmp_path / "home", "check", **{name: value})
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"{name}: ")
    assert problem in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_connection_is_kept_looked_at_and_has_its_limits() -> None:
    database = settings.DATABASES["default"]
    assert database["CONN_MAX_AGE"] == 0
    assert database["OPTIONS"]["pool"]["max_size"] == 64
    assert database["ENGINE"] == "saga_console.postgres"
    options = database["OPTIONS"]["options"]
    for limit in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
        assert f"-c {limit}=" in options


@pytest.mark.django_db
def test_the_server_really_applies_them() -> None:
    from django.db import connection

    names = ["application_name", "statement_timeout", "lock_timeout", "transaction_isolation"]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join('current_setting(%s)' for _ in names)}", names)
        assert cursor.fetchone() == ("saga-console", "15s", "5s", "read committed")


@pytest.mark.django_db
def test_a_commit_is_on_the_disk_whatever_the_server_says() -> None:
    """A server that acknowledges early forgets an intent whose call has gone out."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as owner:
        owner.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = off")
        try:
            with closing(listen("nothing")) as fresh:
                assert fresh.execute("SHOW synchronous_commit").fetchone() == ("on",)
        finally:
            owner.execute("ALTER ROLE CURRENT_USER RESET synchronous_commit")


@pytest.mark.parametrize(
    "rule", ["synchronous_commit=on", r"default_transaction_isolation=read\ committed"]
)
def test_the_url_cannot_choose_what_the_engine_stands_on(rule: str) -> None:
    from saga_console.settings import _database

    name = rule.partition("=")[0]
    database = _database(f"postgresql://u@h/saga?options=-c%20{name}%3Dother%20-c%20work_mem%3D9MB")
    given = database["OPTIONS"]["options"]
    assert given.rindex(f"-c {rule}") > given.index(f"-c {name}=other")
    assert "-c work_mem=9MB" in given


def test_parameters_in_the_url_reach_the_driver() -> None:
    from saga_console.settings import _database

    url = "postgresql://u:p%40ss@db.example:6543/saga?sslmode=require"
    database = _database(url)
    assert (database["HOST"], database["PORT"], database["PASSWORD"]) == (
        "db.example",
        "6543",
        "p@ss",
    )
    assert database["OPTIONS"]["sslmode"] == "require"
    assert conninfo_to_dict(url)["sslmode"] == "require"


def test_there_is_one_queue_and_its_jobs_are_json() -> None:
    assert list(settings.RQ_QUEUES) == ["shifts"]
    assert settings.RQ_QUEUES["shifts"]["SERIALIZER"] == "rq.serializers.JSONSerializer"
    assert settings.RQ["COMMIT_MODE"] == "auto"
