"""The demo, told line by line: four stories, an operator, and a table of what is true.

In this order: `prepare` (before web and workers start, which get its answer as environment),
`main` (once the console is ready; in any process with that environment), `stop`.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saga_console.demo import faultproxy, people, shop, table
from saga_console.demo.approver import Approver
from saga_console.demo.targets import PAYMENTS_KEY, SANDBOX_KEY, Addresses, World

AGENT = Path(__file__).with_name("agent.py")
TOOLS = Path(__file__).with_name("tools") / "tools.toml"
WRITTEN_ADDRESS = "http://127.0.0.1:8420"
WRITTEN_SANDBOX = "http://127.0.0.1:8421"
# More than the agent's own patience, which ends with a sentence that says what was missing.
STORY_TIMEOUT_S = 240
STORIES = {
    "refund": "one refund, asked for again and again",
    "provision": "three things that work, and one that never will",
    "ambiguous": "the payment server did it, and its answer was cut off",
    "mail": "a mail that nobody can call back",
}
# The first one is the operator who decides while the stories play.
CREW = [("olivia", "approvers"), ("oskar", "oncall"), ("vera", "viewers")]


class NotPrepared(RuntimeError):
    """`main` was called without `prepare`."""


@dataclass
class Demo:
    """One run: the outside world and what makes this run's names its own."""

    at: Addresses
    run: str = field(default_factory=lambda: secrets.token_hex(3))
    _print: threading.Lock = field(default_factory=threading.Lock)

    def say(self, who: str, line: str) -> None:
        """One line of the story."""
        with self._print:
            print(f"    {who:<8} {line}", flush=True)

    def play(self, base_url: str, token: str, story: str) -> dict[str, Any]:
        """Let the agent, a process of its own, act one story; what it asked for, or {}."""
        facts = self.at.home / f"{story}.json"
        facts.unlink(missing_ok=True)
        command = [sys.executable, "-P", str(AGENT), story, "--run", self.run]
        environment = {**os.environ, "SAGA_URL": base_url, "SAGA_TOKEN": token}
        with subprocess.Popen(
            [*command, "--facts", str(facts)],
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**environment, "PYTHONIOENCODING": "utf-8"},
        ) as agent:
            watchdog = threading.Timer(STORY_TIMEOUT_S, agent.kill)
            watchdog.start()
            for line in agent.stdout or ():
                self.say("agent", line.rstrip("\n"))
            watchdog.cancel()
        return json.loads(facts.read_text()) if facts.exists() else {}

    def play_all(self, base_url: str, token: str) -> list[table.Row]:
        """The four stories, and their rows."""
        shop.place_orders(self.at, f"R-{self.run}", f"M-{self.run}")
        rows = []
        for number, (story, about) in enumerate(STORIES.items(), start=1):
            print(f"\n{number} · {story}: {about}", flush=True)
            if story == "ambiguous":
                faultproxy.cut_next(self.at.proxy_url, "POST", "/v1/refunds")
            facts = self.play(base_url, token, story)
            if story == "refund" and facts:
                again = self.play(base_url, token, "restarted")
                facts["asked"] = facts["asked"] + again["asked"] if again else None
            rows.append(table.row(self.at, story, facts))
        return rows


# The world that this process has started, if it has.
_started: list[World] = []


def prepare(home: Path) -> dict[str, str]:
    """Start the targets with their state in `home/demo`; the environment for every child."""
    world = World.start(home / "demo")
    _started.append(world)
    at = world.at
    tools = at.home / "tools.toml"
    try:
        shop.open_shop(at)
        text = TOOLS.read_text().replace(WRITTEN_ADDRESS, at.proxy_url)
        tools.write_text(text.replace(WRITTEN_SANDBOX, at.payments_sandbox_url))
    except BaseException:
        stop()
        raise
    return {
        "SAGA_DEMO": "1",
        "SAGA_DEMO_HOME": str(at.home),
        "SAGA_TOOLS": str(tools),
        "SAGA_DEMO_PAYMENTS_AUTH": f"Bearer {PAYMENTS_KEY}",
        "SAGA_DEMO_PAYMENTS_SANDBOX_AUTH": f"Bearer {SANDBOX_KEY}",
        "SAGA_DEMO_CLOUD_URL": at.cloud_url,
        "SAGA_DEMO_CLOUD_SANDBOX_URL": at.cloud_sandbox_url,
        "SAGA_DEMO_MAIL": f"127.0.0.1:{at.mailbox_port}",
    }


def stop() -> None:
    """Stop the targets; the shop keeps its orders. Harmless when they were never started."""
    while _started:
        world = _started.pop()
        shop.close_shop(world.at)
        world.stop()


def main(once: bool, port: int, base_url: str = "") -> int:
    """Play the stories against the console on `port`; 0 when every row is right.

    In the process of `prepare`, or in another one that has its environment. Not `once`: two
    requests are left for a person, the way in is printed, and the answer is 0.
    """
    base_url = base_url or f"http://127.0.0.1:{port}"
    demo = Demo(addresses())
    print("\nMaking the logins and the agent's token of this run", flush=True)
    agent, crew = people.cast([CREW[0]] if once else CREW)
    with Approver(base_url, crew[0].token, lambda line: demo.say("olivia", line), run=demo.run):
        rows = demo.play_all(base_url, agent)
    print("\n" + table.render(rows), flush=True)
    if once:
        return 0 if all(row.ok for row in rows) else 1
    print("\nTwo customers wait for you", flush=True)
    demo.play(base_url, agent, "waiting")
    print("\n" + people.welcome(base_url, crew, agent, demo.run), flush=True)
    shop.warm_sandbox(demo.at)
    return 0


def addresses() -> Addresses:
    """Where the targets are that this process, or the one that started it, has prepared."""
    if _started:
        return _started[-1].at
    home = os.environ.get("SAGA_DEMO_HOME")
    if not home:
        raise NotPrepared("the demo's targets are not running: start with `manage.py up --demo`")
    return Addresses.read(Path(home))
