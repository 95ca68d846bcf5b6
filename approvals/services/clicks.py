"""What a person sends as an answer, and what is wrong with it whatever the request is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from approvals.models import Approval
from approvals.states import Answer
from approvals.surface import Surface
from ledger.bearer import Bearer
from ledger.errors import InvalidArgs
from ledger.reasons import reason_fault
from ledger.states import Direction


@dataclass(frozen=True, slots=True)
class Click:
    """An answer to what somebody was shown.

    `args`: the version that they approve instead. `incident`: why they approve it alone.
    """

    bearer: Bearer
    request: UUID
    answer: Answer
    args_digest: str
    reason: str
    via: Surface
    args: Mapping[str, Any] | None = None
    incident: str = ""


@dataclass(frozen=True, slots=True)
class Decided:
    """It is recorded. `replayed`: it had been, by the same person, and nothing changed.

    `request` is the request that the answer counts for: after an edit, the new one.
    """

    request: UUID
    replayed: bool


def fault(click: Click, request: Approval) -> InvalidArgs | None:
    """What is wrong with the answer itself, whatever state the request is in."""
    if wrong := reason_missing(click.reason, click.answer != Answer.APPROVE, request):
        return wrong
    if request.direction == Direction.FORWARD:
        return None
    if click.answer == Answer.CHANGE:
        return InvalidArgs(
            "Only the agent's own step can be sent back for a change. This is the answer to its "
            "effect: approve or reject it.",
            errors=[],
        )
    if click.args is not None:
        return InvalidArgs(
            "Only the agent's own step can be edited. An undo is fed with the recorded result of "
            "what it undoes: approve or reject it.",
            errors=[{"pointer": "/args", "detail": "not taken for an undo"}],
        )
    return None


def reason_missing(reason: str, is_no: bool, request: Approval) -> InvalidArgs | None:
    """What is wrong with the reason; a no needs one, and a yes where the rule says so."""
    needs_reason = is_no or request.require_reason
    found = reason_fault(reason) if needs_reason or reason.strip() else ""
    if not found:
        return None
    return InvalidArgs(
        f"A reason is needed: say why in `reason`. The agent and the ledger keep it. It {found}.",
        errors=[{"pointer": "/reason", "detail": found}],
    )
