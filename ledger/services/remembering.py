"""What an archived saga still answers, from its tombstones: replays, and never a second effect.

Its chain is sealed, so that nothing is written into it any more: a repeat leaves no
`step.replayed` behind. One that another saga asks for is told in that saga's entries.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ledger import errors, storage
from ledger.bearer import Bearer
from ledger.services.answering import difference
from ledger.services.preparing import Prepared
from ledger.services.proposals import Answer

_TASK = """
SELECT saga_id AS id, opened_digest, name FROM ledger_tombstone
WHERE agent_id = %s AND task_id = %s ORDER BY seq DESC LIMIT 1
"""
_SAGA = """
SELECT t.saga_id AS id, t.task_id, t.state, t.at, x.name AS export FROM ledger_tombstone t
JOIN ledger_export x ON x.id = t.export_id
WHERE t.saga_id = %s AND t.agent_id = %s ORDER BY t.seq DESC LIMIT 1
"""
_STEP = """
SELECT id, saga_id, step_id, state, tool, fingerprint, NULL AS args_text
FROM ledger_steptombstone WHERE saga_id = %s AND step_id = %s
"""
_HOLDER = """
SELECT s.id, s.saga_id, s.step_id, s.state, s.tool, s.fingerprint, NULL AS args_text
FROM ledger_claimtombstone c JOIN ledger_steptombstone s ON s.id = c.step_id WHERE c.key = %s
"""


def task(agent_id: UUID | None, task_id: str) -> Any | None:
    """The archived saga of this task: `id`, `opened_digest`, `name`."""
    return storage.row(_TASK, [agent_id, task_id])


def saga(saga_id: UUID, bearer: Bearer) -> Any:
    """The archived saga: `id`, `task_id`, `state`, `at`, `export`. Raises NotFound."""
    found = storage.row(_SAGA, [saga_id, bearer.agent_id])
    if found is None:
        raise errors.NotFound(f"You have no saga {saga_id}.")
    return found


def answer(saga_id: UUID, prepared: Prepared, bearer: Bearer) -> Answer:
    """The answer to a step submitted to an archived saga.

    Raises NotFound, StepMismatch, EffectClaimed, SagaEnded.
    """
    archived = saga(saga_id, bearer)
    prior = storage.row(_STEP, [saga_id, prepared.proposal.step_id])
    if prior is not None:
        if not prepared.matches(prior):
            raise errors.StepMismatch(
                f"Step {prior.step_id!r} was submitted before with other arguments or another "
                "tool. Send exactly those again to get its answer.",
                **difference(prior, prepared),
            )
        return Answer("replayed", prior.id, args=prepared.args)
    holder = storage.row(_HOLDER, [prepared.claim]) if prepared.claim else None
    if holder is not None and prepared.matches(holder):
        return Answer("replayed", holder.id, holder.id, args=prepared.args)
    raise ended(archived)


def ended(archived: Any) -> errors.SagaEnded:
    """The refusal of anything new in an archived saga."""
    return errors.SagaEnded(
        f"The saga {archived.task_id!r} is {archived.state} and archived; it takes no more steps. "
        "Open a saga under a new task_id for new work.",
        saga=str(archived.id),
        state=archived.state,
        export=archived.export,
    )
