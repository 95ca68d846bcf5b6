"""Releases of a Python tool as a deployment makes them: new source, a new process's registry.

The tool's target is a file of lines, one an effect: what happened is read from there.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.test import override_settings

from ledger.bearer import Bearer
from ledger.models import Agent, Saga, Step
from ledger.outcomes import Outcome, Sighting
from ledger.services.claiming import Assignment, claim
from ledger.services.opening import open_saga
from ledger.services.proposals import Opening, Proposal
from ledger.services.proposing import propose
from ledger.services.recording import Finished, record
from ledger.services.shifts import ring_row
from ledger.tools.installed import registry

APP = "till_of_the_tests"
SOURCE = '''
"""{remark}"""
import time
from pathlib import Path

from ledger.outcomes import Applied, NotApplied
from ledger.tools.python import ToolFailed, tool

BOOK = Path({book!r})


def write(line):
    with BOOK.open("a", encoding="utf-8") as file:
        file.write(line + "\\n")


@tool("{key}", title="Book a sum", version="{version}", tier="{tier}", blast_radius="low",
    args={schema!r}, result={result!r}, retries={retries}, settle_s={settle_s},
    timeout_s={timeout_s}, downstream_idempotent={dedupes}, idempotent_for_s={dedupes_for_s},
    effect_key={effect_key!r}, compatible_with={compatible_with!r})
class Book:
    def execute(self, call):
        time.sleep(call.args.get("takes_s", 0))
        if call.args.get("refuse"):
            raise ToolFailed("the till is closed for " + call.args["refuse"])
        write("booked " + call.idempotency_key + " {version}")
        return {{"no": call.idempotency_key[:8]}}

    def {undo}(self, call):
        if (BOOK.parent / "jammed").exists():
            raise ToolFailed("the till is jammed")
        write("{undo} " + call.result["no"])

    def probe(self, call):
        lines = BOOK.read_text(encoding="utf-8") if BOOK.exists() else ""
        undo = call.direction != "forward"
        line = "{undo} " + call.result["no"] if undo else "booked " + call.idempotency_key
        found = line in lines
        return Applied({{"no": call.idempotency_key[:8]}}) if found else NotApplied()
'''
SCHEMA = {
    "type": "object",
    "required": ["sum"],
    "properties": {
        "sum": {"type": "integer"},
        "refuse": {"type": "string"},
        "takes_s": {"type": "number"},
    },
}
RESULT = {
    "type": "object",
    "required": ["no"],
    "properties": {"no": {"type": "string"}},
}


class Till:
    """An app whose tool is released, changed and withdrawn; and an agent that uses it."""

    def __init__(self, folder: Path, key: str = "till.book") -> None:
        self.folder = folder
        self.key = key
        self.package = folder / APP
        self.package.mkdir()
        (self.package / "__init__.py").touch()
        self.book = folder / "book.txt"
        row = Agent.objects.create(name=f"cashier-{uuid4()}")
        self.agent = Bearer(agent_id=row.pk, agent_name=row.name)
        self.shift = ring_row()

    def release(self, version: str = "1", remark: str = "The till.", **more: Any) -> str:
        """Deploy this source; the digest of its tool."""
        told = {"tier": "compensatable", "schema": SCHEMA, "result": RESULT, "retries": 0}
        told |= {
            "timeout_s": 10.0,
            "settle_s": 0.0,
            "dedupes": False,
            "dedupes_for_s": 0.0,
            "effect_key": None,
            "compatible_with": [],
            "version": version,
            "remark": remark,
            "book": str(self.book),
            "key": self.key,
        }
        told |= more
        told.setdefault("undo", "compensate" if told["tier"] == "compensatable" else "correct")
        (self.package / "tools.py").write_text(SOURCE.format(**told), encoding="utf-8")
        self._start_anew()
        return registry().get(self.key).digest

    def withdraw(self) -> None:
        """Deploy without the tool."""
        (self.package / "tools.py").write_text("", encoding="utf-8")
        self._start_anew()

    def _start_anew(self) -> None:
        sys.modules.pop(f"{APP}.tools", None)
        # Two releases of one second and one size look the same to whoever kept the bytecode.
        for kept in self.folder.rglob("__pycache__"):
            shutil.rmtree(kept)
        importlib.invalidate_caches()
        registry.cache_clear()

    def jam(self) -> None:
        """No undo works until `unjam`."""
        (self.folder / "jammed").touch()

    def unjam(self) -> None:
        (self.folder / "jammed").unlink()

    # -- the agent and the worker -------------------------------------------------------

    def open(self, *steps: Proposal) -> UUID:
        opening = Opening(str(uuid4()), "A day at the till", steps=steps)
        return open_saga(opening, bearer=self.agent).saga

    def propose(self, saga: UUID, step_id: str, **args: Any) -> UUID:
        return propose(saga, Proposal(step_id, self.key, args), bearer=self.agent).step

    def claim(self) -> list[Assignment]:
        return claim(self.shift, 20)

    def answer(self, taken: list[Assignment], outcome: Outcome | Sighting) -> None:
        record(self.shift, [Finished(one, outcome) for one in taken])

    def work(self) -> None:
        """Claim, really call, and record, until nothing is due."""
        while taken := self.claim():
            for one in taken:
                call = one.tool.run if one.attempt else one.tool.probe
                record(self.shift, [Finished(one, call(one.call))])

    def lines(self) -> list[str]:
        """What happened at the target, in order."""
        return self.book.read_text(encoding="utf-8").splitlines() if self.book.exists() else []

    def effects(self) -> int:
        return sum(line.startswith("booked") for line in self.lines())


def booking(step_id: str, **args: Any) -> Proposal:
    return Proposal(step_id, "till.book", {"sum": 100} | args)


def step_of(saga: UUID, step_id: str = "one") -> Step:
    return Step.objects.get(saga_id=saga, step_id=step_id)


def state_of(saga: UUID) -> str:
    return Saga.objects.get(pk=saga).state


@pytest.fixture(name="till")
def a_till(
    db: None, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Till]:
    """A till whose first release is out."""
    monkeypatch.syspath_prepend(tmp_path)
    settings.SAGA_PROBE_APART_S = 0.0
    with deployed(Till(tmp_path)) as till:
        yield till


@contextmanager
def deployed(till: Till) -> Iterator[Till]:
    """The till's first release is out; its folder is on `sys.path` already."""
    with override_settings(INSTALLED_APPS=[*settings.INSTALLED_APPS, APP]):
        till.release()
        yield till
    for name in [name for name in sys.modules if name.split(".")[0] == APP]:
        del sys.modules[name]
    registry.cache_clear()
