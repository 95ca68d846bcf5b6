"""What a database and a Redis must be like before anything is entrusted to them."""

from __future__ import annotations

import psycopg
import redis

_POSTGRES_AT_LEAST = 15
_REDIS_AT_LEAST = 7
_ANSWER_WITHIN_S = 10


class UnfitPart(RuntimeError):
    """A part that would lose what it is given. One line that says what to change."""


def check_postgres(url: str) -> str:
    """Its version, such as `PostgreSQL 18.4`. Raises UnfitPart."""
    try:
        with psycopg.connect(url, connect_timeout=_ANSWER_WITHIN_S) as connection:
            number = connection.info.server_version
            shown = connection.info.parameter_status("server_version") or str(number)
            encoding = connection.info.parameter_status("server_encoding")
            durable = connection.execute("SELECT current_setting('fsync')::bool").fetchone()
    except psycopg.Error as error:
        raise UnfitPart(f"DATABASE_URL: no answer: {_one_line(error)}") from None
    if number // 10_000 < _POSTGRES_AT_LEAST:
        raise UnfitPart(
            f"DATABASE_URL: PostgreSQL {_POSTGRES_AT_LEAST} or newer is needed, this is {shown}"
        )
    if encoding != "UTF8":
        raise UnfitPart(
            f"DATABASE_URL: the database has the encoding {encoding}, and could not keep all that "
            "is sent to it: make one with ENCODING 'UTF8'"
        )
    if durable != (True,):
        raise UnfitPart("DATABASE_URL: fsync is off there, so a commit could be lost: turn it on")
    return f"PostgreSQL {shown.split()[0]}"


def check_redis(url: str) -> str:
    """Its version, such as `Valkey 9.1.2`. Raises UnfitPart.

    INFO is read, not CONFIG: hosted offers often forbid the latter.
    """
    try:
        with redis.Redis.from_url(url, socket_timeout=_ANSWER_WITHIN_S) as client:
            facts = client.info()
    except (redis.RedisError, ValueError) as error:
        raise UnfitPart(f"REDIS_URL: no answer: {_one_line(error)}") from None
    version = str(facts.get("redis_version", "0"))
    if int(version.partition(".")[0]) < _REDIS_AT_LEAST:
        raise UnfitPart(f"REDIS_URL: Redis {_REDIS_AT_LEAST} or newer is needed, this is {version}")
    # An eviction would drop a job's key while its queue still names it (rq#1955).
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise UnfitPart(
            f"REDIS_URL: maxmemory-policy is {policy}, which may drop queued work: "
            "set it to noeviction"
        )
    if "valkey_version" in facts:
        return f"Valkey {facts['valkey_version']}"
    return f"Redis {version}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
