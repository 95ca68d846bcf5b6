"""Who may decide, in one table, and the inbox that must say the same."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from approvals import queries
from approvals.rights import Person, can_decide, who
from approvals.services import deciding
from ledger import errors
from ledger.bearer import Bearer
from tests.approvalcast import Case, agent, person, tools, waiting_case

__all__ = ["tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


def owner_case() -> tuple[Bearer, Case]:
    owner = person("ana", "approvers")
    return owner, waiting_case(owner=owner)


def starter_case(named: str) -> tuple[Bearer, Case]:
    starter = person("ana", "approvers", email="ana@example.com")
    return starter, waiting_case(metadata={"started_by": named})


def inactive_case() -> tuple[Bearer, Case]:
    gone = person("ana", "approvers")
    User.objects.filter(pk=gone.user_id).update(is_active=False)
    return gone, waiting_case()


def empty_needs_case() -> tuple[Bearer, Case]:
    case = waiting_case()
    case.ask_again(needs={"nobody-is-in-this": 1})
    return person("ana", "approvers"), case


MAY_NOT = {
    "an agent": (lambda: (agent("other"), waiting_case()), "never decide"),
    "the asking agent": (lambda: ((case := waiting_case()).agent, case), "never decide"),
    "who is in no group": (lambda: (person("ana"), waiting_case()), "group approvers"),
    "a viewer": (lambda: (person("ana", "viewers"), waiting_case()), "group approvers"),
    "a superuser outside the group": (
        lambda: (person("ana", is_superuser=True, is_staff=True), waiting_case()),
        "group approvers",
    ),
    "an inactive account": (inactive_case, "not active"),
    "a deleted account": (
        lambda: (Bearer(user_id=987654, username="gone"), waiting_case()),
        "not active",
    ),
    "the agent's owner": (owner_case, "owns the agent"),
    "the saga's starter": (lambda: starter_case("ana"), "started this saga"),
    "the starter in capitals": (lambda: starter_case(" ANA "), "started this saga"),
    "the starter as an actor": (lambda: starter_case("person:ana"), "started this saga"),
    "the starter by address": (lambda: starter_case("Ana@Example.com"), "started this saga"),
    "anybody, when the group is empty": (empty_needs_case, "nobody-is-in-this"),
}


@pytest.mark.parametrize("name", MAY_NOT)
def test_these_may_not_decide_and_are_told_why(name: str) -> None:
    build, why = MAY_NOT[name]
    bearer, case = build()
    allowed, why_not = can_decide(who(bearer), case.request)
    assert not allowed
    assert why in why_not
    for decide in (deciding.approve, deciding.reject, deciding.request_change):
        with pytest.raises(errors.Forbidden):
            decide(bearer, case.request.pk, args_digest=case.digest, reason="because")
    assert case.request.state == "pending"
    assert list(queries.waiting_for(who(bearer))) == []


@pytest.mark.parametrize("groups", [("approvers",), ("viewers", "approvers")])
def test_somebody_of_the_group_may(groups: tuple[str, ...]) -> None:
    case = waiting_case(owner=person("owner", "approvers"), metadata={"started_by": "starter"})
    ana = who(person("ana", *groups))
    assert can_decide(ana, case.request) == (True, "")
    assert [found.pk for found in queries.waiting_for(ana)] == [case.request.pk]


def test_a_person_without_an_account_is_nobody() -> None:
    case = waiting_case()
    assert (
        can_decide(Person(None, "eve", groups=frozenset({"approvers"})), case.request)[0] is False
    )


# -- the inbox -------------------------------------------------------------------------------


def test_the_inbox_shows_what_ends_first_at_the_top() -> None:
    slow, fast = waiting_case(), waiting_case()
    slow.ask_again(seconds=500)
    fast.ask_again(seconds=100)
    ana = who(person("ana", "approvers"))
    waiting = [found.step_id for found in queries.waiting_for(ana)]
    assert waiting == [fast.step, slow.step]


def test_the_inbox_leaves_out_what_i_answered_and_what_is_over() -> None:
    ana, ben = person("ana", "approvers"), person("ben", "approvers")
    gathering, over = waiting_case(), waiting_case()
    gathering.ask_again(needs={"approvers": 2})
    deciding.approve(ana, gathering.request.pk, args_digest=gathering.digest)
    deciding.reject(ben, over.request.pk, args_digest=over.digest, reason="no")
    assert list(queries.waiting_for(who(ana))) == []
    assert [found.step_id for found in queries.waiting_for(who(ben))] == [gathering.step]
    assert [one.approval.step_id for one in queries.decided_by(who(ben))] == [over.step]


def test_a_document_tells_a_voter_that_others_must_follow() -> None:
    ana, case = person("ana", "approvers"), waiting_case()
    case.ask_again(needs={"approvers": 2})
    deciding.approve(ana, case.request.pk, args_digest=case.digest)
    found = queries.find(case.request.pk)
    assert found is not None
    shown = queries.document(found, who(ana), str)
    assert shown["needs"] == [{"group": "approvers", "count": 2, "have": 1, "missing": 1}]
    assert shown["can_decide"] is False
    assert "others must too" in shown["why_not"]
    assert queries.document(found, who(person("ben", "approvers")), str)["can_decide"] is True
