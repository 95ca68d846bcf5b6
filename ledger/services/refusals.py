"""What an agent hears when people have decided against exactly what it asks for.

The refusal is a fact of the saga as well: it is told once for each name under which it was asked,
although nothing else is written (cases A14, C8).
"""

from __future__ import annotations

from typing import Any

from ledger import errors, storage
from ledger.rows import SagaRow
from ledger.services.answering import difference
from ledger.services.preparing import Prepared
from ledger.services.proposing_sql import REJECTIONS
from ledger.services.unit import Unit

# Refusals that are kept: somebody decided, and the agent asks all the same.
KEPT = (errors.PreviouslyRejected, errors.AlreadyDecided)

_NO = """
SELECT actor, at, payload::jsonb ->> 'reason' AS reason, payload::jsonb ->> 'approval' AS approval
FROM ledger_entry WHERE saga_id = %s AND step_id = %s AND kind = 'approval.rejected'
ORDER BY seq DESC LIMIT 1
"""
_TOLD = """
SELECT 1 FROM ledger_entry WHERE saga_id = %s AND step_id = %s AND kind = 'proposal.refused'
    AND payload::jsonb ->> 'of' = %s LIMIT 1
"""


def refuse_rejected(rejected: Any, saga: SagaRow) -> None:
    """A person said no to exactly this, and nobody has reopened it. Raises PreviouslyRejected."""
    said = storage.the_row(_NO, [rejected.saga_id, rejected.step_id])
    by = said.actor.removeprefix("person:")
    why_no_more = saga.why_no_more_steps
    then = (
        f"Nothing can be asked again here: {why_no_more}, and takes no more steps. Open a saga "
        "under a new task_id for new work."
        if why_no_more
        else "It stays refused in this saga until a person reopens it."
    )
    raise errors.PreviouslyRejected(
        f"{by} rejected exactly this as step {rejected.step_id!r}: {said.reason} {then}",
        step=str(rejected.id),
        decision={
            "by": by,
            "answer": "reject",
            "reason": said.reason,
            "at": said.at.isoformat(),
            "approval": said.approval,
        },
    )


def refuse_rejected_alternatives(saga: SagaRow, prepared: Prepared) -> None:
    """What a person rejected is not tried as another step's second choice either.

    Raises PreviouslyRejected.
    """
    for other in prepared.alternatives:
        named = {"saga": saga.id, "tool": other.tool, "fingerprint": other.fingerprint}
        for decided in storage.rows(REJECTIONS, named):
            if decided.why == "rejected":
                refuse_rejected(decided, saga)


def refuse_edited(prior: Any, prepared: Prepared) -> None:
    """A person approved this step with other arguments, and not with these.

    Raises AlreadyDecided when `prior` was what is asked for now, before it was edited.
    """
    for version in prior.former or ():
        same = (version["tool"], version["fingerprint"])
        if version.get("edited_by") and same == (prepared.tool.key, prepared.fingerprint):
            by = version["edited_by"]
            raise errors.AlreadyDecided(
                f"Already decided: edited. {by} changed the arguments of step {prior.step_id!r} "
                "before it was approved, so what you ask for does not run. Read the step: what it "
                "did is the answer.",
                decision={"by": by, "answer": "edited"},
                state=prior.state,
                **difference(prior, prepared),
            )


def keep(unit: Unit, saga: SagaRow, step_id: str, error: errors.SagaError) -> None:
    """Write down that it was asked for, once for each name."""
    of = str(error.extra.get("step", ""))
    if storage.row(_TOLD, [saga.id, step_id, of]) is None:
        decision = error.extra.get("decision") or {}
        unit.entry(saga, "proposal.refused", step_id, why=error.type, of=of, decision=decision)
