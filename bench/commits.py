"""What the machine can do: commits of one updated row in the very Postgres of the console."""

from __future__ import annotations

import time
from functools import partial

import psycopg

from bench.crowd import Took, together

_UPDATE = "UPDATE bench_commits SET count = count + 1 WHERE caller = %s"


def commits(database_url: str, connections: int, seconds: float) -> Took:
    """Commit as often as possible; a row for each connection, so that none waits for another."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS bench_commits")
        connection.execute("CREATE TABLE bench_commits (caller int PRIMARY KEY, count bigint)")
        insert = "INSERT INTO bench_commits SELECT n, 0 FROM generate_series(0, %s) AS n"
        connection.execute(insert, [connections - 1])
    try:
        return together(partial(_commit_until, database_url), connections, seconds)
    finally:
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("DROP TABLE bench_commits")


def _commit_until(database_url: str, number: int, stop_at: float) -> int:
    done = 0
    with psycopg.connect(database_url, autocommit=True) as connection:
        while time.monotonic() < stop_at:
            connection.execute(_UPDATE, [number], prepare=True)
            done += 1
    return done
