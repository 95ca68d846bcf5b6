"""Out of office: one's right is lent for a time, counted once, and both names are recorded."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, IntegrityError, transaction

from approvals import queries
from approvals.models import Decision, Delegation
from approvals.rights import can_decide, who
from approvals.services import deciding, delegating
from ledger import errors
from ledger.bearer import Bearer
from ledger.models import Entry
from tests.approvalcast import Case, agent, claim, person, tools, waiting_case
from tests.shop import assert_verifies

__all__ = ["tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


def lend(absent: Bearer, to: Bearer, *, seconds: float = 60.0, after: float = 0.0) -> None:
    begins = datetime.now(UTC) + timedelta(seconds=after)
    delegating.delegate(
        absent,
        to.username,
        reason="annual leave",
        starts_at=begins if after else None,
        ends_at=begins + timedelta(seconds=seconds),
    )


def yes(who_: Bearer, case: Case) -> None:
    deciding.approve(who_, case.request.pk, args_digest=case.digest)


def cast() -> tuple[Bearer, Bearer, Case]:
    """Ana may and is away; dora may not by herself; a refund waits."""
    return person("ana", "approvers"), person("dora", "viewers"), waiting_case()


def test_a_delegate_decides_in_the_right_of_who_is_away_and_both_names_are_recorded() -> None:
    ana, dora, case = cast()
    assert not can_decide(who(dora), case.request)[0]
    lend(ana, dora)
    assert can_decide(who(dora), case.request) == (True, "")
    assert [one.pk for one in queries.waiting_for(who(dora))] == [case.request.pk]
    yes(dora, case)
    decision = Decision.objects.get()
    assert (decision.username, decision.stands_for_name) == ("dora", "ana")
    said = Entry.objects.get(saga_id=case.saga, kind="approval.approved")
    assert (said.actor, json.loads(said.payload)["stands_for"]) == ("person:dora", "ana")
    assert len(claim()) == 1
    assert_verifies()


def test_an_edit_is_given_in_the_lent_right_as_well() -> None:
    """The old request is replaced, so the right of who is away counts once for the new one."""
    ana, dora, case = cast()
    lend(ana, dora)
    less = {"id": "p1", "amount": 40}
    old = case.request
    deciding.approve(dora, old.pk, args_digest=old.args_digest, args=less)
    decision = Decision.objects.get()
    assert decision.approval_id == case.request.pk != old.pk
    assert (decision.username, decision.stands_for_name) == ("dora", "ana")
    (ran,) = claim()
    assert dict(ran.call.args) == less
    assert_verifies()


def test_before_its_time_and_after_it_nothing_is_lent() -> None:
    ana, dora, case = cast()
    lend(ana, dora, after=60)
    with pytest.raises(errors.Forbidden, match="group approvers"):
        yes(dora, case)
    lend(ana, dora, seconds=0.3)
    assert can_decide(who(dora), case.request)[0]
    time.sleep(0.4)
    with pytest.raises(errors.Forbidden, match="group approvers"):
        yes(dora, case)
    assert list(queries.waiting_for(who(dora))) == []


def test_a_delegate_cannot_do_what_the_other_could_not() -> None:
    owner = person("owen", "approvers")
    case, dora = waiting_case(owner=owner), person("dora")
    lend(owner, dora)
    with pytest.raises(errors.Forbidden):
        yes(dora, case)
    starter = person("sven", "approvers")
    started, eve = waiting_case(metadata={"started_by": "sven"}), person("eve")
    lend(starter, eve)
    with pytest.raises(errors.Forbidden):
        yes(eve, started)
    assert [one.pk for one in queries.waiting_for(who(eve))] == [case.request.pk]
    assert [one.pk for one in queries.waiting_for(who(dora))] == [started.request.pk]


def test_who_owns_the_agent_cannot_borrow_a_right_to_decide_on_it() -> None:
    owner, ana = person("owen", "viewers"), person("ana", "approvers")
    case = waiting_case(owner=owner)
    lend(ana, owner)
    with pytest.raises(errors.Forbidden, match="owns the agent"):
        yes(owner, case)


def test_a_right_is_not_lent_on() -> None:
    ana, dora, case = cast()
    eve = person("eve")
    lend(ana, dora)
    lend(dora, eve)
    assert not can_decide(who(eve), case.request)[0]


def test_one_right_counts_once_in_a_quorum() -> None:
    ana, dora, case = cast()
    case.ask_again(needs={"approvers": 2})
    lend(ana, dora)
    yes(ana, case)
    with pytest.raises(errors.AlreadyDecided, match="right of ana was used"):
        yes(dora, case)
    assert case.request.state == "pending"
    assert list(queries.waiting_for(who(dora))) == []
    found = queries.find(case.request.pk)
    assert "right of ana was used" in queries.document(found, who(dora), str)["why_not"]


def test_one_person_counts_once_in_a_quorum_whatever_was_lent_to_them() -> None:
    ana, ben, case = person("ana", "approvers"), person("ben", "approvers"), waiting_case()
    case.ask_again(needs={"approvers": 2})
    lend(ana, ben)
    yes(ben, case)
    yes(ben, case)  # the same answer again, and no second one
    assert (case.request.state, Decision.objects.count()) == ("pending", 1)


def test_a_delegate_of_two_groups_is_counted_where_somebody_is_missing() -> None:
    """Ben's own right is that of approvers, whose seat is taken; he holds finance for fay."""
    ana, ben = person("ana", "approvers"), person("ben", "approvers")
    fay, case = person("fay", "finance"), waiting_case()
    case.ask_again(needs={"approvers": 1, "finance": 1})
    lend(fay, ben)
    yes(ana, case)
    yes(ben, case)
    assert case.request.state == "approved"
    assert Decision.objects.get(username="ben").stands_for_name == "fay"


