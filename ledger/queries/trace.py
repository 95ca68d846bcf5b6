"""A saga as an approval-control trace: what was proposed, shown, answered, sent and stopped.

The format is agentack's, schema 2: one JSON object a line, checked by `agentack check`. It is
told from the ledger's entries alone, in their order, and what ran is told from the intents
that workers wrote before they called out. Nothing is copied from a proposal to an execution,
so a checker that compares the two compares two facts.

An action is one thing that a step may run: its first version, each revision, each alternative,
its undo. What the entries do not say is left out, and the checker reports it as missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ledger import keys
from ledger.queries.documents import Document, stamp
from ledger.queries.shown import args_of
from ledger.states import Direction, StepState
from ledger.storage import rows

SCHEMA_VERSION = 2
# agentack refuses a line over 1,000,000 bytes, and parameters nested deeper than 20 levels.
MAX_PARAMETERS = 900_000
MAX_DEPTH = 20
# Entries read at a time: a trace of any length takes the memory of one page.
PAGE = 200
# Stands where the ledger holds no request for a run that it says needed one.
NO_REQUEST = "no request in the ledger"

_ENTRIES = """
SELECT seq, kind, step_id, at, payload FROM ledger_entry
WHERE saga_id = %s AND seq > %s ORDER BY seq LIMIT %s
"""
# A later no beats an unused yes, and a trace has room for one answer: the last.
_REFUSED = """
SELECT payload::jsonb ->> 'approval' AS approval FROM ledger_entry
WHERE saga_id = %s AND kind IN ('approval.rejected', 'approval.expired')
"""


def lines(saga_id: UUID) -> Iterator[bytes]:
    """The trace of a saga, a line at a time. Without `session_end` while it has not ended."""
    refused = frozenset(row.approval for row in rows(_REFUSED, [saga_id]))
    teller = _Teller(str(saga_id), refused)
    after = 0
    while found := rows(_ENTRIES, [saga_id, after, PAGE]):
        for entry in found:
            for event in teller.tell(entry):
                yield json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        after = found[-1].seq


@dataclass(slots=True)
class _Ask:
    """The newest request about an action. `until`: when an unused yes ends, as RFC 3339."""

    id: str
    is_answered: bool = False
    until: str = ""


@dataclass(slots=True)
class _Action:
    """One thing that a step may run, and how far the trace has told of it."""

    id: str
    intent: str
    shape: Document
    must_ask: bool = False
    ask: _Ask | None = None
    sent: tuple[str, Document] | None = None
    may_send_again: bool = False
    is_blocked: bool = False


class _Teller:
    """Turns entries into events. `refused`: requests whose last answer was a no."""

    def __init__(self, saga: str, refused: frozenset[str]) -> None:
        self._saga = saga
        self._refused = refused
        self._actions: dict[tuple[str, str], _Action] = {}
        self._versions: dict[tuple[str, str], int] = {}
        self._events: list[Document] = []
        self._at = ""

    def tell(self, entry: Any) -> list[Document]:
        """The events that one entry stands for: none, one, or an answer and what it stops."""
        telling = _TELLING.get(entry.kind)
        if telling is None:
            return []
        self._events = []
        self._at = stamp(entry.at) or ""
        telling(self, entry.step_id, json.loads(entry.payload))
        return self._events

    # -- entries ----------------------------------------------------------------------

    def proposed(self, step_id: str, facts: Document) -> None:
        """A step, a revision of it, or the alternative that comes next."""
        before = self._actions.get((step_id, Direction.FORWARD))
        claim = facts.get("effect_key")
        intent = f"effect {claim}" if claim else f"step {step_id}"
        tool = facts.get("tool") or (before.shape["tool"] if before else "")
        action = self._propose(
            step_id,
            Direction.FORWARD,
            _shape(tool, Direction.FORWARD, facts),
            before.intent if before else intent,
        )
        asks = facts.get("verdict", "ask") != "allow"
        action.must_ask = asks and facts.get("state") == StepState.AWAITING_APPROVAL
        if facts.get("state") == StepState.REJECTED:
            self._block(action, f"the rule {facts.get('rule')!r} denies it")

    def undoing(self, step_id: str, facts: Document) -> None:
        """The effect of what ran is to be undone, or corrected."""
        direction = facts.get("direction")
        done = self._actions.get((step_id, Direction.FORWARD))
        if direction is None or done is None:
            return  # an operator tries an undo again that was proposed before
        shape = done.shape | {"operation": direction, "resource": facts.get("idempotency_key")}
        self._propose(step_id, direction, shape, f"{direction} of step {step_id}")

    def asked(self, step_id: str, facts: Document) -> None:
        action = self._action(step_id, facts)
        self._withdraw(action)
        action.ask = _Ask(facts["approval"])
        shown = _shape(facts["tool"], facts["direction"], facts)
        self._event("approval_requested", action, approval_id=action.ask.id, action=shown)

    def approved(self, step_id: str, facts: Document) -> None:
        action = self._action(step_id, facts)
        if facts["approval"] in self._refused:
            return
        until = facts.get("yes_until") or ""
        if action.ask and action.ask.id == facts["approval"]:
            action.ask.is_answered, action.ask.until = True, until
        self._answer(action, facts["approval"], "allow", **({"expires_at": until} if until else {}))

    def refused(self, step_id: str, facts: Document) -> None:
        """A no, silence until the end, or the wish for another version."""
        action = self._action(step_id, facts)
        if action.ask and action.ask.id == facts["approval"]:
            action.ask.is_answered = True
        self._answer(action, facts["approval"], "deny")
        self._block(action, facts.get("reason") or "the answer was no")

    def started(self, step_id: str, facts: Document) -> None:
        """A worker's intent, committed before it called out.

        Tries of one run, each after the one before had surely come to nothing or under a key
        that the target dedupes, are one execution, as long as nothing about them differs.
        """
        action = self._action(step_id, facts)
        ask = action.ask
        request = ask.id if ask else NO_REQUEST if action.must_ask else ""
        sent = (request, _shape(facts["tool"], facts["direction"], facts))
        is_in_time = ask is None or not ask.until or self._at <= ask.until
        is_same_run = action.may_send_again and sent == action.sent and is_in_time
        action.sent, action.may_send_again = sent, False
        if not is_same_run:
            approval = {"approval_id": request} if request else {}
            self._event("action_executed", action, **approval, action=sent[1])

    def came_to_nothing(self, step_id: str, facts: Document) -> None:
        self._action(step_id, facts).may_send_again = True

    def came_to_rest(self, step_id: str, facts: Document) -> None:
        """Nothing more runs for this step: what was never sent is told to be stopped."""
        reason = next((facts[name] for name in ("why", "error") if facts.get(name)), "not sent")
        for (step, _), action in list(self._actions.items()):
            if step == step_id:
                self._withdraw(action)
                self._block(action, str(reason))

    def ended(self, _: str, facts: Document) -> None:
        self._events.append(self._base("session_end") | {"reason": facts.get("state", "")})

    # -- events -----------------------------------------------------------------------

    def _action(self, step_id: str, facts: Document) -> _Action:
        direction = facts.get("direction", Direction.FORWARD)
        found = self._actions.get((step_id, direction))
        if found is None:
            # Told of before it was proposed: named all the same, and the checker will say so.
            found = _Action(f"{step_id}/{direction}/0", f"step {step_id}", {})
            self._actions[step_id, direction] = found
        return found

    def _propose(self, step_id: str, direction: str, shape: Document, intent: str) -> _Action:
        place = (step_id, direction)
        self._versions[place] = number = self._versions.get(place, 0) + 1
        action = _Action(f"{step_id}/{direction}/{number}", intent, shape)
        self._actions[place] = action
        self._event("action_proposed", action, action=shape)
        return action

    def _withdraw(self, action: _Action) -> None:
        """An open question that nobody will answer any more was not a yes."""
        if action.ask and not action.ask.is_answered:
            action.ask.is_answered = True
            self._answer(action, action.ask.id, "deny")

    def _answer(self, action: _Action, request: str, decision: str, **more: str) -> None:
        self._event("approval_decision", action, approval_id=request, decision=decision, **more)

    def _block(self, action: _Action, reason: str) -> None:
        """It will not run. An action that did run has had its end already."""
        if action.sent is not None or action.is_blocked:
            return
        action.is_blocked = True
        approval = {"approval_id": action.ask.id} if action.ask else {}
        self._event("action_blocked", action, **approval, reason=reason)

    def _event(self, kind: str, about: _Action, /, **more: Any) -> None:
        named = {"action_id": about.id, "intent_id": about.intent}
        self._events.append(self._base(kind) | named | more)

    def _base(self, kind: str) -> Document:
        return {
            "schema_version": SCHEMA_VERSION,
            "type": kind,
            "timestamp": self._at,
            "session_id": self._saga,
        }


_TELLING: dict[str, Callable[[_Teller, str, Document], None]] = {
    "step.proposed": _Teller.proposed,
    "step.revised": _Teller.proposed,
    "step.alternative": _Teller.proposed,
    "step.compensating": _Teller.undoing,
    "step.correcting": _Teller.undoing,
    "approval.requested": _Teller.asked,
    "approval.approved": _Teller.approved,
    "approval.rejected": _Teller.refused,
    "approval.expired": _Teller.refused,
    "approval.change_requested": _Teller.refused,
    "approval.edited": _Teller.refused,
    "attempt.started": _Teller.started,
    "step.retrying": _Teller.came_to_nothing,
    "step.sent_again": _Teller.came_to_nothing,
    "attempt.failed": _Teller.came_to_nothing,
    "attempt.sent_again": _Teller.came_to_nothing,
    "step.committed": _Teller.came_to_rest,
    "step.failed": _Teller.came_to_rest,
    "step.rejected": _Teller.came_to_rest,
    "step.cancelled": _Teller.came_to_rest,
    "step.compensated": _Teller.came_to_rest,
    "step.corrected": _Teller.came_to_rest,
    "step.residue": _Teller.came_to_rest,
    "saga.completed": _Teller.ended,
    "saga.compensated": _Teller.ended,
}


def _shape(tool: str, operation: str, facts: Document) -> Document:
    """An action as the entry has it. `resource` is the key that the target sees."""
    return {
        "tool": tool,
        "operation": operation,
        "resource": facts.get("idempotency_key"),
        "parameters": _parameters(tool, facts),
    }


def _parameters(tool: str, facts: Document) -> Document:
    """The args, when the entry holds them whole, a line has room and none is secret; else their
    digest: over what really ran."""
    args, digest = facts.get("args"), facts.get("args_digest")
    if isinstance(args, dict) and _depth(args) <= MAX_DEPTH:
        text = keys.canonical(args)
        if keys.fingerprint(text) == digest and len(text.encode()) <= MAX_PARAMETERS:
            if args_of(args, tool, str(facts.get("tool_digest", ""))) == args:
                return args
    return {"args_digest": digest}


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0
