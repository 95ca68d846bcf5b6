"""Closing what a broken glass left open: somebody else looks at it and says what was found."""

from __future__ import annotations

from uuid import UUID

from approvals import rights
from approvals.models import Review
from approvals.services import spreading
from approvals.services.locking import lock_saga_of
from ledger import reasons, storage
from ledger.bearer import Bearer
from ledger.errors import AlreadyDecided, Forbidden, NotFound, SagaError
from ledger.services import gating, tokens

_CLOSE = """
UPDATE approvals_review SET closed_by_id = %(user)s, closed_name = %(name)s,
    closed_at = clock_timestamp(), finding = %(finding)s
WHERE id = %(id)s AND closed_at IS NULL AND opened_by_id <> %(user)s
RETURNING id
"""


def why_not_close(bearer: Bearer, review: Review) -> str:
    """Why this person may not close it, or ''."""
    if bearer.user_id is None:
        return "An agent's token can never close a review."
    if review.opened_by_id == bearer.user_id:
        return "You broke the glass: somebody else must close the review."
    if not (tokens.can_operate(bearer) or rights.may_break_glass(bearer.user_id)):
        return f"Closing a review needs the group {' or '.join(tokens.OPERATING_GROUPS)}."
    return ""


def close(bearer: Bearer, review_id: UUID, *, finding: str) -> None:
    """Close the review with what was found; the saga's ledger keeps it.

    Raises NotFound, Forbidden, InvalidArgs, AlreadyDecided.
    """
    said = reasons.needed(finding, "finding", "the review ends with it")
    outcome = _close(bearer, review_id, said)
    if outcome is not None:
        raise outcome


@storage.transition
def _close(bearer: Bearer, review_id: UUID, finding: str) -> SagaError | None:
    found = Review.objects.filter(pk=review_id).first()
    if found is None or not lock_saga_of(found.approval_id):
        return NotFound("There is no review with this id.")
    if why_not := why_not_close(bearer, found):
        return Forbidden(why_not)
    given = {"id": found.pk, "user": bearer.user_id, "name": bearer.username, "finding": finding}
    if storage.row(_CLOSE, given) is None:
        found.refresh_from_db()
        return AlreadyDecided(f"{found.closed_name} has closed this review already.")
    review = Review.objects.select_related("approval__step", "decision").get(pk=found.pk)
    gating.journal(
        review.approval.saga_id,
        "approval.reviewed",
        step_id=review.approval.step.step_id,
        actor=bearer.actor,
        payload={
            "approval": str(review.approval_id),
            "incident": review.decision.incident,
            "finding": finding,
        },
    )
    spreading.reviewed(review.approval)
    return None
