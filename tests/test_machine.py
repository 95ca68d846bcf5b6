"""Anything in any order, against the real database and a real target (tests/machine.py)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.machine import Console
from tests.machinecast import bookshop, machine

__all__ = ["bookshop", "machine"]

# In the ordinary suite about half a minute; `make machine` says more.
EXAMPLES = int(os.environ.get("MACHINE_EXAMPLES", "25"))
STEPS = int(os.environ.get("MACHINE_STEPS", "40"))
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
if os.environ.get("MACHINE_SHRINK"):
    PHASES.append(Phase.shrink)


def test_whatever_happens_nothing_is_lost_doubled_or_unseen(machine: type[Console]) -> None:
    wanted = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=PHASES,
    )
    machine.seen.clear()
    run_state_machine_as_test(machine, settings=wanted)
    print(machine.seen.most_common())
