"""Who may decide: one function for the page, the API, a link, bulk and the admin (case F1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db.models import Q

from approvals.models import Approval, Decision
from approvals.quorum import Progress, is_met, progress
from approvals.states import Answer
from ledger import storage
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
    covers: tuple[Cover, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Every way in which a saga may name this person as its starter, casefolded."""
        given = {self.username, f"person:{self.username}", self.email} - {""}
        return frozenset(name.strip().casefold() for name in given)


@dataclass(frozen=True, slots=True)
class Cover:
    """Somebody who is out of office, and the delegation that lends their right."""

    delegation: UUID
    person: Person


_COVERS = """
SELECT id, delegator_id FROM approvals_delegation
WHERE delegate_id = %s AND withdrawn_at IS NULL
    AND starts_at <= clock_timestamp() AND ends_at > clock_timestamp()
ORDER BY id
"""


def who(bearer: Bearer) -> Person:
    """The caller as of now: account, groups and whom they stand in for are read each time."""
    if bearer.is_agent or bearer.user_id is None:
        return Person(None, bearer.agent_name)
    gone = Person(bearer.user_id, bearer.username)
    lent = storage.rows(_COVERS, [bearer.user_id])
    found = people({bearer.user_id, *(row.delegator_id for row in lent)})
    covers = tuple(Cover(row.id, found[row.delegator_id]) for row in lent)
    return replace(found.get(bearer.user_id, gone), covers=covers)


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

    In their own right, or in that of somebody whom they stand in for. It is about people
    alone; whether the request is still open is another question. Reads
    `request.saga.agent`: select it with the request when there are many.
    """
    if why_not := _barred(person, request):
        return False, why_not
    if voices(person, request):
        return True, ""
    needed = sorted({need.group for need in request.asked_needs()})
    return False, f"This needs somebody of {_either(needed)}; {person.username} is not."


def can_break_glass(person: Person, request: Approval) -> tuple[bool, str]:
    """Whether this person may say yes alone, in an incident: a permission of its own.

    Being a superuser is not enough: somebody must have given the permission by name. Who
    owns the agent or started the saga stays barred.
    """
    if why_not := _barred(person, request):
        return False, why_not
    if not may_break_glass(person.user_id):
        return False, f"{person.username} may not break the glass: `manage.py break_glass` grants."
    return True, ""


def may_break_glass(user_id: int | None) -> bool:
    """Whether the permission was given to this account, or to a group that it is in."""
    given = Permission.objects.filter(
        codename="break_glass", content_type__app_label="approvals"
    ).filter(Q(user=user_id) | Q(group__user=user_id))
    return user_id is not None and given.exists()


def _barred(person: Person, request: Approval) -> str:
    """Why this person may not answer in anybody's right, or ''."""
    if person.user_id is None:
        return "An agent's token can never decide. A person must do this."
    if not person.is_active:
        return "This account is not active."
    saga = request.saga
    if saga.agent.owner_id == person.user_id:
        return f"{person.username} owns the agent {saga.agent.name}; another must decide."
    if saga.started_by.strip().casefold() in person.names:
        return f"{person.username} started this saga; another must decide."
    return ""


def _has_right(person: Person, request: Approval) -> bool:
    """Whether this person's own right is one that the request needs. An empty group is nobody."""
    needed = {need.group for need in request.asked_needs()}
    return not _barred(person, request) and bool(person.groups & needed)


@dataclass(frozen=True, slots=True)
class Voice:
    """Somebody who answers, and in whose right: their own, or that of who is out of office."""

    person: Person
    cover: Cover | None = None

    @property
    def right_of(self) -> Person:
        return self.cover.person if self.cover else self.person


def voices(person: Person, request: Approval) -> list[Voice]:
    """The rights in which this person could answer, their own first.

    Who stands in can never do what the other could not, and rights are not lent on.
    """
    if _barred(person, request):
        return []
    able = [Voice(person)] if _has_right(person, request) else []
    covers = (cover for cover in person.covers if _has_right(cover.person, request))
    return able + [Voice(person, cover) for cover in covers]


def voice_for(person: Person, request: Approval, answer: Answer) -> Voice | None:
    """The right in which this answer does most; None when every one of them was used already."""
    said = Decision.objects.filter(approval=request, answer=answer)
    used = {decision.stands_for_id or decision.user_id for decision in said}
    free = [one for one in voices(person, request) if one.right_of.user_id not in used]
    if answer != Answer.APPROVE or len(free) < 2:
        return free[0] if free else None
    have = {one: _sum(request, counted_yes(request, also=one)) for one in free}
    return max(free, key=lambda one: have[one])  # the first of equals: their own


def _sum(request: Approval, yes: Mapping[str, frozenset[str]]) -> int:
    return sum(found.have for found in needs_progress(request, yes))


def _either(groups: list[str]) -> str:
    if not groups:
        return "nobody at all (no group is named)"
    return f"the group {groups[0]}" if len(groups) == 1 else f"the groups {' or '.join(groups)}"


def counted_yes(request: Approval, also: Voice | None = None) -> Mapping[str, frozenset[str]]:
    """Those whose yes counts now, with the groups it counts for: every right is looked at again.

    `also` is somebody who is just saying yes. A delegation that was withdrawn takes its
    answers with it; one that has merely ended does not.
    """
    said = Decision.objects.filter(approval=request, answer=Answer.APPROVE)
    rows = list(said.exclude(delegation__withdrawn_at__isnull=False))
    found = people({row.user_id for row in rows} | {row.stands_for_id or 0 for row in rows})
    pairs = [(found.get(row.user_id), found.get(row.stands_for_id or row.user_id)) for row in rows]
    if also is not None:
        pairs.append((also.person, also.right_of))
    return {
        person.username: right.groups
        for person, right in pairs
        if person and right and not _barred(person, request) and _has_right(right, request)
    }


def is_broken(request: Approval) -> bool:
    """Whether its yes was given under break-glass, by somebody who still may."""
    broke = Decision.objects.filter(approval=request, answer=Answer.APPROVE).exclude(incident="")
    return any(
        can_break_glass(person, request)[0]
        for person in people(broke.values_list("user_id", flat=True)).values()
    )


def is_answered(request: Approval) -> bool:
    """Whether those who said yes are enough now: together, or one of them with broken glass."""
    return is_enough(request, counted_yes(request)) or is_broken(request)


def is_enough(request: Approval, yes: Mapping[str, frozenset[str]]) -> bool:
    """Whether these people together meet the request's needs."""
    return is_met(request.asked_needs(), yes)


def needs_progress(request: Approval, yes: Mapping[str, frozenset[str]]) -> list[Progress]:
    """How far each need is met by these people."""
    return progress(request.asked_needs(), yes)
