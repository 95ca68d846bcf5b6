"""Break-glass: its own permission, an incident and a reason, and a review that another closes."""

from __future__ import annotations

import json
import logging

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.db.utils import DatabaseError, IntegrityError

from approvals.models import Decision, Review
from approvals.services import deciding, reviewing
from ledger import errors
from ledger.bearer import Bearer
from ledger.models import Entry
from tests.approvalcast import Case, agent, claim, person, tools, waiting_case
from tests.shop import assert_verifies

__all__ = ["tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


def breaker(name: str = "gia", *groups: str) -> Bearer:
    found = person(name, *groups)
    call_command("break_glass", name)
    return found


def smash(
    by: Bearer, case: Case, incident: str = "INC-7", reason: str = "Payments are down"
) -> None:
    deciding.break_glass(
        by, case.request.pk, args_digest=case.digest, incident=incident, reason=reason
    )


def test_one_person_alone_lets_it_run_and_a_review_stays_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gia, case = breaker(), waiting_case()
    case.ask_again(needs={"approvers": 2})
    with caplog.at_level(logging.WARNING):
        smash(gia, case)
    assert case.request.state == "approved"
    assert len(claim()) == 1
    review = Review.objects.get()
    assert (review.closed_at, review.decision.incident) == (None, "INC-7")
    assert case.kinds()[-2:] == ["approval.approved", "approval.break_glass"]
    told = Entry.objects.get(saga_id=case.saga, kind="approval.break_glass")
    assert (told.actor, json.loads(told.payload)["reason"]) == ("person:gia", "Payments are down")
    assert "BREAK-GLASS: gia alone approved money.refund" in caplog.text
    assert_verifies()


def test_who_said_yes_already_and_waits_for_others_can_break_the_glass() -> None:
    gia, case = breaker("gia", "approvers"), waiting_case()
    case.ask_again(needs={"approvers": 2})
    deciding.approve(gia, case.request.pk, args_digest=case.digest)
    smash(gia, case)
    assert (case.request.state, len(claim())) == ("approved", 1)


MAY_NOT = {
    "an approver without the permission": lambda: (person("ben", "approvers"), waiting_case()),
    "a superuser without it": lambda: (person("sue", is_superuser=True), waiting_case()),
    "an agent": lambda: (agent("other"), waiting_case()),
    "the agent's owner": lambda: ((gia := breaker()), waiting_case(owner=gia)),
    "the saga's starter": lambda: (breaker(), waiting_case(metadata={"started_by": "gia"})),
}


@pytest.mark.parametrize("name", MAY_NOT)
def test_these_may_not(name: str) -> None:
    by, case = MAY_NOT[name]()
    with pytest.raises(errors.Forbidden):
        smash(by, case)
    assert (case.request.state, Review.objects.count()) == ("pending", 0)


@pytest.mark.parametrize(
    ("incident", "reason"), [("", "why"), ("  ", "why"), ("INC-1", ""), ("INC-1", "\u200b")]
)
def test_it_needs_an_incident_and_a_reason(incident: str, reason: str) -> None:
    gia, case = breaker(), waiting_case()
    with pytest.raises(errors.InvalidArgs):
        smash(gia, case, incident, reason)
    assert not Decision.objects.exists()


def test_a_digest_that_is_not_the_shown_one_breaks_nothing() -> None:
    gia, case = breaker(), waiting_case()
    with pytest.raises(errors.StaleDigest):
        deciding.break_glass(
            gia, case.request.pk, args_digest="0" * 64, incident="INC-7", reason="now"
        )
    assert not Review.objects.exists()


def test_a_permission_that_was_taken_away_voids_the_yes() -> None:
    gia, case = breaker(), waiting_case()
    smash(gia, case)
    old = case.request
    call_command("break_glass", "gia", "--revoke")
    assert claim() == []
    assert (case.request.pk != old.pk, case.request.state) == (True, "pending")


def test_the_permission_is_given_to_people_who_are_there() -> None:
    with pytest.raises(CommandError, match="no active person"):
        call_command("break_glass", "nobody")


def test_only_another_closes_the_review_and_the_ledger_keeps_the_finding() -> None:
    gia, case = breaker("gia", "approvers"), waiting_case()
    smash(gia, case)
    review = Review.objects.get()
    for by in (gia, person("vera", "viewers"), agent("closer")):
        with pytest.raises(errors.Forbidden):
            reviewing.close(by, review.pk, finding="fine")
    ben = person("ben", "oncall")
    with pytest.raises(errors.InvalidArgs):
        reviewing.close(ben, review.pk, finding=" ")
    reviewing.close(ben, review.pk, finding="It was right: the queue was on fire.")
    review.refresh_from_db()
    assert (review.closed_name, review.finding[:12]) == ("ben", "It was right")
    entry = Entry.objects.get(saga_id=case.saga, kind="approval.reviewed")
    assert (entry.actor, json.loads(entry.payload)["incident"]) == ("person:ben", "INC-7")
    with pytest.raises(errors.AlreadyDecided, match="ben"):
        reviewing.close(person("cleo", "oncall"), review.pk, finding="again")
    assert_verifies()


def test_the_database_keeps_reviews_and_refuses_a_broken_glass_without_one() -> None:
    gia, case = breaker(), waiting_case()
    with pytest.raises(DatabaseError, match="has no review"), transaction.atomic():
        Decision.objects.create(
            approval=case.request,
            user_id=gia.user_id,
            username="gia",
            answer="approve",
            reason="by hand",
            incident="INC-0",
            args_digest=case.digest,
            via="console",
        )
    smash(gia, case)
    with pytest.raises(IntegrityError, match="review_by_another"), transaction.atomic():
        Review.objects.update(closed_by_id=gia.user_id, closed_at="2030-01-01T00:00Z", finding="me")
    with pytest.raises(DatabaseError, match="keeps its rows"), transaction.atomic():
        Review.objects.all().delete()
    ben = person("ben", "oncall")
    reviewing.close(ben, Review.objects.get().pk, finding="seen")
    with pytest.raises(DatabaseError, match="closed once"), transaction.atomic():
        Review.objects.update(finding="nothing to see here")
