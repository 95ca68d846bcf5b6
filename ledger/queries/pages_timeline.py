"""Reads of the saga page: the steps with their tries, and the entries, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Window
from django.db.models.functions import RowNumber

from ledger.errors import NotFound
from ledger.gate import gate
from ledger.models import Agent, Attempt, Entry, Freeze, OutboxMessage, Saga, Step
from ledger.queries import archived, freezes
from ledger.queries.residue import Left, left_by
from ledger.queries.shown import definition_of
from ledger.spoken import is_told_in
from ledger.states import Direction, StepState, Tier
from ledger.storage import rows
from ledger.tools.installed import recorded_directions

# A saga of a sane agent has a dozen steps; with this many a page still answers within 50 ms.
STEPS_A_PAGE = 40
ENTRIES_A_PAGE = 60
# The raw entries inside a step's row; the table below has all of them.
ENTRIES_A_STEP = 12
_UNDO = {Direction.COMPENSATE.value: "undo", Direction.CORRECT.value: "correction"}
# Above this many entries a step's own are reached by the table's filter, not read eagerly.
EAGER_ENTRIES = 5_000


@dataclass(frozen=True, slots=True)
class StepRow:
    """One logical step: every try of every direction, and how often it was asked for."""

    step: Step
    title: str
    tries: Sequence[Attempt]
    entries: Sequence[Entry]
    replays: int
    approval: Mapping[str, Any] | None
    next_try: OutboxMessage | None
    # The freeze that keeps what is due here from being started.
    freeze: Freeze | None = None

    @property
    def asked(self) -> int:
        return self.replays + 1

    @property
    def awaited(self) -> str:
        return awaited(self.step, self.approval)

    @property
    def error(self) -> Any:
        """The step's error, unless what it is held for says it already."""
        return None if is_told_in(self.step.held_why, self.step.error) else self.step.error

    @property
    def undo_keys(self) -> Sequence[tuple[str, str]]:
        """(noun, key) of what was sent to take the effect back, each key once."""
        sent = {one.idempotency_key: one.direction for one in self.tries}
        return [(_UNDO[way], key) for key, way in sent.items() if way in _UNDO]

    @property
    def args_text(self) -> str:
        """What runs: of an alternative, once that has been taken."""
        if not self.step.alternative:
            return self.step.args_text
        taken: str = self.step.alternatives[self.step.alternative - 1]["args_text"]
        return taken

    @property
    def tool(self) -> str:
        return self.step.runs_tool


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """A step that was asked for and never made: `first` holds its effect, and answers for it."""

    step_id: str
    first: Step
    answered: int


@dataclass(frozen=True, slots=True)
class Timeline:
    saga: Saga
    rows: Sequence[StepRow]
    more_after: int = 0
    residue: Sequence[Left] = ()
    freezes: Sequence[Freeze] = ()
    undone: Sequence[StepRow] = field(default=())
    deduplicated: Sequence[Deduplicated] = ()


def awaited(step: Step, request: Mapping[str, Any] | None) -> str:
    """The noun of what waits for a person's yes on the way back, or ''."""
    if step.state != StepState.COMPENSATING or request is None or request["state"] != "pending":
        return ""
    return _UNDO[request["direction"]]


def doubted(step: Step) -> str:
    """What is not known of a step on the way back, in words."""
    corrected = step.runs_tier == Tier.NON_COMPENSATABLE
    return f"may or may not have been {'corrected' if corrected else 'undone'}"


def saga(saga_id: UUID) -> Saga:
    """One saga with its agent. Raises NotFound."""
    found = Saga.objects.select_related("agent").filter(pk=saga_id).first()
    if found is None:
        raise NotFound("There is no saga with this id.")
    return found


def _grouped(items: Sequence[Any], key: str) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for item in items:
        groups.setdefault(getattr(item, key), []).append(item)
    return groups


def _newest_entries(of: Saga, step_ids: Sequence[str]) -> dict[str, list[Entry]]:
    if of.head_seq > EAGER_ENTRIES:
        return {}
    rank = Window(RowNumber(), partition_by=F("step_id"), order_by=F("seq").desc())
    newest = (
        Entry.objects.filter(saga=of, step_id__in=step_ids)
        .annotate(rank=rank)
        .filter(rank__lte=ENTRIES_A_STEP)
        .order_by("seq")
    )
    return _grouped(list(newest), "step_id")


def _replays(of: Saga) -> dict[str, int]:
    replayed = Entry.objects.filter(saga=of, kind="step.replayed")
    return dict(replayed.values_list("step_id").annotate(Count("seq")))


_DEDUPLICATED = """
SELECT step_id, (payload::jsonb ->> 'effect_of')::uuid AS first,
    count(*) FILTER (WHERE kind = 'step.replayed') AS answered
FROM ledger_entry
WHERE saga_id = %s AND kind IN ('step.replayed', 'step.deduplicated')
    AND payload::jsonb ? 'effect_of'
GROUP BY 1, 2 ORDER BY min(seq) LIMIT %s
"""


