"""The judge of a soak sees what it is there to see."""

from __future__ import annotations

from typing import Any

from ledger.services.closing import complete
from ledger.services.opening import open_saga
from ledger.services.proposals import Opening, Proposal
from tests.approvalcast import agent, person
from tests.machine import Console
from tests.machinecast import bookshop, machine
from tests.shop import work_saga
from tests.soakjudge import Judge
from tests.soakload import World

__all__ = ["bookshop", "machine"]


def judged(machine: type[Console], world: World, *more: dict[str, Any]) -> list[str]:
    """What is wrong when the target has these lines too."""
    found = {"lines": [*machine.book.lines, *more], "faults": {}}
    return list(Judge(found, world, []).wrong())


def test_a_double_a_loss_and_an_effect_of_nobody_are_each_named(machine: type[Console]) -> None:
    machine.book.clear()
    person("ann", "approvers")
    opening = Opening("task", "Soak", steps=(Proposal("one", "book.plain", {"what": "it"}),))
    bearer = agent()
    saga = open_saga(opening, bearer=bearer).saga
    complete(saga, bearer=bearer)
    work_saga(saga, "completed")
    (line,) = machine.book.lines
    world = World("", "", promised={(str(saga), "one"): "book.plain"})
    assert judged(machine, world) == []

    twice = judged(machine, world, line | {"id": "plain-2"})
    assert f"2 effects under {line['key']} at the target that is plain" in twice
    assert any("2 live effects of it" in told for told in twice)
    nobodys = judged(machine, world, line | {"id": "plain-2", "key": "k", "what": "else"})
    assert len(nobodys) == 1
    assert "which no step asked for" in nobodys[0]
    world.promised[str(saga), "two"] = "book.plain"
    assert judged(machine, world) == [f"step two of saga {saga} was promised and is not there"]
    machine.book.clear()
    unmade = judged(machine, World("", ""))
    assert unmade == [
        f"saga {saga}: one: is committed after an effect, and the target has 0",
    ]
