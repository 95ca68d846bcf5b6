"""At the claim: whether a yes to exactly this still stands (design section 6, "Bound")."""

from __future__ import annotations

from approvals import rights
from approvals.models import Approval
from approvals.policy import current
from approvals.queries import CLOCK
from approvals.states import ApprovalState
from ledger import storage
from ledger.gate import Held, NotYet
from ledger.states import Direction


@storage.transition
def recheck(held: Held) -> str | NotYet:
    """'' when it may run now; else the reason, which the next request shows.

    NotYet while the yes can still be taken back.
    An undo about which nobody was ever asked may run. The yes is used up by the database,
    when the attempt is written (approvals/walls.py): a claim that comes to nothing costs no yes.
    Until then the row is locked, so that nothing but the clock can end the yes in between.
    """
    request = (
        Approval.objects.filter(step_id=held.step, direction=held.direction)
        .select_related("saga__agent")
        .select_for_update(of=("self",))
        .annotate(**CLOCK)
        .order_by("-id")
        .first()
    )
    if request is None:
        if held.direction == Direction.FORWARD:
            return "Nobody was asked about this step."
        return ""
    if request.state != ApprovalState.APPROVED:
        return f"The last request about it is {request.state}."
    if changed := _differences(held, request):
        return f"Since the yes, {' and '.join(changed)} changed."
    if request.runs_from is not None and request.runs_from > request.now:
        return NotYet((request.runs_from - request.now).total_seconds())
    if request.yes_until is None or request.yes_until <= request.now:
        return "The yes was not used in time."
    if not rights.is_answered(request):
        return "Those who said yes are no longer enough: their rights have changed."
    return ""


def _differences(held: Held, request: Approval) -> list[str]:
    pairs = {
        "the arguments": (held.args_digest, request.args_digest),
        "the tool": (held.tool, request.tool),
        "the tool's version": (held.tool_digest, request.tool_digest),
        "the key that the target sees": (held.idempotency_key, request.idempotency_key),
        "the policy": (current().digest, request.policy_digest),
    }
    return [what for what, (now, then) in pairs.items() if now != then]
