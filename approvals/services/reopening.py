"""Reopening: a person lets an agent ask once more for what people have rejected.

The rejection stays what it was. The same action may be proposed again, under a new name, and is
put to people whatever the policy says.
"""

from __future__ import annotations

from uuid import UUID

from approvals import rights, sentences
from approvals.models import Approval
from approvals.queries import CLOCK
from approvals.services import entitling
from approvals.services.clicks import Decided
from approvals.services.locking import lock_saga_of
from approvals.states import ApprovalState
from approvals.surface import CONSOLE, Surface
from ledger import storage
from ledger.bearer import Bearer
from ledger.errors import AlreadyDecided, Forbidden, InvalidArgs, NotFound, SagaEnded, StaleDigest
from ledger.reasons import needed
from ledger.services import gating
from ledger.states import Direction

_REOPENED = """
SELECT actor, at FROM ledger_entry WHERE saga_id = %s AND step_id = %s
    AND kind = 'approval.reopened' LIMIT 1
"""


@storage.transition
def reopen(
    bearer: Bearer, approval_id: UUID, *, args_digest: str, reason: str, via: Surface = CONSOLE
) -> Decided:
    """Take back that this is refused in its saga from now on; a second time is a replay.

    Raises NotFound, Forbidden, InvalidArgs (no reason, or an undo), StaleDigest, AlreadyDecided
    (it was not rejected), SagaEnded (its saga takes no more steps, so nobody could ask again).
    """
    if not lock_saga_of(approval_id):
        raise NotFound(f"There is no request {approval_id}.")
    request = (
        Approval.objects.select_related("saga__agent", "step").annotate(**CLOCK).get(pk=approval_id)
    )
    is_allowed, why_not = rights.can_decide(rights.who(bearer), request)
    if not is_allowed:
        raise Forbidden(why_not)
    needed(reason, why="say why it may be asked for again")
    if request.direction != Direction.FORWARD:
        raise InvalidArgs("An undo is not proposed by an agent: there is nothing to reopen.")
    if args_digest != request.args_digest:
        raise StaleDigest(
            sentences.stale(), current_digest=request.args_digest, sent_digest=args_digest
        )
    if request.state != ApprovalState.REJECTED:
        raise AlreadyDecided(
            f"Only what people rejected can be reopened; this request is {request.state}.",
            state=request.state,
        )
    name = request.step.step_id
    if storage.row(_REOPENED, [request.saga_id, name]) is not None:
        return Decided(request.pk, replayed=True)
    if why_no_more := request.saga.why_no_more_steps:
        raise SagaEnded(
            f"Reopening would not help: {why_no_more}, so it takes no more steps and nothing can "
            "be asked for again in it. For new work the agent opens a saga under a new task_id.",
            saga=str(request.saga_id),
            state=request.saga.state,
        )
    if refusal := entitling.absent(request.blast_radius, via, request.now):
        raise refusal
    gating.journal(
        request.saga_id,
        "approval.reopened",
        step_id=name,
        actor=bearer.actor,
        payload={
            "approval": str(request.pk),
            "args_digest": request.args_digest,
            "rule": request.rule,
            "reason": reason.strip(),
            "via": via.name,
        },
    )
    return Decided(request.pk, replayed=False)
