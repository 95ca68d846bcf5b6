"""Edit and approve: a person's version takes the place of what was asked, and they say yes to it.

It is a new request about the same step, under its own digest and key, so a yes to the old digest
counts for nobody; the editor's is the first yes to the new one. It needs at least what the old
one needed (docs/decisions/0070-an-edit-is-a-new-request.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from approvals.models import Approval
from approvals.policy import current, terms_as_json
from approvals.rights import Person
from approvals.services import entitling, recording, unmasking
from approvals.services.clicks import Click, Decided, reason_missing
from approvals.services.explaining import explain
from ledger import faultpoints, storage
from ledger.bearer import Bearer
from ledger.errors import InvalidArgs, SagaError
from ledger.gate import Verdict
from ledger.services import gating_edits

# The one winner, as with every other answer: still asked, in time, and about what was shown.
_STILL_ASKED = """
SELECT id FROM approvals_approval
WHERE id = %s AND args_digest = %s AND state = 'pending' AND expires_at > clock_timestamp()
FOR UPDATE
"""


@dataclass(frozen=True, slots=True)
class Review:
    """What an edited version would be: shown before anybody says yes to it."""

    args_text: str
    digest: str
    idempotency_key: str
    rule: str
    needs: list[dict[str, Any]]
    require_reason: bool
    is_news: bool


def review(bearer: Bearer, request: Approval, args: Any) -> Review:
    """Check a version as `edit` would; nothing is written. Raises as `edit` does."""
    stronger = _at_least(request)
    said = unmasking.meant(request, args)
    found = gating_edits.draft(request.step_id, said, strengthen=stronger, actor=bearer.actor)
    return Review(
        args_text=found.variant.args_text,
        digest=found.variant.fingerprint,
        idempotency_key=found.variant.idempotency_key,
        rule=found.verdict.rule,
        needs=list(found.verdict.terms["need"]),
        require_reason=bool(found.verdict.terms.get("require_reason")),
        is_news=found.is_news,
    )


def edit(click: Click, request: Approval, person: Person) -> Decided | SagaError:
    """Supersede the request by one about `click.args`, with this person's yes.

    Joins the deciding transaction, under the saga's lock. Raises InvalidArgs,
    PreviouslyRejected, Superseded; then nothing is written.
    """
    if storage.row(_STILL_ASKED, [request.pk, click.args_digest]) is None:
        return explain(click, person)
    digest = gating_edits.digest_of(request.step_id, click.args)
    if digest == request.args_digest:
        # The same arguments once more are no edit: a yes to what was shown.
        return recording.answer(click, request, person)
    told = {
        "approval": str(request.pk),
        "answer": click.answer.value,
        "args_digest": click.args_digest,
        "policy": request.policy_digest,
        "rule": request.rule,
        "reason": click.reason.strip(),
        "via": click.via.name,
    }
    actor = click.bearer.actor
    new = gating_edits.edit(
        request.step_id, click.args, strengthen=_at_least(request), actor=actor, payload=told
    )
    asked = Approval.objects.select_related("saga__agent", "step").get(pk=new)
    if wrong := reason_missing(click.reason, False, asked):
        raise wrong
    given = entitling.voice(person, asked, click.answer, click.incident)
    if isinstance(given, SagaError):
        raise given
    if not recording.say(replace(click, request=new, args_digest=digest), asked, given):
        raise InvalidArgs("The edited version cannot be approved in time.", errors=[])
    faultpoints.reached("P23", click.answer)
    return Decided(new, replayed=False)


def _at_least(request: Approval) -> Callable[[Verdict], Verdict]:
    """The gate's verdict on the edited version, never easier to meet than the old request."""

    def strengthen(verdict: Verdict) -> Verdict:
        terms = dict(verdict.terms or terms_as_json(current().terms))
        same_rule = (verdict.rule, verdict.policy_digest) == (request.rule, request.policy_digest)
        if same_rule:
            # Also after an escalation: those are asked who are asked now.
            terms["need"] = list(request.needs)
            terms["escalate_to"] = request.escalate_to
        else:
            terms["need"] = _most(list(request.needs), terms["need"])
        terms["require_reason"] = request.require_reason or bool(terms.get("require_reason"))
        delay_s = request.delay.total_seconds()
        terms["delay_s"] = max(delay_s, float(terms.get("delay_s", 0)))
        return replace(verdict, terms=terms)

    return strengthen


def _most(*needs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every group that any of them names, with the greatest count."""
    counts: dict[str, int] = {}
    for need in (one for each in needs for one in each):
        counts[need["group"]] = max(need["count"], counts.get(need["group"], 0))
    return [{"group": group, "count": count} for group, count in counts.items()]
