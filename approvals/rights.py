"""Who may decide: one function for the page, the API, a link, bulk and the admin (case F1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model

from approvals.models import Approval, Decision
from approvals.quorum import Progress, is_met, progress
from approvals.states import Answer
from ledger.bearer import Bearer


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who asks to decide, with the groups that they are in now.

    An agent is a Person without an account: then `user_id` is None.
    """

    user_id: int | None
    username: str
    email: str = ""
    is_active: bool = False
    groups: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """Every way in which a saga may name this person as its starter, casefolded."""
        given = {self.username, f"person:{self.username}", self.email} - {""}
        return frozenset(name.strip().casefold() for name in given)


def who(bearer: Bearer) -> Person:
    """The caller as of now: account and groups are read again each time."""
    if bearer.is_agent or bearer.user_id is None:
        return Person(None, bearer.agent_name)
    gone = Person(bearer.user_id, bearer.username)
    return people([bearer.user_id]).get(bearer.user_id, gone)


def people(user_ids: Collection[int]) -> Mapping[int, Person]:
    """These accounts by their ids, in two statements."""
    users: Any = get_user_model().objects
    return {
        user.pk: Person(
            user_id=user.pk,
            username=user.get_username(),
            email=user.email,
            is_active=user.is_active,
            groups=frozenset(group.name for group in user.groups.all()),
        )
        for user in users.filter(pk__in=user_ids).prefetch_related("groups")
    }


def can_decide(person: Person, request: Approval) -> tuple[bool, str]:
    """Whether this person may answer this request, and if not, why not in a sentence.

    It is about the person alone; whether the request is still open is another question.
    Reads `request.saga.agent`: select it with the request when there are many.
    """
    if person.user_id is None:
        return False, "An agent's token can never decide. A person must do this."
    if not person.is_active:
        return False, "This account is not active."
    needed = sorted({need.group for need in request.asked_needs()})
    if not person.groups.intersection(needed):
        return False, f"This needs somebody of {_either(needed)}; {person.username} is not."
    saga = request.saga
    if saga.agent.owner_id == person.user_id:
        return False, f"{person.username} owns the agent {saga.agent.name}; another must decide."
    if saga.started_by.strip().casefold() in person.names:
        return False, f"{person.username} started this saga; another must decide."
    return True, ""


def _either(groups: list[str]) -> str:
    if not groups:
        return "nobody at all (no group is named)"
    return f"the group {groups[0]}" if len(groups) == 1 else f"the groups {' or '.join(groups)}"


def counted_yes(request: Approval, also: Person | None = None) -> Mapping[str, frozenset[str]]:
    """Those whose yes counts now, with their groups: every right is looked at again.

    `also` is somebody who is just saying yes.
    """
    said = Decision.objects.filter(approval=request, answer=Answer.APPROVE)
    found = dict(people(said.values_list("user_id", flat=True)))
    if also is not None and also.user_id is not None:
        found[also.user_id] = also
    return {
        person.username: person.groups
        for person in found.values()
        if can_decide(person, request)[0]
    }


def is_enough(request: Approval, yes: Mapping[str, frozenset[str]]) -> bool:
    """Whether these people together meet the request's needs."""
    return is_met(request.asked_needs(), yes)


def needs_progress(request: Approval, yes: Mapping[str, frozenset[str]]) -> list[Progress]:
    """How far each need is met by these people."""
    return progress(request.asked_needs(), yes)
