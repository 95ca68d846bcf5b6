"""What operators answer and press, each once, each told with person and reason.

Every act goes through one guard: it must be among what is offered now (`ledger/actions.py`),
for the question that the person saw. One that comes second is told what is recorded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import UUID

from ledger import errors, keys, storage
from ledger.actions import Action
from ledger.queries.answers import Told, answers_of, last_state
from ledger.queries.shown import args_meant
from ledger.reasons import needed
from ledger.services import remedies
from ledger.services.cases import Case, case_of
from ledger.services.editing import edit
from ledger.services.unit import Unit

Resolution = Literal["happened", "did_not_happen", "end_saga"]


@dataclass(frozen=True, slots=True)
class Pressed:
    """One click, or one call: what a person says about a step.

    `question` is the one that they saw ('' for "whatever it is now"); `tool_digest` the code
    that they confirm; `args` what shall run instead.
    """

    action: Action
    reason: str
    actor: str
    question: str = ""
    result: Any = None
    args: Any = None
    tool_digest: str = ""

    def says(self) -> dict[str, Any]:
        """What makes two answers the same answer; the reason does not."""
        said: dict[str, Any] = {"answer": self.action.value}
        if self.action == Action.HAPPENED:
            said["result"] = self.result
        if self.action == Action.EDIT:
            said["args"] = self.args
        return said


@dataclass(frozen=True, slots=True)
class Answered:
    """`replayed`: it was said before, and nothing was done now; `by` and `entry` say where."""

    replayed: bool = False
    by: str = ""
    entry: int = 0


def resolve(
    step_id: UUID,
    answer: Resolution,
    *,
    result: Any = None,
    reason: str,
    actor: str,
    question: str = "",
) -> Answered:
    """Answer for a step in doubt, stuck or parked.

    Raises NotFound, InvalidArgs (no reason; a result outside the tool's schema),
    AlreadyDecided (settled, or answered otherwise; `decided` says by whom, when and why).
    """
    return press(step_id, Pressed(Action(answer), reason, actor, question, result))


def retry(
    step_id: UUID, *, reason: str, actor: str, question: str = "", args: Any = None
) -> Answered:
    """Try a step again, look again, or let a parked one run under today's code.

    With `args` the step runs with those instead, under a new digest and through the gate.
    Raises as `resolve` does.
    """
    action = Action.RETRY if args is None else Action.EDIT
    return press(step_id, Pressed(action, reason, actor, question, args=args))


def press(step_id: UUID, pressed: Pressed) -> Answered:
    """Carry out one act, once. Raises as `resolve` does, and StaleDigest for other code."""
    outcome = _press(step_id, pressed)
    if isinstance(outcome, errors.SagaError):
        # What came too late is in the ledger by now: raised inside, it would be undone.
        raise outcome
    return outcome


@storage.transition
def _press(step_id: UUID, pressed: Pressed) -> Answered | errors.SagaError:
    reason = needed(pressed.reason, why="say how you know")
    unit = Unit(pressed.actor)
    unit.lock_with_steps([step_id])
    step = unit.steps.get(step_id)
    if step is None:
        raise errors.NotFound(f"There is no step {step_id}.")
    case = case_of(unit.sagas[step.saga_id], step)
    if pressed.action == Action.EDIT:
        pressed = replace(pressed, args=_unmasked(case, pressed.args))
    action = _meant(case, pressed.action)
    if not case.allows(action) or pressed.question not in ("", case.question):
        return _too_late(unit, case, pressed, reason)
    if action == Action.RETRY and remedies.is_under_way(step):
        return Answered(replayed=True)
    _carry_out(unit, case, action, pressed, reason)
    unit.flush()
    return Answered()


def _unmasked(case: Case, args: Any) -> Any:
    """Who edits is shown no secrets: what comes back as it was shown is what it was."""
    now = case.step.variant
    return args_meant(args, now.args, now.tool, now.tool_digest)


def _meant(case: Case, action: Action) -> Action:
    """The wire has fewer words than there are acts: what `action` says about this step."""
    undo = not case.facts.is_forward
    if action == Action.RETRY and case.allows(Action.CONFIRM):
        return Action.CONFIRM
    if action == Action.END_SAGA and undo:
        return Action.SKIP
    if action == Action.DID_NOT_HAPPEN and undo and not case.allows(action):
        return Action.RETRY
    if action == Action.END_SAGA and not case.allows(action):
        return Action.DID_NOT_HAPPEN
    return action


def _carry_out(unit: Unit, case: Case, action: Action, pressed: Pressed, reason: str) -> None:
    saga, step = case.saga, case.step
    facts: dict[str, Any] = pressed.says() | {"reason": reason}
    if not remedies.only_hurries(case, action):
        # One answer a question, by the unique index over it (ledger_entry_one_answer).
        facts["question"] = case.question
    if action == Action.CONFIRM:
        facts["tool_digest"] = _confirmed(case, pressed)
    unit.entry(saga, _KINDS[pressed.action], step, **facts)
    match action:
        case Action.HAPPENED:
            remedies.happened(unit, case, pressed.result)
        case Action.DID_NOT_HAPPEN:
            remedies.did_not_happen(unit, case)
        case Action.END_SAGA:
            remedies.end_saga(unit, case, reason)
        case Action.RETRY:
            remedies.retry(unit, case)
        case Action.EDIT:
            edit(unit, case, pressed.args)
        case Action.CONFIRM:
            remedies.confirm(unit, case)
        case Action.SKIP:
            remedies.skip(unit, case, reason)
        case Action.ACKNOWLEDGE:
            remedies.acknowledge(unit, case)


_KINDS = {
    Action.HAPPENED: "operator.resolved",
    Action.DID_NOT_HAPPEN: "operator.resolved",
    Action.END_SAGA: "operator.resolved",
    Action.RETRY: "operator.retried",
    Action.EDIT: "operator.edited",
    Action.CONFIRM: "operator.confirmed",
    Action.SKIP: "operator.skipped",
    Action.ACKNOWLEDGE: "operator.acknowledged",
}


def _confirmed(case: Case, pressed: Pressed) -> str:
    """The digest of the code that the yes is for: what was shown, and is still installed."""
    if pressed.tool_digest not in ("", case.confirms):
        raise errors.StaleDigest(
            f"The code of {case.step.variant.tool} has changed again since you looked. Look at "
            "what it is now, then confirm that.",
            tool_digest=case.confirms,
        )
    return case.confirms


def _too_late(
    unit: Unit, case: Case, pressed: Pressed, reason: str
) -> Answered | errors.AlreadyDecided:
    """Somebody, or something, was first: the same answer is a replay, another is refused."""
    step = case.step
    told = answers_of(step.saga_id, step.step_id)
    earlier = _answer_to(case, told, pressed.question)
    if earlier is not None and _is_same(earlier, pressed):
        return Answered(True, earlier.actor, earlier.seq)
    fact = last_state(step.saga_id, step.step_id)
    if pressed.action == Action.RETRY and told and told[0].kind == "operator.retried":
        if told[0].seq > fact.seq and remedies.is_under_way(step):
            return Answered(True, told[0].actor, told[0].seq)
    fact = earlier or fact
    if pressed.action in remedies.ABOUT_THE_WORLD:
        _keep(unit, case, told, pressed, reason)
    return errors.AlreadyDecided(
        f"{_sentence(case, fact)} Nothing was changed by this.",
        state=step.state.value,
        decided=fact.document(),
    )


def _answer_to(case: Case, told: Sequence[Told], question: str) -> Told | None:
    """The answer to a question; without one the last answer, unless another question is open."""
    answers = [one for one in told if one.question]
    if question:
        return next((one for one in answers if one.question == question), None)
    return answers[0] if answers and case.trouble is None else None


def _is_same(earlier: Told, pressed: Pressed) -> bool:
    says = json.loads(keys.storable_facts(pressed.says()))  # as its entry would keep it
    said = {key: earlier.payload.get(key) for key in says}
    return keys.canonical(said) == keys.canonical(says)


def _sentence(case: Case, fact: Told) -> str:
    step, at = case.step, f"{fact.at:%Y-%m-%d %H:%M:%S} UTC (entry {fact.seq})"
    now = f"Step {step.step_id!r} is {step.state.value}."
    if fact.kind.startswith("operator."):
        who = fact.actor.removeprefix("person:")
        said = f"{who} said {fact.answer!r} at {at}: {fact.payload.get('reason', '')}"
        return f"{now} It was answered already: {said.rstrip('.')}."
    how = f", found by the {fact.payload['how']}" if fact.payload.get("how") else ""
    if case.trouble is None:
        return f"{now} It waits for no answer: {fact.kind}{how} at {at}."
    return f"{now} That cannot be done about it now; it is so since {at}."


def _keep(unit: Unit, case: Case, told: Sequence[Told], pressed: Pressed, reason: str) -> None:
    """A person's word about the world that came too late changes nothing, but is evidence."""
    said = {"said": pressed.action.value, "asked": pressed.question, "reason": reason}
    for one in told:
        if one.kind == "operator.late" and one.actor == pressed.actor:
            if all(one.payload.get(key) == value for key, value in said.items()):
                return
    unit.entry(case.saga, "operator.late", case.step, **said)
    unit.flush()
