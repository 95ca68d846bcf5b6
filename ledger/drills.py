"""A shift's part in drills: one at a time, in a thread beside those for steps.

Like the shift itself: the loop's thread talks to the database, the other one only calls. It
takes none of the threads that steps wait for, and looks for drills seldom, so that steps pay
nothing for them (docs/decisions/0060-a-drill-is-a-record-of-its-own.md).
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from ledger import keys
from ledger.errors import UnknownTool
from ledger.legs import (
    CHANGING,
    LEFT_BEHIND,
    DrillState,
    Leg,
    Told,
    Verdict,
    after,
    legs_of,
    told_of_call,
    told_of_look,
)
from ledger.masking import secrets_in, without
from ledger.outcomes import Applied, Done, NotApplied, Sighting
from ledger.services import drilling
from ledger.services.drilling import Begun
from ledger.states import Direction
from ledger.tools.contract import Call
from ledger.tools.installed import registry
from ledger.tools.sandbox import NotDrillable, Sandboxed, sandboxed

logger = logging.getLogger(__name__)

# A person waits for it, but a step never should: one small query a shift and half second.
LOOK_FOR_DRILLS_S = 0.5
# A look is repeated while a target may not show yet what it has done: at least this long, as
# long as the tool's settle_s, and never beyond a person's patience.
LOOK_AT_LEAST_S, LOOK_AT_MOST_S = 2.0, 60.0
LOOK_AGAIN_S = 0.5
MAX_RESULT_SHOWN = 500


@dataclass
class Run:
    """The drill under way and what came of it so far."""

    drill: Begun
    aimed: Sandboxed
    planned: tuple[Leg, ...]
    told: list[Told] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._secrets = secrets_in(self.drill.args, self.aimed.tool.args_schema)

    def masked(self, said: str) -> str:
        """What was said, without what the arguments hold in confidence."""
        return without(said, self._secrets)

    def shown(self, result: Any) -> str:
        """A result as one line for people."""
        text = self.masked(keys.storable(result)[0])
        return text if len(text) <= MAX_RESULT_SHOWN else text[:MAX_RESULT_SHOWN] + "…"

    def result(self) -> Any:
        """What the undo is fed with: what execute answered, or else what a look found."""
        known = {one.leg: one for one in self.told}
        for leg in (Leg.EXECUTE, Leg.FOUND):
            if leg in known and known[leg].ok:
                return known[leg].result
        return None

    def call(self, direction: Direction) -> Call:
        """What the tool is given: a saga that is none, and a key that no step can have."""
        drill = self.drill
        title = f"Drill of {drill.tool}"
        saga = {"id": str(drill.id), "task_id": f"drill-{drill.name}", "name": title}
        return Call(
            direction=direction,
            saga_id=str(drill.id),
            step_id="drill",
            args=drill.args,
            result=None if direction is Direction.FORWARD else self.result(),
            idempotency_key=keys.direction_key(drill.key, direction),
            saga={**saga, "metadata": {"drill": True}},
            step={"id": str(drill.id), "step_id": "drill", "position": 1},
            timeout_s=self.aimed.tool.timeout_s,
            attempt=1,
        )

    def do(self, leg: Leg) -> Told:
        """Make the calls of one leg. Never raises, as tools never do."""
        undo, tool = self.drill.undo, self.aimed.tool
        match leg:
            case Leg.EXECUTE | Leg.UNDO:
                direction = Direction.FORWARD if leg is Leg.EXECUTE else undo
                outcome = tool.run(self.call(direction))
                said = self.shown(outcome.result) if isinstance(outcome, Done) else ""
                return told_of_call(leg, outcome, said)
            case Leg.FOUND:
                return self._look(leg, tool.probe, Direction.FORWARD, wants_it=True)
            case Leg.UNDONE if tool.can_probe(undo):
                return self._look(leg, tool.probe, undo, wants_it=True)
            case Leg.UNDONE:
                return self._look(leg, tool.probe, Direction.FORWARD, wants_it=False)
        check = self.aimed.check
        assert check is not None, "a leg that looks with the check is only planned with one"
        return self._look(leg, check, undo, wants_it=leg is Leg.SEEN)

    def _look(
        self, leg: Leg, look: Callable[[Call], Sighting], direction: Direction, *, wants_it: bool
    ) -> Told:
        patience = min(LOOK_AT_MOST_S, max(LOOK_AT_LEAST_S, self.aimed.tool.settle_s))
        until = time.monotonic() + patience
        good = Applied if wants_it else NotApplied
        call = self.call(direction)
        while not isinstance(saw := look(call), good) and time.monotonic() < until:
            time.sleep(LOOK_AGAIN_S)
        said = self.shown(saw.result) if isinstance(saw, Applied) else ""
        return told_of_look(leg, saw, said, wants_it=wants_it)


class DrillHand:
    """What a shift does about drills. `turn` is called in the shift's own thread, often."""

    def __init__(self, shift: UUID, ring: Callable[[], None]) -> None:
        self.shift = shift
        self._ring = ring
        self._run: Run | None = None
        self._came: queue.SimpleQueue[tuple[Told, int]] = queue.SimpleQueue()
        self._unwritten: tuple[Told, int] | None = None
        self._next_look = 0.0

    @property
    def is_busy(self) -> bool:
        return self._run is not None

    def turn(self, *, takes_new: bool) -> None:
        """Write what came back and go on, or take a drill. Raises what the database raises."""
        if self._run is not None:
            self._go_on(self._run)
        elif takes_new and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_FOR_DRILLS_S
            if (drill := drilling.begin(self.shift)) is not None:
                self._begin(drill)

    def _begin(self, drill: Begun) -> None:
        try:
            self._run = aimed_run(drill)
        except (NotDrillable, UnknownTool) as refusal:
            said = getattr(refusal, "detail", str(refusal))
            drilling.end(drill.id, self.shift, Verdict(DrillState.REFUSED, said))
            return
        self._next(self._run)

    def _go_on(self, run: Run) -> None:
        if self._unwritten is None:
            try:
                self._unwritten = self._came.get_nowait()
            except queue.Empty:
                return
        told, took_ms = self._unwritten
        goes_on = drilling.tell(run.drill.id, self.shift, told, took_ms)
        self._unwritten = None
        run.told.append(told)
        if goes_on:
            self._next(run)
        else:
            self._run = None  # it was given up: this worker had been away for too long

    def _next(self, run: Run) -> None:
        leg = after(run.planned, run.told, run.drill.undo)
        if isinstance(leg, Leg) and leg in CHANGING and drilling.is_frozen(run.drill.tool):
            left = f" {LEFT_BEHIND}" if run.told else ""
            leg = Verdict(DrillState.STOPPED, f"A freeze came before {leg}.{left}")
        if isinstance(leg, Verdict):
            drilling.end(run.drill.id, self.shift, leg)
            self._run = None
            return
        threading.Thread(target=self._do, args=(run, leg), name="drill", daemon=True).start()

    def _do(self, run: Run, leg: Leg) -> None:
        began = time.monotonic()
        try:
            told = run.do(leg)
        except Exception as error:
            logger.exception("a leg of a drill broke")
            told = Told(leg, False, "unknown", f"{type(error).__name__}: {error}")
        told = replace(told, said=run.masked(told.said))
        self._came.put((told, round((time.monotonic() - began) * 1000)))
        self._ring()


def aimed_run(drill: Begun) -> Run:
    """The drill, ready to run with this worker's code. Raises NotDrillable, UnknownTool."""
    tool = registry().get(drill.tool)
    if tool.digest != drill.digest:
        raise NotDrillable(
            f"This worker has version {tool.version} of {tool.key}, and version {drill.version} "
            "was to be drilled: the code is not the same."
        )
    aimed = sandboxed(tool)
    probed = frozenset(way for way in Direction if tool.can_probe(way))
    planned = legs_of(drill.undo, probed, has_check=aimed.check is not None)
    return Run(drill, aimed, planned)
