"""A database or Redis that would lose what it is given is refused before anything starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import redis

from saga_console.parts import UnfitPart, check_postgres, check_redis
from tests.running import manage


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
        refused = manage(tmp_path / "home", "up", "--port", "0", **urls)
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")
    assert refused.returncode == 1
    assert "set it to noeviction" in refused.stderr


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "unix:///nowhere", "nonsense"])
def test_a_redis_that_does_not_answer_is_named(url: str) -> None:
    with pytest.raises(UnfitPart, match="REDIS_URL: no answer"):
        check_redis(url)


def test_a_database_that_does_not_answer_is_named() -> None:
    with pytest.raises(UnfitPart, match="DATABASE_URL: no answer"):
        check_postgres("postgresql://nobody@127.0.0.1:1/nothing")
