"""A drill's life in the database: asked for, taken once, told leg by leg, ended once.

Nothing here touches a saga: a drill has no step, no key of an effect, no limit, no resource.
Its rows are append-only, so every change of a drill is one more fact about it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from ledger import errors, keys, storage
from ledger.legs import DrillState, Leg, Told, Verdict
from ledger.models import Drill
from ledger.models.fields import uuid7
from ledger.services import drilling_sql as sql
from ledger.states import Direction
from ledger.tools.contract import Tool
from ledger.tools.installed import registry
from ledger.tools.sandbox import NotDrillable, sandboxed, undo_of

MAX_SAID = 2_000
NAME_CHARS = 12
_REFUSED = "P0409"
GONE = "The worker went away in the middle of it. Look what is left in the sandbox."


@dataclass(frozen=True, slots=True)
class Begun:
    """A drill that this shift has taken. `name` is what `{drill}` stands for in its args."""

    id: UUID
    tool: str
    version: str
    digest: str
    undo: Direction
    args: dict[str, Any]

    @property
    def name(self) -> str:
        return name_of(self.id)

    @property
    def key(self) -> str:
        """The downstream key of its execute; no step can ever have it."""
        return keys.downstream_key(str(self.id), "drill", self.tool, keys.canonical(self.args))


def name_of(drill: UUID) -> str:
    """Twelve characters that no other drill has: the random end of its id."""
    return drill.hex[-NAME_CHARS:]


@storage.transition
def ask(key: str, *, args: Any = None, reason: str, actor: str) -> UUID:
    """Ask for a drill of the tool `key`; its id. Workers do the rest.

    `args` instead of the declared ones. Raises UnknownTool, InvalidArgs (no reason, no
    sandbox, args that do not fit), Frozen, AlreadyDecided (one is under way).
    """
    if not reason.strip():
        raise errors.InvalidArgs("Say why: the reason stays with the drill.")
    tool = registry().get(key)
    try:
        aimed = sandboxed(tool)
    except NotDrillable as refusal:
        raise errors.InvalidArgs(str(refusal)) from None
    drill = uuid7()
    checked = tool.checked_args(_args(tool, args, drill))
    # Two people who press at once: the second finds what the first has written.
    storage.rows("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"drill:{key}"])
    _require_free(key)
    undo = undo_of(tool)
    assert undo is not None, "sandboxed refuses a tool without an undo"
    Drill.objects.create(
        id=drill,
        tool=key,
        version=tool.version,
        digest=tool.digest,
        undo=undo.value,
        args_text=keys.canonical(checked),
        sandbox=aimed.address,
        reason=reason.strip(),
        asked_by=actor,
    )
    return drill


def _args(tool: Tool, args: Any, drill: UUID) -> Any:
    assert tool.drill is not None
    declared = tool.drill if args is None else tool.drill.with_args(args)
    return declared.args_for(name_of(drill))


def _require_free(key: str) -> None:
    if is_frozen(key):
        raise errors.Frozen(f"A freeze stops {key}, and with it its drills. Lift it first.")
    busy = storage.row(sql.BUSY, [key])
    if busy is not None:
        raise errors.AlreadyDecided(f"{key} is being drilled already.", drill=str(busy.id))


def waits() -> bool:
    """Whether a drill waits that a shift could take now."""
    return bool(storage.the_row(sql.WAITS).waits)


def begin(shift: UUID) -> Begun | None:
    """Take the oldest drill that waits, if there is one. It is taken once and never again."""
    try:
        return _taken(shift)
    except DatabaseError as error:
        if storage.sqlstate(error) != _REFUSED:
            raise
        return None  # another shift was first, between our look and our lock


@storage.transition
def _taken(shift: UUID) -> Begun | None:
    taken = storage.row(sql.BEGIN, [shift])
    if taken is None:
        return None
    found = storage.the_row("SELECT * FROM ledger_drill WHERE id = %s", [taken.drill_id])
    return Begun(
        id=found.id,
        tool=found.tool,
        version=found.version,
        digest=found.digest,
        undo=Direction(found.undo),
        args=json.loads(found.args_text),
    )


def tell(drill: UUID, shift: UUID, told: Told, took_ms: int) -> bool:
    """Write what came of a leg; False when the drill was given up meanwhile."""
    said = _kept(told.said)
    return _write([drill, told.leg, told.ok, told.outcome, said, took_ms, shift])


def end(drill: UUID, shift: UUID, verdict: Verdict) -> bool:
    """Write how it ended; False when somebody else has."""
    ok = verdict.state is DrillState.WORKED
    return _write([drill, Leg.END, ok, verdict.state, _kept(verdict.said), 0, shift])


@storage.transition
def _inserted(values: list[Any]) -> None:
    storage.execute(sql.TELL, values)


def _write(values: list[Any]) -> bool:
    try:
        _inserted(values)
    except DatabaseError as error:
        if storage.sqlstate(error) != _REFUSED:
            raise
        return False
    return True


def _kept(said: str) -> str:
    """Text that Postgres can hold, and not more than a page can show."""
    text: str = json.loads(keys.storable(said)[0])
    return text if len(text) <= MAX_SAID else text[:MAX_SAID] + "…"


def is_frozen(tool: str) -> bool:
    """Whether a freeze stops this tool now."""
    return storage.row(sql.IS_FROZEN, [tool]) is not None


@storage.transition
def give_up() -> int:
    """End the drills whose worker is gone; how many. They are never run again by themselves."""
    return storage.execute(sql.GIVE_UP, [GONE])
