"""Case C38 over TLS: who listens, who is pooled and who was forked, all against a certificate."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from django.db import connections

from ledger import listening
from saga_console.home import BASE_DIR, Home
from saga_console.servers import ServerUse
from saga_console.settings import _database
from tests.furnished import furnished
from tests.proofcast import Agent, Console, address, step, wait_for_states
from tests.running import clean_env, eventually
from tests.tlswire import TlsWire


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsWire]:
    """A Postgres of its own behind TLS."""
    folder = tmp_path_factory.mktemp("tls")
    home = Home(furnished(folder / "database"))
    home.create()
    use = ServerUse(home, "postgres")
    use.acquire()
    try:
        with TlsWire(str(home.sockets / ".s.PGSQL.5432"), folder) as wire:
            yield wire
    finally:
        use.release()


def url(wire: TlsWire, ca: Path | None = None, mode: str = "verify-full") -> str:
    root = quote(str(ca or wire.ca), safe="")
    return f"postgresql://saga@localhost:{wire.port}/saga?sslmode={mode}&sslrootcert={root}"


@contextmanager
def connected_by(given: str) -> Iterator[None]:
    """Django's default connection made from this DATABASE_URL."""
    before = connections["default"]
    settings = before.settings_dict | _database(given)
    settings["OPTIONS"] = {k: v for k, v in settings["OPTIONS"].items() if k != "pool"}
    connections["default"] = type(before)(settings, "default")
    try:
        yield
    finally:
        connections["default"].close()
        connections["default"] = before


def test_a_listener_uses_every_parameter_of_the_url(wire: TlsWire) -> None:
    """It is none of Django's connections, and must be no less careful than they are."""
    with connected_by(url(wire)), listening.listen("ledger_outbox") as ears:
        given = ears.info.get_parameters()
        assert (given["sslmode"], given["sslrootcert"]) == ("verify-full", str(wire.ca))
        assert ears.pgconn.ssl_in_use
        assert "statement_timeout" in given["options"]


def test_a_listener_does_not_talk_to_a_server_that_nobody_vouches_for(
    wire: TlsWire, tmp_path: Path
) -> None:
    stranger = TlsWire("/nowhere", tmp_path)
    refused = pytest.raises(psycopg.OperationalError, match="certificate verify failed")
    with connected_by(url(wire, ca=stranger.ca)), refused:
        listening.listen("ledger_outbox")


def test_the_wire_turns_away_who_does_not_ask_for_tls(wire: TlsWire) -> None:
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url(wire, mode="disable"), connect_timeout=5)
    assert wire.refused == 1
    wire.refused = 0


@pytest.fixture(scope="module")
def secure(
    wire: TlsWire, stripe: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Console]:
    """A whole console whose every way to Postgres is encrypted and verified."""
    home = tmp_path_factory.mktemp("secure") / "home"
    running = Console(home, stripe, DATABASE_URL=url(wire))
    try:
        with running.up:
            yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def agent(secure: Console) -> Agent:
    return secure.agent()


@pytest.fixture
def forker(secure: Console) -> Iterator[subprocess.Popen[bytes]]:
    """RQ's own forking worker, whose parent has a TLS connection in its pool when it forks."""
    env = clean_env(secure.home, **secure.env, REDIS_URL=Home(secure.home).redis_url)
    with (secure.home.parent / "forker.log").open("wb") as log:
        argv = [sys.executable, "-m", "tests.crash.forker"]
        worker = subprocess.Popen(argv, cwd=BASE_DIR, env=env, stdout=log, stderr=log)
    try:
        yield worker
    finally:
        worker.send_signal(signal.SIGCONT)
        worker.terminate()
        worker.wait(30)


def test_every_process_works_over_tls_and_none_without(
    secure: Console, agent: Agent, wire: TlsWire
) -> None:
    saga = agent.open(step("one", address()), step("two", address()))
    wait_for_states(agent, [saga], "committed")
    waited = agent.client.post(
        f"sagas/{saga}/steps", json=step("three", address()), headers={"Prefer": "wait=20"}
    )
    assert waited.status_code == 200, waited.text
    # A relay listens only while no shift does.
    eventually(
        lambda: all(listeners(secure).get(f"saga-{who}") for who in ("web", "relay")),
        "web and relay listen",
    )
    listens = listeners(secure)
    assert any(who.startswith("saga-worker") for who in listens)
    assert wire.encrypted > len(listens)
    assert wire.refused == 0


def listeners(secure: Console) -> dict[str, bool]:
    """Who has a session, by application name, and whether one of them listens."""
    with secure.database() as database:
        found = database.execute(
            "SELECT application_name AS who, bool_or(query LIKE 'LISTEN%') AS listens "
            "FROM pg_stat_activity WHERE datname = 'saga' AND pid <> pg_backend_pid() GROUP BY 1"
        ).fetchall()
    return {row["who"]: row["listens"] for row in found}


def test_a_forked_horse_never_uses_the_tls_socket_of_its_parent(
    secure: Console, agent: Agent, forker: subprocess.Popen[bytes], wire: TlsWire
) -> None:
    """Case C38: nor does the parent after it has cleaned up behind a horse that was killed. Two
    processes on one TLS socket break its records, and every job after that fails within ms."""
    killed = kill_a_horse_at_work(secure, agent, forker)
    before = horses(secure)
    deadline = time.monotonic() + 60
    while len(horses(secure) - before) < 3:
        assert time.monotonic() < deadline, "the forking worker works no more"
        email = address()
        saga = agent.open(step("one", email))
        wait_for_states(agent, [saga], "committed", within_s=20)
        assert agent.kinds(saga)["attempt.started"] == 1
        assert len(secure.customers(email)) == 1
        time.sleep(0.6)  # longer than a shift lingers: the next step is another shift's
    saga, email = killed
    wait_for_states(agent, [saga], "committed", within_s=30)
    assert len(secure.customers(email)) == 1
    assert forker.poll() is None
    assert wire.refused == 0
    secure.assert_verifies()


def horses(secure: Console) -> set[int]:
    """Who has begun a shift and is no worker of the supervisor's: each horse has one job."""
    return set(secure.shifts_by_worker()) - set(secure.children("worker").values())


def kill_a_horse_at_work(
    secure: Console, agent: Agent, forker: subprocess.Popen[bytes]
) -> tuple[str, str]:
    """The saga and the address of the call that was out when its horse was killed."""
    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline, "no horse has taken a step"
        email = address()
        # RQ wakes the worker that has waited longest, so they take turns.
        eventually(lambda: not secure.shifts_at_work(), "every shift has ended")
        with secure.wire as out:
            saga = agent.open(step("one", email))
            eventually(lambda: out.held > 0, "the call is out")
            pid = at_work_on(secure, saga)
            if pid in secure.children("worker").values():
                continue
            assert pid != forker.pid
            os.kill(pid, signal.SIGKILL)
            return saga, email


def at_work_on(secure: Console, saga: str) -> int:
    with secure.database() as database:
        found: Any = database.execute(
            "SELECT h.worker FROM ledger_attempt a JOIN ledger_shift h ON h.id = a.shift_id "
            "JOIN ledger_step s ON s.id = a.step_id WHERE s.saga_id = %s AND a.state = 'started'",
            [saga],
        ).fetchone()
    return int(found["worker"].rpartition(":")[2])
