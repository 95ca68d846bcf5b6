"""A person's version of what waits for a yes: it supersedes the agent's, under its own digest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from ledger import errors, storage
from ledger.gate import Verdict
from ledger.rows import SAGA_AND_STEP_COLUMNS, SAGA_WIDTH, SagaRow, StepRow, Variant
from ledger.services.asking import ask
from ledger.services.editing import edited, edited_by, judged, supersede
from ledger.services.tooling import Parked, tool_to_run
from ledger.services.unit import Superseded, Unit
from ledger.states import Direction, StepState
from ledger.tools.contract import Tool

Strengthen = Callable[[Verdict], Verdict]

_READ = (
    f"SELECT {SAGA_AND_STEP_COLUMNS} FROM ledger_step s "  # noqa: S608 - the columns are ours
    "JOIN ledger_saga g ON g.id = s.saga_id JOIN ledger_agent a ON a.id = g.agent_id "
    "JOIN ledger_toolversion v ON v.digest = s.tool_version_id WHERE s.id = %s"
)


@dataclass(frozen=True, slots=True)
class Draft:
    """An edited version that could be asked about: what would run, and who must agree.

    `is_news`: whether it differs from what the step would run now.
    """

    variant: Variant
    verdict: Verdict
    is_news: bool


def draft(step_id: UUID, args: Any, *, strengthen: Strengthen, actor: str) -> Draft:
    """Look at a version without writing anything. Raises InvalidArgs, PreviouslyRejected."""
    found = storage.the_row(_READ, [step_id])
    saga = SagaRow(*found[:SAGA_WIDTH])
    return _draft(saga, StepRow(*found[SAGA_WIDTH:]), args, strengthen, actor)[0]


def digest_of(step_id: UUID, args: Any) -> str:
    """The digest that `args` would have as a version of this step. Raises InvalidArgs."""
    step = StepRow(*storage.the_row(_READ, [step_id])[SAGA_WIDTH:])
    return edited(step, _tool(step), args).fingerprint


def edit(
    step_id: UUID, args: Any, *, strengthen: Strengthen, actor: str, payload: dict[str, Any]
) -> UUID:
    """Write the version and put it to people as a new request; the old one is superseded.

    `strengthen` may make the gate's verdict on it harder to meet. Joins the gate's own
    transaction. Raises InvalidArgs, PreviouslyRejected; Superseded when the step waits no more.
    """
    unit = Unit(actor)
    unit.lock_with_steps([step_id])
    step = unit.steps[step_id]
    saga = unit.sagas[step.saga_id]
    if step.state != StepState.AWAITING_APPROVAL:
        raise Superseded
    found, tool = _draft(saga, step, args, strengthen, actor)
    told = {"direction": Direction.FORWARD.value, "edited_digest": found.variant.fingerprint}
    unit.entry(saga, "approval.edited", step, **payload, **told)
    unit.flush()
    new = replace(found.variant, verdict=found.verdict.kind)
    by = actor.removeprefix("person:")
    step = supersede(unit, step, tool, new, found.verdict.rule, by=by)
    request = ask(unit, saga, step, Direction.FORWARD, found.verdict, why=edited_by(actor))
    unit.flush()
    return request


def _draft(
    saga: SagaRow, step: StepRow, args: Any, strengthen: Strengthen, actor: str
) -> tuple[Draft, Tool]:
    tool = _tool(step)
    new = edited(step, tool, args)
    is_news = new.fingerprint != step.variant.fingerprint
    verdict = strengthen(judged(saga, step, new, edited_by(actor)))
    return Draft(new, verdict, is_news), tool


def _tool(step: StepRow) -> Tool:
    """The code that the person was shown and that will run: never a newer one by the way."""
    tool = tool_to_run(step, Direction.FORWARD)
    if isinstance(tool, Parked):
        raise errors.InvalidArgs(f"It cannot be edited now. {tool.why}", errors=[])
    return tool
