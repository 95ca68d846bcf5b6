"""Running a Python tool in a process of its own that knows only the sandbox.

Its environment is made, not inherited: the variables that Python and Django need, those that
the drill swaps, and nothing else. No secret, no address and no configuration file of production
is in it, so code that asks for one fails, and reaches nobody.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ledger.outcomes import (
    Applied,
    Done,
    Failed,
    NotApplied,
    Outcome,
    Sighting,
    StillUnknown,
    Unknown,
)
from ledger.states import Direction
from ledger.tools.contract import Call, Target

# What a process needs to be a process, and to find the same code. Nothing here leads anywhere.
KEPT = frozenset(
    {"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"}
    | {"DJANGO_SETTINGS_MODULE", "SAGA_APPS", "SAGA_DEMO", "VIRTUAL_ENV"}
)
# Nobody listens on port 1: the ledger itself is out of reach too.
_NOWHERE = {
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "SECRET_KEY": "of a drill",
}
# Starting Python and importing the tool's packages, on a busy small machine.
START_S = 30.0
OUTCOMES = {kind.__name__: kind for kind in (Done, Failed, Unknown)}
SIGHTINGS = {kind.__name__: kind for kind in (Applied, NotApplied, StillUnknown)}


@dataclass(frozen=True)
class ApartTarget:
    """The target of a Python tool, each call in a new process with the sandbox's environment."""

    key: str
    digest: str
    module: str
    environment: Mapping[str, str] = field(repr=False)
    inner: Target = field(repr=False)

    @property
    def directions(self) -> frozenset[Direction]:
        return self.inner.directions

    @property
    def probed(self) -> frozenset[Direction]:
        return self.inner.probed

    @property
    def can_check(self) -> bool:
        return hasattr(getattr(self.inner, "instance", None), "check")

    def run(self, call: Call) -> Outcome:
        """One direction. Whatever happens to the process leaves a doubt: Unknown."""
        said = self._ask("run", call)
        kind = OUTCOMES.get(said.pop("kind", ""))
        return kind(**said) if kind else Unknown(said["why"])

    def probe(self, call: Call) -> Sighting:
        return self._look("probe", call)

    def check(self, call: Call) -> Sighting:
        """The tool's own independent look."""
        return self._look("check", call)

    def _look(self, what: str, call: Call) -> Sighting:
        said = self._ask(what, call)
        kind = SIGHTINGS.get(said.pop("kind", ""))
        return kind(**said) if kind else StillUnknown(said["why"])

    def _ask(self, what: str, call: Call) -> dict[str, Any]:
        asked = {"what": what, "key": self.key, "digest": self.digest, "call": asdict(call)}
        asked["module"] = self.module.rpartition(".")[0]
        with tempfile.TemporaryDirectory(prefix="saga-drill-") as home:
            try:
                done = subprocess.run(
                    [sys.executable, "-m", "ledger.tools.child"],
                    input=json.dumps(asked),
                    env=self._environ(home),
                    capture_output=True,
                    text=True,
                    timeout=call.timeout_s + START_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return {"why": f"it gave no answer within {call.timeout_s + START_S:.0f} s"}
        try:
            said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            return {"why": f"its process ended with {done.returncode}: {last[:500]}"}
        return said

    def _environ(self, home: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in KEPT}
        paths = {"HOME": home, "SAGA_HOME": home, "TMPDIR": home}
        paths["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        return kept | _NOWHERE | paths | dict(self.environment)
