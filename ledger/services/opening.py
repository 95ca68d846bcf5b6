"""Opening a saga. The same task opened again is the same saga."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from django.conf import settings

from ledger import errors, faultpoints, keys, storage
from ledger.bearer import Bearer
from ledger.models.fields import uuid7
from ledger.services import remembering
from ledger.services.preparing import prepare
from ledger.services.proposals import Answer, Opened, Opening
from ledger.services.proposing import heed_denials, propose_in
from ledger.services.unit import Unit

INSERT_SAGA = """
INSERT INTO ledger_saga (
    id, agent_id, task_id, name, opened_digest, metadata, webhook, state, fence, step_count,
    retry_budget, retries_used, started_by, ended_backward_why, head_seq, head_hash, created_at,
    updated_at
)
SELECT
    %(id)s, %(agent)s, %(task_id)s::text, %(name)s, %(digest)s, %(metadata)s::jsonb, %(webhook)s,
    'running', 0, 0, %(budget)s, 0, %(started_by)s, '', 0, repeat('0', 64), clock_timestamp(),
    clock_timestamp()
WHERE NOT EXISTS (
    SELECT 1 FROM ledger_tombstone t WHERE t.agent_id = %(agent)s AND t.task_id = %(task_id)s::text
)
ON CONFLICT (agent_id, task_id) DO NOTHING
"""


@storage.read_back
@storage.transition
def open_saga(opening: Opening, *, bearer: Bearer) -> Opened:
    """Open a saga with its first steps, all or nothing; opened again, the same saga.

    Raises Forbidden, TaskMismatch (other name or steps under this task_id), and whatever
    `propose` raises for one of the steps.
    """
    if not bearer.is_agent:
        raise errors.Forbidden("Only an agent's token can open sagas.")
    saga_id = uuid7()
    digest = keys.fingerprint(keys.canonical(_identity(opening)))
    if not _insert(saga_id, digest, opening, bearer):
        return _opened_before(digest, opening, bearer)
    unit = Unit(bearer.actor)
    unit.lock([saga_id])
    saga = unit.sagas[saga_id]
    unit.entry(
        saga,
        "saga.opened",
        state=saga.state.value,
        task_id=opening.task_id,
        name=opening.name,
        metadata=dict(opening.metadata),
        agent=bearer.agent_name,
        digest=digest,
    )
    answers: list[Answer] = []
    for index, proposal in enumerate(opening.steps):
        prepared = prepare(saga_id, proposal, bearer=bearer, place=f"/steps/{index}")
        try:
            answers.append(propose_in(unit, saga, prepared))
        except errors.EffectClaimed as error:
            raise _by_name(error, opening, answers) from None
        unit.flush()
    heed_denials(unit, saga, *answers)
    faultpoints.reached("P1")
    unit.flush()
    return Opened(saga_id, True, tuple(answers))


def _by_name(
    error: errors.EffectClaimed, opening: Opening, answers: list[Answer]
) -> errors.EffectClaimed:
    """The refusal of a whole opening: an id of a step in it would lead nowhere, its name does."""
    mine = {str(answer.step): step for answer, step in zip(answers, opening.steps, strict=False)}
    first = mine.get(error.extra["effect_of"])
    if first is None:
        return error
    told = {name: at for name, at in error.extra.items() if name not in ("effect_of", "step")}
    return errors.EffectClaimed(
        f"Steps {first.step_id!r} and {opening.steps[len(answers)].step_id!r} claim "
        "one effect with different arguments, so nothing was opened. Leave one of them out; if a "
        "second effect is really wanted, propose it afterwards with repeat_of and a reason.",
        **told,
    )


def _insert(saga_id: UUID, digest: str, opening: Opening, bearer: Bearer) -> bool:
    budget = settings.SAGA_RETRY_BUDGET if opening.retry_budget is None else opening.retry_budget
    values = {
        "id": saga_id,
        "agent": bearer.agent_id,
        "task_id": opening.task_id,
        "name": opening.name,
        "digest": digest,
        "metadata": json.dumps(opening.metadata),
        "webhook": opening.webhook,
        "budget": budget,
        "started_by": _starter(opening, bearer),
    }
    return storage.execute(INSERT_SAGA, values) == 1


def _starter(opening: Opening, bearer: Bearer) -> str:
    """The person for whom the agent works, when it says so; that person may not decide on it.

    Saying it can only take a right away, so the agent's word is enough.
    """
    named = opening.metadata.get("started_by")
    return named[:200] if isinstance(named, str) else bearer.actor


def _opened_before(digest: str, opening: Opening, bearer: Bearer) -> Opened:
    found = storage.row(
        "SELECT id, opened_digest, name FROM ledger_saga WHERE agent_id = %s AND task_id = %s",
        [bearer.agent_id, opening.task_id],
    ) or remembering.task(bearer.agent_id, opening.task_id)
    if found is None:  # pragma: no cover - its inserter rolled back between our two statements
        raise errors.StepInFlight("The saga is just being opened; ask again.")
    if found.opened_digest != digest and not _fits_older(found, opening):
        raise errors.TaskMismatch(
            f"The task {opening.task_id!r} was opened before with another name or other steps. "
            "Open it with exactly those again, or use a new task_id.",
            saga=str(found.id),
            recorded_name=found.name,
        )
    return Opened(found.id, False)


def _fits_older(found: Any, opening: Opening) -> bool:
    """Whether an earlier release, whose digest told of no alternatives, opened exactly this."""
    if found.opened_digest != keys.fingerprint(keys.canonical(_identity(opening, older=True))):
        return False
    return storage.the_row(_TOLD_OF_MORE, [found.id]).more is not False


# Today a saga with such steps has a digest that tells of them. NULL of one that is archived.
_TOLD_OF_MORE = """
SELECT bool_or(alternatives <> '[]'::jsonb OR repeat_of_id IS NOT NULL) AS more
FROM ledger_step WHERE saga_id = %s
"""


def _identity(opening: Opening, *, older: bool = False) -> dict[str, Any]:
    """What makes two openings the same: name and steps, not the metadata around them."""
    steps = []
    for step in opening.steps:
        told: dict[str, Any] = {"step_id": step.step_id, "tool": step.tool, "args": step.args}
        # Left out when there are none, so that what is recorded stays the same.
        if step.alternatives and not older:
            told["alternatives"] = [{"tool": o.tool, "args": o.args} for o in step.alternatives]
        if step.repeat_of and not older:
            told["repeat_of"] = str(step.repeat_of)
        steps.append(told)
    return {"name": opening.name, "steps": steps}
