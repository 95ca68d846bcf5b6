"""Killed, stopped, emptied, restarted, in the middle of real work (crash-points P7 to P16).

After each: every step has ended by itself, the target has exactly one effect for each
committed step, and the ledger verifies.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from typing import Any

from tests.proofcast import Agent, Console, address, step, wait_for_states
from tests.running import eventually

SAGAS, STEPS = 60, 5
# The tool's timeout and five seconds: how long nobody may ask what a lost worker was doing.
LEASE_S = 7.0
# From a worker's death to the end of its step: the lease, two looks apart, a busy machine.
REDRIVEN_WITHIN_S = LEASE_S + 13.0


class Load:
    """Sagas of a few steps each, submitted from a thread of its own while the proof goes on."""

    def __init__(self, console: Console, prover: Agent, sagas: int, steps: int) -> None:
        self.console = console
        self.prover = prover
        self.domain = f"@{address().partition('@')[0]}.example"
        self.sagas, self.steps = sagas, steps
        self.thread = threading.Thread(target=self._submit)

    def _submit(self) -> None:
        for saga in range(self.sagas):
            emails = [f"{saga}-{n}{self.domain}" for n in range(self.steps)]
            self.prover.open(*(step(f"s{n}", email) for n, email in enumerate(emails)))

    def effects(self) -> Counter[str]:
        """How often each downstream key was applied, as the target itself has it."""
        mine = [c for c in self.console.customers() if c["email"].endswith(self.domain)]
        return Counter(str(c["metadata"]["saga_key"]) for c in mine)

    def rows(self) -> list[dict[str, Any]]:
        with self.console.database() as saga:
            return saga.execute(
                "SELECT state, idempotency_key AS key, held_why FROM ledger_step "
                "WHERE args_text LIKE %s",
                [f"%{self.domain}%"],
            ).fetchall()

    def wait_for_effects(self, count: int) -> None:
        eventually(lambda: self.effects().total() >= count, f"{count} effects at the target")

    def assert_ends_exactly_once(self, within_s: float) -> None:
        self.thread.join(30)
        began = time.monotonic()
        wanted = Counter(committed=self.sagas * self.steps)

        def have_ended() -> bool:
            return Counter(row["state"] for row in self.rows()) == wanted

        try:
            eventually(have_ended, "every step committed", within_s)
        except AssertionError:
            left = Counter((row["state"], row["held_why"]) for row in self.rows())
            raise AssertionError(f"after {time.monotonic() - began:.0f} s: {left}") from None
        assert self.effects() == Counter(row["key"] for row in self.rows())
        self.console.assert_verifies()


def test_kill_9_of_every_worker_and_relay_under_load_doubles_and_loses_nothing(
    console: Console, prover: Agent
) -> None:
    load = Load(console, prover, SAGAS, STEPS)
    console.wire.delay_s = 0.3  # every call is in doubt for this long: the effect is there
    try:
        load.thread.start()
        with console.redis() as redis:
            load.wait_for_effects(50)
            killed = console.kill("relay", "worker")
            redis.flushall()
            assert set(killed) == {"relay", "worker-1", "worker-2"}
            load.wait_for_effects(120)
            redis.flushall()
            load.wait_for_effects(160)
            console.kill("relay", "worker")
            in_doubt = [row for row in load.rows() if row["state"] == "executing"]
            assert in_doubt, "the kill came too late to prove anything"
    finally:
        console.wire.delay_s = 0.0
    load.assert_ends_exactly_once(within_s=60)


def test_a_killed_workers_step_is_driven_again_in_time(console: Console, prover: Agent) -> None:
    """Case C27. The effect is there and its answer is lost: it is found, and not repeated."""
    email = address()
    with console.wire as wire:
        saga = prover.open(step("one", email))
        eventually(lambda: wire.held > 0, "the call is out")
        console.kill("worker")
        killed_at = time.monotonic()
    wait_for_states(prover, [saga], "committed", within_s=REDRIVEN_WITHIN_S)
    assert time.monotonic() - killed_at < REDRIVEN_WITHIN_S
    assert len(console.customers(email)) == 1
    kinds = prover.kinds(saga)
    assert (kinds["attempt.started"], kinds["attempt.expired"]) == (1, 1)


def test_a_worker_stopped_past_its_lease_changes_nothing_when_it_wakes(
    console: Console, prover: Agent
) -> None:
    """Case P16: others found out meanwhile; its late answer is kept as evidence."""
    email = address()
    with console.wire as wire:
        saga = prover.open(step("one", email))
        eventually(lambda: wire.held > 0, "the call is out")
        stopped = worker_of(console, saga)
        os.kill(stopped, signal.SIGSTOP)
    try:
        wait_for_states(prover, [saga], "committed", within_s=REDRIVEN_WITHIN_S)
        assert "attempt.late" not in prover.kinds(saga)
    finally:
        os.kill(stopped, signal.SIGCONT)
    eventually(
        lambda: prover.kinds(saga)["attempt.late"] == 1, "the late answer is on the timeline"
    )
    kinds = prover.kinds(saga)
    assert (kinds["attempt.started"], kinds["attempt.expired"], kinds["step.committed"]) == (
        1,
        1,
        1,
    )
    assert prover.states(saga) == ["committed"]
    assert len(console.customers(email)) == 1
    console.assert_verifies()


def worker_of(console: Console, saga: str) -> int:
    """The pid of the worker whose attempt is out. It is a child of this console."""
    with console.database() as database:
        found: Any = database.execute(
            "SELECT h.worker FROM ledger_attempt a JOIN ledger_shift h ON h.id = a.shift_id "
            "JOIN ledger_step s ON s.id = a.step_id WHERE s.saga_id = %s AND a.state = 'started'",
            [saga],
        ).fetchone()
    pid = int(found["worker"].rpartition(":")[2])
    assert pid in console.children("worker").values()
    return pid


def test_a_postgres_that_restarts_under_load_stops_nothing(console: Console, prover: Agent) -> None:
    load = Load(console, prover, 20, 3)
    load.thread.start()
    load.thread.join()
    console.wire.delay_s = 0.2
    try:
        load.wait_for_effects(10)
        restart_postgres(console)
    finally:
        console.wire.delay_s = 0.0
    load.assert_ends_exactly_once(within_s=40)


def test_a_worker_that_rested_while_postgres_restarted_works_again(
    console: Console, prover: Agent
) -> None:
    """Nobody was there to notice: the connections of both workers are dead when work comes."""

    def have_all_worked() -> bool:
        """RQ wakes the worker that has waited longest, so they take turns."""
        wait_for_states(prover, [prover.open(step("one", address()))], "committed")
        eventually(lambda: not console.shifts_at_work(), "every shift has ended")
        return console.shifts_by_worker().keys() >= set(console.children("worker").values())

    eventually(have_all_worked, "both workers have a connection")
    restart_postgres(console)
    emails = [address() for _ in range(4)]
    sagas = [prover.open(step("one", email)) for email in emails]
    wait_for_states(prover, sagas, "committed", within_s=20)
    assert [len(console.customers(email)) for email in emails] == [1] * 4


def restart_postgres(console: Console) -> None:
    before = postmaster(console)
    os.kill(before, signal.SIGINT)
    eventually(lambda: postmaster(console) not in (0, before), "the keeper starts it again")


def postmaster(console: Console) -> int:
    """The pid of this home's own Postgres; 0 while there is none."""
    try:
        text = (console.home / "postgres" / "postmaster.pid").read_text(encoding="utf-8")
    except FileNotFoundError:
        return 0
    lines = text.splitlines()
    return int(lines[0]) if len(lines) >= 8 and lines[7].strip() == "ready" else 0