def test_a_right_that_is_withdrawn_takes_its_yes_along_and_one_that_ended_does_not() -> None:
    ana, dora, case = cast()
    lend(ana, dora, seconds=0.5)
    yes(dora, case)
    time.sleep(0.6)
    assert len(claim()) == 1
    other = waiting_case()
    lend(ana, dora)
    yes(dora, other)
    old = other.request
    delegating.withdraw(ana, Delegation.objects.latest("id").pk)
    assert claim() == []
    assert other.request.pk != old.pk
    assert "no longer enough" in other.request.why


def test_who_lost_the_right_has_none_to_lend() -> None:
    ana, dora, case = cast()
    lend(ana, dora)
    yes(dora, case)
    User.objects.get(pk=ana.user_id).groups.clear()
    assert claim() == []
    assert case.request.state == "pending"


WRONG = {
    "to oneself": (lambda: ("ana", 60.0), "somebody else"),
    "to nobody": (lambda: ("nobody", 60.0), "nobody called"),
    "for ever": (lambda: ("dora", 200 * 86_400.0), "at most"),
    "for no time": (lambda: ("dora", -1.0), "in the future"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_lent_is_told(name: str) -> None:
    ana, _, _ = cast()
    asked, why = WRONG[name]
    to, seconds = asked()
    ends = datetime.now(UTC) + timedelta(seconds=seconds)
    with pytest.raises(errors.InvalidArgs, match=why):
        delegating.delegate(ana, to, reason="leave", ends_at=ends)
    with pytest.raises(errors.Forbidden):
        delegating.delegate(agent("lender"), "ana", reason="x", ends_at=ends)


def test_only_the_lender_withdraws() -> None:
    ana, dora, _ = cast()
    lend(ana, dora)
    with pytest.raises(errors.NotFound):
        delegating.withdraw(dora, Delegation.objects.get().pk)
    with pytest.raises(errors.NotFound):
        delegating.withdraw(ana, uuid4())


def forged(case: Case, user: Bearer, for_: Bearer, delegation: Delegation) -> Decision:
    return Decision.objects.create(
        approval=case.request,
        user_id=user.user_id,
        username=user.username,
        answer="approve",
        args_digest=case.digest,
        via="console",
        delegation=delegation,
        stands_for_id=for_.user_id,
        stands_for_name=for_.username,
    )


def test_the_database_refuses_a_right_that_nobody_lent_or_that_was_used() -> None:
    ana, dora, case = cast()
    case.ask_again(needs={"approvers": 3})
    eve = person("eve")
    lend(ana, dora)
    lent = Delegation.objects.get()
    with pytest.raises(DatabaseError, match="nobody has lent"), transaction.atomic():
        forged(case, eve, ana, lent)
    yes(ana, case)
    with pytest.raises(IntegrityError, match="approvals_right_used_once"), transaction.atomic():
        forged(case, dora, ana, lent)
    for change in (
        {"ends_at": datetime.now(UTC) + timedelta(days=9)},
        {"delegate_id": eve.user_id},
    ):
        with pytest.raises(DatabaseError, match="only be withdrawn"), transaction.atomic():
            Delegation.objects.update(**change)
    with pytest.raises(DatabaseError, match="keeps its rows"), transaction.atomic():
        Delegation.objects.all().delete()