def deduplicated(of: Saga) -> list[Deduplicated]:
    """The first STEPS_A_PAGE steps of this saga that a step of any saga answered for."""
    found = rows(_DEDUPLICATED, [of.pk, STEPS_A_PAGE])
    ids = [row.first for row in found]
    firsts = Step.objects.select_related("saga__agent").in_bulk(ids)
    gone = archived.first_steps([one for one in ids if one not in firsts])
    return [
        Deduplicated(row.step_id, firsts.get(row.first) or _archived(gone[row.first]), row.answered)
        for row in found
    ]


def _archived(found: Any) -> Step:
    """An archived step as far as a line about it needs one."""
    saga = Saga(pk=found.saga_id, name=found.name, agent=Agent(name=found.agent))
    return Step(
        pk=found.id, saga=saga, step_id=found.step_id, position=found.position, state=found.state
    )


def step_rows(of: Saga, steps: Sequence[Step], frozen: Sequence[Freeze] = ()) -> list[StepRow]:
    """The steps with everything that was tried, asked and said about them."""
    ids = [step.pk for step in steps]
    tries = _grouped(list(Attempt.objects.filter(step_id__in=ids).order_by("fence")), "step_id")
    due = OutboxMessage.objects.filter(step_id__in=ids, taken_at__isnull=True).order_by("due_at")
    waiting = _grouped(list(due), "step_id")
    entries = _newest_entries(of, [step.step_id for step in steps])
    replays = _replays(of)
    asked = gate().requests(ids)
    return [
        StepRow(
            step=step,
            title=_title(step),
            tries=tries.get(step.pk, []),
            entries=entries.get(step.step_id, []),
            replays=replays.get(step.step_id, 0),
            approval=asked.get(step.pk),
            next_try=waiting.get(step.pk, [None])[0],
            freeze=_held_by(frozen, waiting.get(step.pk, [])),
        )
        for step in steps
    ]


def _held_by(frozen: Sequence[Freeze], due: Sequence[OutboxMessage]) -> Freeze | None:
    """The oldest freeze of what waits to run; looking for an effect is not held."""
    tools = {message.tool for message in due if message.kind == "run"}
    stopping = (one for one in frozen if tools and (one.scope != "tool" or one.value in tools))
    return next(stopping, None)


@dataclass(frozen=True, slots=True)
class StepLine:
    """A step in a short list: itself, what its tool is called, and whether that has a correction.

    `corrects` is None when nobody knows.
    """

    step: Step
    title: str
    corrects: bool | None


def brief(of: Saga) -> list[StepLine]:
    """The first STEPS_A_PAGE steps, without their tries."""
    found = Step.objects.filter(saga=of).select_related("tool_version").order_by("position")
    return [StepLine(step, _title(step), _corrects(step)) for step in found[:STEPS_A_PAGE]]


def _corrects(step: Step) -> bool | None:
    """Whether the tool of what ran was recorded with a correction."""
    if step.runs_tier != Tier.NON_COMPENSATABLE:
        return False
    tool, digest = step.runs_tool, step.runs_digest
    kept = definition_of(tool, digest) if step.alternative else step.tool_version.definition
    able = recorded_directions(tool, digest, kept)
    return None if able is None else Direction.CORRECT in able


def _title(step: Step) -> str:
    return step.tool_version.definition.get("title") or step.tool


def tools_of(step: Step) -> list[str]:
    """Its tool, and those of its alternatives."""
    return [step.tool, *(other["tool"] for other in step.alternatives)]


def timeline(of: Saga, *, after: int = 0) -> Timeline:
    """Up to STEPS_A_PAGE steps beyond position `after`, in order; `more_after` goes on."""
    found = list(
        Step.objects.filter(saga=of, position__gt=after)
        .select_related("tool_version")
        .order_by("position")[: STEPS_A_PAGE + 1]
    )
    steps = found[:STEPS_A_PAGE]
    frozen = freezes.over(of, {tool for step in steps for tool in tools_of(step)})
    rows = step_rows(of, steps, frozen)
    back = [row for row in rows if any(t.direction != "forward" for t in row.tries)]
    back.sort(key=lambda row: row.step.executed_seq or 0, reverse=True)
    return Timeline(
        saga=of,
        rows=rows,
        more_after=steps[-1].position if len(found) > STEPS_A_PAGE else 0,
        residue=left_by([of.pk]),
        freezes=[freeze for freeze in frozen if freeze.scope != "tool"],
        undone=back,
        deduplicated=deduplicated(of),
    )


def entries(
    of: Saga, *, before: int = 0, step_id: str = "", size: int = ENTRIES_A_PAGE
) -> tuple[list[Entry], int]:
    """Newest first, below seq `before` when given; and the next `before`, 0 at the end."""
    found = Entry.objects.filter(saga=of).order_by("-seq")
    if before:
        found = found.filter(seq__lt=before)
    if step_id:
        found = found.filter(step_id=step_id)
    some = list(found[: size + 1])
    return some[:size], some[size - 1].seq if len(some) > size else 0
