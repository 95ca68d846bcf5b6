"""What is registered, what undoing it would take, and whether that undo has ever worked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from ledger.legs import DrillState, Leg, legs_of
from ledger.queries import drills, pages_sagas
from ledger.queries.drills import DrillFacts, RealUndo
from ledger.queries.shown import args_of
from ledger.services import drilling
from ledger.states import Direction
from ledger.templatetags.console import measured
from ledger.tools.contract import Tool
from ledger.tools.installed import registry
from ledger.tools.sandbox import NotDrillable, sandboxed, undo_of
from ledger.views import live
from ledger.views.people import bearer_of, pressed, right_to_operate

# What a leg asks, as a person would.
QUESTIONS: Mapping[str, str] = {
    Leg.EXECUTE: "Execute",
    Leg.FOUND: "The probe finds it",
    Leg.SEEN: "The check sees it",
    Leg.UNDO: "",
    Leg.UNDONE: "The probe finds it undone",
    Leg.UNSEEN: "The check sees it gone",
}
# Tone and picture of an outcome; every other one is good or bad as the leg says.
_LOOKS: Mapping[str, tuple[str, str]] = {
    "done": ("good", "committed"),
    "failed": ("bad", "failed"),
    "unknown": ("doubt", "unknown"),
}
UNDO_NAMES: Mapping[str, str] = {
    Direction.COMPENSATE: "compensation",
    Direction.CORRECT: "correction",
}


@dataclass(frozen=True, slots=True)
class UndoLine:
    """What is known of a tool's undo: for real, from the ledger; and from drills."""

    noun: str
    real: RealUndo | None
    drill: DrillFacts | None
    outdated: str
    sandbox: str
    why_not: str

    @property
    def is_proven(self) -> bool:
        """Whether this undo, as it is now, has worked anywhere."""
        drilled = self.drill is not None and self.drill.state is DrillState.WORKED
        return self.real is not None or (drilled and not self.outdated)


@dataclass(frozen=True, slots=True)
class LegLine:
    """One leg of a drill for people: what was asked, what came, how long it took."""

    question: str
    tone: str
    icon: str
    outcome: str
    said: str = ""
    took: str = ""


@dataclass(frozen=True, slots=True)
class ToolLine:
    """One tool for people: registered here, or known from steps that once ran it."""

    key: str
    title: str
    version: str
    digest: str
    tier: str
    blast_radius: str
    schema: Mapping[str, Any]
    undo: str
    doubt: str = ""
    effect_key: str = ""
    resource: str = ""
    timeout_s: float = 0
    retries: int = 0
    is_registered: bool = True
    versions: Sequence[Any] = field(default=())
    undoing: UndoLine | None = None


def _undo(tool: Tool) -> str:
    if tool.can_compensate:
        return "Undone by its own compensation."
    if tool.can_correct:
        return "Cannot be undone; a correction can be sent."
    return "Cannot be undone."


def _doubt(tool: Tool) -> str:
    ways = []
    if tool.can_probe():
        ways.append("looks at the target")
    if tool.downstream_idempotent:
        ways.append("sends again under the same key")
    return ", then ".join([*ways, "asks an operator"])


def _undoing(tool: Tool, real: RealUndo | None, drill: DrillFacts | None) -> UndoLine | None:
    undo = undo_of(tool)
    if undo is None:
        return None
    try:
        sandbox, why_not = sandboxed(tool).address, ""
    except NotDrillable as refusal:
        sandbox, why_not = "", str(refusal)
    return UndoLine(UNDO_NAMES[undo], real, drill, _outdated(tool, drill), sandbox, why_not)


def _outdated(tool: Tool, drill: DrillFacts | None) -> str:
    if drill is None or drill.digest == tool.digest:
        return ""
    if drill.version == tool.version:
        return f"drilled before version {tool.version} was changed"
    return f"drilled with version {drill.version}, now {tool.version}"


def _planned(tool: Tool) -> Sequence[Leg]:
    undo = undo_of(tool)
    try:
        has_check = sandboxed(tool).check is not None
    except NotDrillable:
        return ()
    assert undo is not None, "sandboxed refuses a tool without an undo"
    probed = frozenset(way for way in Direction if tool.can_probe(way))
    return legs_of(undo, probed, has_check=has_check)