def test_an_emptied_redis_loses_no_step(console: Console, prover: Agent) -> None:
    """Cases P7 and P8: the one bell was rung, nobody has heard it, and it is gone."""
    eventually(lambda: not console.shifts_at_work(), "every shift has ended")
    emails = [address() for _ in range(5)]
    with console.redis() as redis, console.stopped_workers():
        sagas = [prover.open(step("one", email)) for email in emails]
        eventually(lambda: console.shifts_at_work() > 0, "the relay has rung")
        redis.flushall()
    wait_for_states(prover, sagas, "committed", within_s=20)
    assert [len(console.customers(email)) for email in emails] == [1] * 5


def test_a_worker_that_wakes_into_the_next_attempt_cannot_speak_for_it(
    console: Console, prover: Agent
) -> None:
    """Rule 5.5: its request never arrived, others have looked twice and sent it again. What it
    says about its own attempt is evidence, and nothing about the one that is out now."""
    email = address()
    console.wire.held, console.wire.loses = 0, True
    try:
        saga = prover.open(step("one", email))
        eventually(lambda: console.wire.held > 0, "the call is out")
        stopped = worker_of(console, saga)
        os.kill(stopped, signal.SIGSTOP)
        try:
            console.wire.loses, console.wire.delay_s = False, 1.0
            eventually(lambda: prover.kinds(saga)["attempt.started"] == 2, "it is sent again")
        finally:
            os.kill(stopped, signal.SIGCONT)
        wait_for_states(prover, [saga], "committed", within_s=REDRIVEN_WITHIN_S)
    finally:
        console.wire.loses, console.wire.delay_s = False, 0.0
    told = [entry["kind"] for entry in prover.entries(saga)]
    second = len(told) - told[::-1].index("attempt.started")
    assert told[second:] == ["attempt.late", "step.committed"]
    assert len(console.customers(email)) == 1
