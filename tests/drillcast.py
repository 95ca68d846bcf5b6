"""A place to drill: production is a listening socket that nobody may ever connect to, and the
sandbox is a real localstripe."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ledger import outbox
from ledger.legs import DrillState
from ledger.queries import drills
from ledger.queries.drills import DrillFacts
from ledger.services import drilling, shifts
from ledger.shift import ShiftLoop
from ledger.tools.installed import registry
from tests.shop import AUTH, visitor

TOOLS = (Path(__file__).parent / "data" / "drill.toml").read_text(encoding="utf-8")
PRODUCTION_AUTH = "Bearer sk_live_never"


class Production:
    """A server that answers nobody and remembers whoever came: a drill never may."""

    def __init__(self) -> None:
        self.callers: list[Any] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                caller, address = self._socket.accept()
            except OSError:
                return
            self.callers.append(address)
            caller.close()

    def close(self) -> None:
        self._socket.close()


@dataclass
class Yard:
    """The tools of tests/data/drill.toml, where they run, and where they are drilled."""

    sandbox: str
    production: Production
    path: Path
    settings: Any = field(repr=False)

    def write(self, *changes: tuple[str, str]) -> None:
        """Load the tools file anew, with changes: a new version of the console starts."""
        text = TOOLS.replace("PRODUCTION_URL", self.production.url).replace(
            "SANDBOX_URL", self.sandbox
        )
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        self.path.write_text(text, encoding="utf-8")
        self.settings.SAGA_TOOLS = str(self.path)
        registry.cache_clear()
        registry()

    def ask(self, tool: str = "crm.customer", **more: Any) -> UUID:
        return drilling.ask(tool, **{"reason": "a test", "actor": "person:oskar", **more})

    def drill(self, tool: str = "crm.customer", **more: Any) -> DrillFacts:
        """Ask, let a worker's shift do it, and read what came of it."""
        drill = self.ask(tool, **more)
        work(lambda: facts(drill).is_over)
        return facts(drill)

    def customers(self) -> list[str]:
        """The e-mail addresses of all customers in the sandbox."""
        return [one["email"] for one in self.stored() if not one.get("deleted")]

    def stored(self) -> list[dict[str, Any]]:
        """All customers as the sandbox lists them."""
        answer = visitor().get(f"{self.sandbox}/v1/customers?limit=10000")
        found: list[dict[str, Any]] = answer.json()["data"]
        return found


def facts(drill: UUID) -> DrillFacts:
    found = drills.one(drill)
    assert found is not None
    return found


def came(found: DrillFacts) -> list[tuple[str, str]]:
    """(leg, outcome) of a drill."""
    return [(leg.leg, leg.outcome) for leg in found.legs]


def work(until: Callable[[], bool], within_s: float = 30.0) -> None:
    """Shifts and sweeps, as relay and workers do them, until something holds."""
    deadline = time.monotonic() + within_s
    while not until():
        assert time.monotonic() < deadline, "the drill did not get there in time"
        ShiftLoop(shifts.ring_row()).run()
        outbox.sweep()


WORKED, FAILED = DrillState.WORKED, DrillState.FAILED


@pytest.fixture
def yard(
    transactional_db: None,
    stripe: str,
    settings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Yard]:
    """The tools loaded, quick times, and at the end: nobody was at production's door."""
    monkeypatch.setenv("CRM_AUTH", PRODUCTION_AUTH)
    monkeypatch.setenv("CRM_SANDBOX_AUTH", AUTH)
    settings.SAGA_SHIFT_LINGER_S = 0.6
    production = Production()
    yard = Yard(stripe, production, tmp_path / "tools.toml", settings)
    yard.write()
    yield yard
    registry.cache_clear()
    production.close()
    assert production.callers == []


def email(found) -> str:
    return f"{found.id.hex[-12:]}@example.com"