def _legs(drill: DrillFacts, planned: Sequence[Leg]) -> list[LegLine]:
    """What was told, and what is still to come or was never reached."""
    told = [
        LegLine(
            _question(leg.leg, drill),
            *_LOOKS.get(leg.outcome, _LOOKS["failed"] if not leg.ok else _LOOKS["done"]),
            leg.outcome,
            leg.said,
            measured(timedelta(milliseconds=leg.took_ms)),
        )
        for leg in drill.legs
    ]
    known = {leg.leg for leg in drill.legs}
    open_ = [leg for leg in planned if leg not in known]
    for number, leg in enumerate(open_):
        is_now = number == 0 and drill.state is DrillState.RUNNING
        look = ("live", "executing", "now") if is_now else ("quiet", "waiting", _rest(drill))
        told.append(LegLine(_question(leg, drill), *look))
    return told


def _rest(drill: DrillFacts) -> str:
    return "not reached" if drill.is_over else "next"


def _question(leg: str, drill: DrillFacts) -> str:
    return QUESTIONS[leg] or drill.undo.capitalize()


def _line(tool: Tool, versions: Sequence[Any], undoing: UndoLine | None) -> ToolLine:
    return ToolLine(
        key=tool.key,
        title=tool.title,
        version=tool.version,
        digest=tool.digest,
        tier=tool.tier,
        blast_radius=tool.blast_radius,
        schema=tool.args_schema,
        undo=_undo(tool),
        doubt=_doubt(tool),
        effect_key=tool.effect_key or "",
        resource=tool.resource or "",
        timeout_s=tool.timeout_s,
        retries=tool.retries,
        versions=versions,
        undoing=undoing,
    )


def _unregistered(key: str, versions: Sequence[Any]) -> ToolLine:
    newest = versions[0]
    told = newest.definition
    return ToolLine(
        key=key,
        title=told.get("title") or key,
        version=newest.version,
        digest=newest.digest,
        tier=told.get("tier", ""),
        blast_radius=told.get("blast_radius", ""),
        schema=told.get("args", {}),
        undo="No longer registered here: its steps wait, parked, until it is again.",
        is_registered=False,
        versions=versions,
    )


def tools(request: HttpRequest) -> HttpResponse:
    known = pages_sagas.tool_versions()
    here = registry()
    keys = [tool.key for tool in here.all()]
    real, drilled = drills.last_real_undos(keys), drills.latest(keys)
    lines = [
        _line(
            tool,
            known.get(tool.key, ()),
            _undoing(tool, real.get(tool.key), drilled.get(tool.key)),
        )
        for tool in here.all()
    ]
    lines += [_unregistered(key, seen) for key, seen in known.items() if key not in here]
    unproven = [line for line in lines if line.undoing and not line.undoing.is_proven]
    context = {
        "tools": lines,
        "unproven": unproven,
        "can_be_drilled": [line for line in unproven if line.undoing and line.undoing.sandbox],
        "cannot_be_drilled": [
            line for line in unproven if line.undoing and not line.undoing.sandbox
        ],
    }
    return render(request, "ledger/tools.html", context)


def tool(request: HttpRequest, key: str) -> HttpResponse:
    """One tool, its drills, and the button for another one."""
    if key not in registry():
        raise Http404(f"No tool {key} is registered here.")
    found = registry().get(key)
    past = drills.history(key)
    mark = live.mark_of([(one.id, one.state, len(one.legs)) for one in past] + [found.digest])
    if live.has_seen(request, mark):
        return live.unchanged()
    newest = past[0] if past else None
    is_current = newest is not None and newest.digest == found.digest
    undoing = _undoing(found, drills.last_real_undos([key]).get(key), newest)
    context = {
        "tool": _line(found, pages_sagas.tool_versions().get(key, ()), undoing),
        "newest": newest,
        "legs": _legs(newest, _planned(found) if is_current else ()) if newest else (),
        "past": past[1:],
        "is_under_way": newest is not None and not newest.is_over,
        "example": args_of(found.drill.args, key, found.digest) if found.drill else None,
        "mark": mark,
        "is_frozen": drilling.is_frozen(key),
        **right_to_operate(request),
    }
    return live.page_or_part(request, "ledger/tool.html", "live", context)


@pressed("ledger:tools")
def drill(request: HttpRequest, key: str) -> str:
    reason = request.POST.get("reason", "")
    drilling.ask(key, reason=reason, actor=bearer_of(request).actor)
    return ""
