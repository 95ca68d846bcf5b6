"""A database or Redis that would lose what it is given is refused before anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from psycopg.conninfo import make_conninfo

from saga_console.parts import UnfitPart, check_postgres, check_redis
from tests.running import free_port, manage


def test_the_embedded_parts_are_fit(servers: None) -> None:
    assert check_postgres(os.environ["DATABASE_URL"]).startswith("PostgreSQL ")
    assert check_redis(os.environ["REDIS_URL"])


def test_c33_a_redis_that_may_evict_keys_is_refused(
    servers: None, redis_client: redis.Redis, tmp_path: Path
) -> None:
    redis_client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(UnfitPart, match=r"maxmemory-policy is allkeys-lru.*noeviction"):
            check_redis(os.environ["REDIS_URL"])
        urls = {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL")}
        refused = manage(tmp_path / "home", "up", "--port", str(free_port()), **urls)
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")
    assert refused.returncode == 1
    assert "set it to noeviction" in refused.stderr


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def in_another_encoding(servers: None, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database whose encoding is not UTF8."""
    url, name = os.environ["DATABASE_URL"], f"in_{request.param.lower()}"
    how = f"ENCODING '{request.param}' LOCALE_PROVIDER libc LOCALE 'C' TEMPLATE template0"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} {how}")
        try:
            yield make_conninfo(url, dbname=name)
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_database_that_cannot_keep_every_character_is_refused(in_another_encoding: str) -> None:
    with pytest.raises(UnfitPart, match=r"has the encoding (LATIN1|SQL_ASCII).*ENCODING 'UTF8'"):
        check_postgres(in_another_encoding)


@pytest.mark.parametrize("command", ["worker", "relay", "prepare_console"])
def test_who_is_started_alone_looks_at_the_database_too(
    servers: None, tmp_path: Path, command: str
) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing"
    given = {"DATABASE_URL": nowhere, "REDIS_URL": os.environ["REDIS_URL"]}
    refused = manage(tmp_path / "home", command, **given)
    assert refused.returncode == 1
    assert refused.stderr.startswith("DATABASE_URL: no answer")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "unix:///nowhere", "nonsense"])
def test_a_redis_that_does_not_answer_is_named(url: str) -> None:
    with pytest.raises(UnfitPart, match="REDIS_URL: no answer"):
        check_redis(url)


def test_a_database_that_does_not_answer_is_named() -> None:
    with pytest.raises(UnfitPart, match="DATABASE_URL: no answer"):
        check_postgres("postgresql://nobody@127.0.0.1:1/nothing")
