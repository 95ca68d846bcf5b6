"""What an operator may do about a step that cannot go on by itself, and what each act means.

One table for the service that carries it out, the API that lists it and the pages that show
it: what is not offered here is refused there. Pure: no Django, no database, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ledger.states import STEP_FINISHED, Direction, StepState


class Action(StrEnum):
    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"
    END_SAGA = "end_saga"
    RETRY = "retry"
    EDIT = "edit"
    CONFIRM = "confirm"
    SKIP = "skip"
    ACKNOWLEDGE = "acknowledge"


class Trouble(StrEnum):
    """Why a step does not go on by itself."""

    # Nobody knows whether its last attempt had an effect.
    DOUBT = "doubt"
    # A dead letter: it is not tried again by itself.
    STUCK = "stuck"
    # No code here may run it.
    PARKED = "parked"
    # Its next try, or look, waits for its time.
    DELAYED = "delayed"
    # It is settled, and what was heard later says otherwise.
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class Facts:
    """All that decides what may be done about a step. `direction` is what it tries now."""

    state: StepState
    direction: Direction = Direction.FORWARD
    residue: bool = False
    held: bool = False
    # An attempt is out now; and: what one came to is not known, whatever the step's state.
    in_flight: bool = False
    in_doubt: bool = False
    delayed: bool = False
    parked: bool = False
    # Today's code differs from the recorded one, and the stored args fit it.
    confirmable: bool = False
    # Today's code exists under the tool's name.
    installed: bool = True
    can_look: bool = False
    past_pivot: bool = False
    going_back: bool = False
    # Its args were changed behind the ledger, or its key is spent: another try is refused.
    damaged: bool = False
    spent: bool = False

    @property
    def trouble(self) -> Trouble | None:
        """What is wrong, or None: nothing that an operator could answer for."""
        if self.state in STEP_FINISHED:
            return Trouble.CONTRADICTED if self.held else None
        if self.residue or self.in_flight:
            return None
        if self.state == StepState.UNKNOWN or self.in_doubt:
            return Trouble.DOUBT
        if self.state == StepState.STUCK:
            return Trouble.STUCK
        if self.state not in {StepState.QUEUED, StepState.COMPENSATING}:
            return None
        if self.parked:
            return Trouble.PARKED
        return Trouble.DELAYED if self.delayed else None

    @property
    def is_forward(self) -> bool:
        return self.direction == Direction.FORWARD


@dataclass(frozen=True, slots=True)
class Offer:
    """One act that is allowed now: what its button says, what it does, and what it does not."""

    action: Action
    label: str
    does: str
    does_not: str
    danger: bool = False


def offers(facts: Facts) -> tuple[Offer, ...]:
    """What may be done now, the usual first."""
    trouble = facts.trouble
    if trouble is None:
        return ()
    if trouble == Trouble.DELAYED:
        return (_RETRY_NOW,)
    if trouble == Trouble.CONTRADICTED:
        return (_ACKNOWLEDGE,)
    found = _forward(facts, trouble) if facts.is_forward else _backward(facts, trouble)
    return tuple(offer for offer, allowed in found if allowed)


_RETRY_NOW = Offer(
    Action.RETRY,
    "Try now",
    "The next try, or look, starts at once instead of when its time has come.",
    "It gives no further tries, and changes nothing about what is sent.",
)
_ACKNOWLEDGE = Offer(
    Action.ACKNOWLEDGE,
    "I have dealt with it",
    "Your reason is recorded, and the step leaves this list.",
    "It undoes nothing at the target, and what is recorded about the step stays as it is.",
)
_LOOK = Offer(
    Action.RETRY,
    "Look again now",
    "The target is asked once more whether the effect is there.",
    "Nothing is sent again by this.",
)
_CONFIRM = Offer(
    Action.CONFIRM,
    "Run it under today's code",
    "Your yes counts for exactly the code that is named here. The step goes on under it, with "
    "the arguments and the key that are recorded.",
    "It is no yes to any later change, and none to the step itself if people must approve it.",
)


def _forward(facts: Facts, trouble: Trouble) -> list[tuple[Offer, bool]]:
    doubt, dead = trouble == Trouble.DOUBT, trouble == Trouble.STUCK
    sound = not facts.damaged and not facts.spent
    goes_back = facts.going_back or not facts.past_pivot
    return [
        (_CONFIRM, facts.confirmable and sound),
        (_LOOK, doubt and facts.can_look and not facts.parked),
        (_RETRY, dead and sound and not facts.parked and not facts.going_back),
        (_happened(doubt), True),
        (_did_not_happen(facts) if doubt else _leave_out(goes_back), not facts.spent),
        (_EDIT, not doubt and sound and facts.installed and not facts.going_back),
        (_end(doubt), not facts.going_back and (doubt or facts.past_pivot or facts.spent)),
        (_GIVE_UP, doubt and facts.going_back),
    ]


_RETRY = Offer(
    Action.RETRY,
    "Try again",
    "It runs again from its first try, with the same arguments under the same key; if people must "
    "approve it, they are asked anew.",
    "It does not change what is sent.",
)
_EDIT = Offer(
    Action.EDIT,
    "Try again with other arguments",
    "Your version takes the place of the old one under a new digest and a new key, goes through "
    "the gate, and runs. The old one stays in the ledger, superseded.",
    "It cannot become another effect: for that the agent proposes another step.",
)


def _happened(doubt: bool) -> Offer:
    if doubt:
        return Offer(
            Action.HAPPENED,
            "It happened",
            "The step is committed with the result that you give, and the saga goes on.",
            "Nothing is sent to the target. It cannot be taken back.",
        )
    return Offer(
        Action.HAPPENED,
        "I have done it by hand",
        "The step is committed with the result that you give, its key is spent, and the saga goes "
        "on. If the saga is ever undone, its undo is given this result.",
        "Nothing is sent to the target. It cannot be taken back.",
    )


def _did_not_happen(facts: Facts) -> Offer:
    after = (
        "It is recorded as failed, and the saga goes on undoing the others."
        if facts.going_back
        else "It counts as a failed try: it is tried again under the same key while tries are left "
        "(people are asked anew if they must approve it), else its alternatives are."
    )
    return Offer(
        Action.DID_NOT_HAPPEN,
        "It did not happen",
        after,
        "If you are wrong, an effect stays in the world that nobody undoes, or happens twice. It "
        "cannot be taken back.",
    )


def _leave_out(goes_back: bool) -> Offer:
    after = (
        "the saga turns back: what was done before it is undone"
        if goes_back
        else "the saga goes on with the next step"
    )
    return Offer(
        Action.DID_NOT_HAPPEN,
        "Leave it out",
        f"The step is recorded as failed, without an effect, and {after}.",
        "Nothing is sent to the target for this step, now or later.",
        danger=goes_back,
    )


def _end(doubt: bool) -> Offer:
    left = (
        "This step stays unknown and is listed as residue"
        if doubt
        else "This step is recorded as failed"
    )
    return Offer(
        Action.END_SAGA,
        "End the saga",
        f"{left}; the saga turns back and undoes what can be undone.",
        "It does not find out whether the effect is there."
        if doubt
        else "Effects up to the commitment point stay in the world and are listed as residue.",
        danger=True,
    )


_GIVE_UP = Offer(
    Action.END_SAGA,
    "Stop finding out",
    "This step stays unknown and is listed as residue; the saga goes on undoing the others.",
    "It does not find out whether the effect is there, and undoes nothing of it.",
    danger=True,
)


def _backward(facts: Facts, trouble: Trouble) -> list[tuple[Offer, bool]]:
    doubt = trouble == Trouble.DOUBT
    what = "correction" if facts.direction == Direction.CORRECT else "undo"
    sound = not facts.damaged and not facts.spent
    again = trouble == Trouble.STUCK and sound and not facts.parked
    return [
        (_CONFIRM, facts.confirmable and sound),
        (_LOOK, doubt and facts.can_look and not facts.parked),
        (_undo_again(what), again),
        (_undone(what, doubt), True),
        (_not_undone(what), doubt and not facts.spent),
        (_skip(what), True),
    ]


def _undo_again(what: str) -> Offer:
    return Offer(
        Action.RETRY,
        f"Try the {what} again",
        f"The {what} runs again from its first try, with the recorded result under the same key.",
        "It does not change what is sent, and the steps below it still wait.",
    )


def _undone(what: str, doubt: bool) -> Offer:
    return Offer(
        Action.HAPPENED,
        f"The {what} happened" if doubt else f"I have done the {what} by hand",
        f"The {what} is recorded as done, and the saga goes on with the step below.",
        "Nothing is sent to the target. It cannot be taken back.",
    )


def _not_undone(what: str) -> Offer:
    return Offer(
        Action.DID_NOT_HAPPEN,
        f"The {what} did not happen",
        f"The {what} is tried again at once, under the same key.",
        f"If you are wrong, the {what} is sent twice. It cannot be taken back.",
    )


def _skip(what: str) -> Offer:
    return Offer(
        Action.SKIP,
        f"Skip the {what}",
        "The effect stays in the world and is listed as residue; the saga goes on with the step "
        "below.",
        f"The {what} is never tried again.",
        danger=True,
    )
