"""The forms of what an operator may do about a step: the same on every page that shows it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.urls import reverse

from ledger.actions import Action, Offer
from ledger.queries.shown import args_of
from ledger.rows import Variant
from ledger.services.cases import Case, cases

# Where each act is sent, and what its form says besides reason and question.
_FORMS: Mapping[Action, tuple[str, Mapping[str, str]]] = {
    Action.HAPPENED: ("resolve", {"answer": "happened"}),
    Action.DID_NOT_HAPPEN: ("resolve", {"answer": "did_not_happen"}),
    Action.END_SAGA: ("resolve", {"answer": "end_saga"}),
    Action.RETRY: ("retry", {}),
    Action.EDIT: ("retry", {}),
    Action.CONFIRM: ("confirm", {}),
    Action.SKIP: ("skip", {}),
    Action.ACKNOWLEDGE: ("acknowledge", {}),
}
_WHY = {
    Action.HAPPENED: "How do you know?",
    Action.DID_NOT_HAPPEN: "How do you know?",
    Action.RETRY: "Why now?",
    Action.EDIT: "Why these arguments?",
    Action.CONFIRM: "Why is today's code right for it?",
}


@dataclass(frozen=True, slots=True)
class Act:
    """One form. `wants` is what must be typed besides the reason: "result", "args" or "".

    `form` is its id on any page, and `about` what it is about, for whoever reads of it elsewhere.
    """

    offer: Offer
    form: str
    about: str
    url: str
    hidden: Mapping[str, str]
    why: str
    wants: str = ""
    prefilled: str = ""

    @property
    def name(self) -> str:
        """Unique within its step."""
        return self.offer.action.value


@dataclass(frozen=True, slots=True)
class Remedy:
    """A step in trouble with everything that may be pressed about it."""

    case: Case
    acts: Sequence[Act]


def remedies_for(step_ids: Iterable[UUID]) -> dict[UUID, Remedy]:
    """What may be done about these steps; those that need nothing are left out."""
    found = cases(step_ids)
    return {
        key: Remedy(case, [_act(case, offer) for offer in case.offers])
        for key, case in found.items()
        if case.offers
    }


def _act(case: Case, offer: Offer) -> Act:
    name, fixed = _FORMS[offer.action]
    hidden: dict[str, str] = {**fixed, "question": case.question}
    wants, prefilled = "", ""
    if offer.action == Action.CONFIRM:
        hidden["tool_digest"] = case.confirms
    elif offer.action == Action.EDIT:
        wants, prefilled = "args", _typed(case.step.variant)
    elif offer.action == Action.HAPPENED and case.facts.is_forward:
        wants = "result"
    return Act(
        offer=offer,
        form=f"{offer.action.value}-{case.step.id}",
        about=f"{case.step.step_id} of “{case.saga.name}”",
        url=reverse(f"ledger:{name}", args=[case.step.id]),
        hidden=hidden,
        why=_WHY.get(offer.action, "Why?"),
        wants=wants,
        prefilled=prefilled,
    )


def _typed(variant: Variant) -> str:
    shown = args_of(variant.args, variant.tool, variant.tool_digest)
    return json.dumps(shown, indent=2, ensure_ascii=False)
