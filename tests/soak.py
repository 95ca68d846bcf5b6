"""A whole console under load, with things killed at random; at the end everything is counted.

    python -m tests.soak --minutes 10 [--seed N] [--rate STEPS-PER-SECOND] [--keep]

Two targets (tests/book.py): one dedupes on Idempotency-Key, the other does not. Exit status 1
when anything was lost, doubled, or is in a non-final state that no page shows; when a ledger
does not verify; when an invariant of tests/invariants.py does not hold.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from saga_console.home import BASE_DIR, Home
from tests.book import tools_text
from tests.havoc import Havoc, in_a_thread
from tests.running import Up, eventually, free_port, manage
from tests.soakjudge import Judge, open_database
from tests.soakload import Agent, Approver, Oncall, World

# Longer than a worker is ever stopped here: a target without keys has no other protection from
# a request that a stopped worker had in its hands (docs/tools.md, settle_s).
SETTLE_S = 14.0
QUICK = {
    "SAGA_LEASE_S": "2",
    "SAGA_PROBE_APART_S": "0.5",
    "SAGA_SHIFT_LEASE_S": "2",
    "SAGA_RING_GRACE_S": "1",
    "SAGA_SHIFT_LINGER_S": "5",
    "LOG_LEVEL": "WARNING",
}
# What the target does to a request, for each of them, as long as the beating goes on.
# Its calls take half a second, so that every blow finds some under way.
ODDS = {"before": 0.01, "after": 0.02, "busy": 0.02, "garbled": 0.005, "slow_s": 0.5}
AGENTS = 4
TELL_EVERY_S = 30.0
# After the last blow: leases of 7 s, settle times, backoffs, an operator who waits 20 s.
QUIET_WITHIN_S = 300.0


@dataclass
class Soak:
    minutes: float
    seed: int
    rate: float
    folder: Path
    wrong: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.time)
    is_quiet: bool = False

    @property
    def home(self) -> Home:
        return Home(self.folder / "home")

    # -- the stage ------------------------------------------------------------------------

    @contextmanager
    def target(self) -> Iterator[str]:
        port = free_port()
        command = [sys.executable, "-m", "tests.book", str(port), str(self.seed)]
        process = subprocess.Popen(command, cwd=BASE_DIR)
        url = f"http://127.0.0.1:{port}"
        try:
            eventually(lambda: _answers(url), "the target answers")
            yield url
        finally:
            process.terminate()
            process.wait(10)

    def run(self) -> int:
        with self.target() as book:
            tools = self.folder / "tools.toml"
            tools.write_text(tools_text(book, settle_s=SETTLE_S), encoding="utf-8")
            os.environ.update(QUICK | {"SAGA_TOOLS": str(tools), "SAGA_HOME": str(self.home.root)})
            with Up(self.home.root) as up:
                self._beat(up, book)
        return 1 if self.wrong else 0

    def _beat(self, up: Up, book: str) -> None:
        self.book = book
        self.world = World(f"http://127.0.0.1:{up.port}", book)
        self.havoc = Havoc(self.home, up.process.pid, random.Random(self.seed))
        until = [time.monotonic() + 3600.0]
        agents = self._people(lambda: time.monotonic() > until[0])
        until[0] = time.monotonic() + self.minutes * 60
        httpx.put(f"{book}/faults", json=ODDS, timeout=10)
        self.began = time.time()
        beating = in_a_thread(lambda: self.havoc.run(lambda: time.monotonic() > until[0]))
        threads = [in_a_thread(agent.run) for agent in agents]
        while (left_s := until[0] - time.monotonic()) > 0:
            time.sleep(min(TELL_EVERY_S, left_s))
            self._tell()
        for thread in (beating, *threads):
            thread.join(180)
        httpx.put(f"{book}/faults", json={}, timeout=10)
        self._wait_for_quiet(agents)
        self.is_quiet = True
        if not up.is_running():
            self.wrong.append(f"the console has ended: {up.said()[-2000:]}")
        self._judge()

    def _people(self, beating_is_over: Callable[[], bool]) -> list[Agent]:
        """Agents that stop with the beating; people who go on until it is quiet."""

        def token(*words: str) -> str:
            made = manage(self.home.root, *words)
            assert made.returncode == 0, made.stderr
            return made.stdout.strip()

        agents = []
        for n in range(AGENTS):
            seed = self.seed * 100 + n
            agent = Agent(self.world, token("agent_token", f"agent-{n}"), seed, beating_is_over)
            agent.name, agent.pause_s = f"agent-{n}", AGENTS / self.rate
            agents.append(agent)
        ann = token("operator", "ann", "--group", "approvers")
        ona = token("operator", "ona", "--group", "oncall")
        in_a_thread(Approver(self.world, ann, self.seed, self._is_over).run)
        in_a_thread(Oncall(self.world, ona, self.seed, self._is_over).run)
        return agents

    def _is_over(self) -> bool:
        return self.is_quiet

    # -- telling --------------------------------------------------------------------------

    def _tell(self) -> None:
        found = httpx.get(f"{self.book}/book", timeout=30).json()
        say(
            f"{time.time() - self.began:5.0f} s  {len(self.world.sagas)} sagas, "
            f"{len(self.world.promised)} steps promised, {len(found['lines'])} effects, "
            f"{len(self.havoc.blows)} blows, {len(self.wrong) + len(self.world.wrong)} wrong"
        )

    def _left(self) -> list[tuple[str, str]]:
        """Sagas that have not ended: (id, state)."""
        import psycopg

        try:
            with psycopg.connect(self.home.database_url_as("saga"), connect_timeout=5) as database:
                found = database.execute(
                    "SELECT id::text, state FROM ledger_saga "
                    "WHERE state NOT IN ('completed', 'compensated')"
                )
                return found.fetchall()
        except psycopg.Error:
            return [("the database", "does not answer")]

    def _wait_for_quiet(self, agents: Sequence[Agent]) -> None:
        """Everybody still answers; agents send the versions that people asked for."""
        until = time.monotonic() + QUIET_WITHIN_S
        while left := self._left():
            if time.monotonic() > until:
                say(f"not quiet after {QUIET_WITHIN_S:.0f} s: {Counter(s for _, s in left)}")
                return
            for agent in agents:
                agent.answer_changes()
            time.sleep(1)
        say(f"quiet {QUIET_WITHIN_S - until + time.monotonic():.0f} s after the last blow")

    # -- judging --------------------------------------------------------------------------

    def _judge(self) -> None:
        found = httpx.get(f"{self.book}/book", timeout=60).json()
        verified = manage(self.home.root, "verify_ledger")
        if verified.returncode:
            self.wrong.append(f"verify_ledger: {verified.stdout}{verified.stderr}"[:2000])
        open_database(self.home)
        judge = Judge(found, self.world, self.havoc.blows)
        self.wrong += [*self.world.wrong, *judge.wrong()]
        say("")
        for line in judge.table(time.time() - self.began, self.seed):
            say(line)
        say(verified.stdout.strip())
        for line in self.wrong[:50]:
            say(f"WRONG: {line}")
        say(
            f"{len(self.wrong)} wrong; python -m tests.soak --minutes {self.minutes:g} "
            f"--seed {self.seed} --rate {self.rate:g}"
        )


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/book", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--rate", type=float, default=6.0, help="steps a second, about")
    parser.add_argument("--keep", action="store_true", help="keep the home and the logs")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="saga-soak-"))
    say(f"soak of {given.minutes:g} minutes, seed {given.seed}, in {folder}")
    soak = Soak(given.minutes, given.seed, given.rate, folder)
    try:
        return soak.run()
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
