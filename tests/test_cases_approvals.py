"""Cases of approvals that have no other home: what went wrong elsewhere, and what happens here."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Page, expect

from approvals.models import Approval, Decision
from approvals.services import deciding
from ledger import keys, storage
from ledger.models import Attempt, Entry, Step
from ledger.states import StepState
from ledger.tools.schemas import Schema, checked
from tests.approvalcast import claim, person, tools, waiting_case
from tests.stage import PASSWORD, Stage, a_stage

__all__ = ["a_stage", "tools"]

SCHEMA = Schema(
    {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "active": {"type": "boolean", "default": False},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
        },
        "additionalProperties": False,
    }
)
_ARGS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(0, 3),
        "active": st.booleans(),
        "tags": st.lists(st.sampled_from(["a", "b"]), max_size=1),
    },
)


def digest(args: dict[str, Any]) -> str:
    return keys.fingerprint(keys.canonical(checked(SCHEMA, args)))


@given(_ARGS, _ARGS)
def test_the_same_call_after_validation_has_the_same_digest_and_no_other_has(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Case A6: defaults are filled first, then it is made canonical, then the digest is taken."""
    whole = {"active": False, "tags": []}
    assert (digest(one) == digest(other)) == (whole | one == whole | other)
    assert digest({}) == digest({"active": False})


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("tools")
def test_an_error_in_the_gate_runs_nothing() -> None:
    """Case C4: at the claim and at the proposal; afterwards everything goes on as it was."""
    ana = person("ana", "approvers")
    case = waiting_case()
    deciding.approve(ana, case.request.pk, args_digest=case.digest)
    storage.execute("ALTER TABLE approvals_approval RENAME TO approvals_gone")
    try:
        with pytest.raises(DatabaseError):
            claim()
        with pytest.raises(DatabaseError):
            case.propose("refund-2", id="p2", amount=1)
    finally:
        storage.execute("ALTER TABLE approvals_gone RENAME TO approvals_approval")
    assert not Attempt.objects.exists()
    assert not Step.objects.filter(step_id="refund-2").exists()
    assert case.row.state == StepState.QUEUED
    assert [found.step for found in claim()] == [case.step]


@pytest.fixture
def seated(stage: Stage, live_server: Any, browser_page: Page, monkeypatch: Any) -> Page:
    """Olivia's browser at a refund that waits for her."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    _ = stage.approver
    _, step = stage.waiting_refund()
    at = reverse("approvals:approval-detail", args=[stage.request(step).pk])
    browser_page.goto(live_server.url + at)
    browser_page.get_by_label("Username").fill("olivia")
    browser_page.get_by_label("Password").fill(PASSWORD)
    browser_page.get_by_role("button", name="Sign in").click()
    expect(browser_page.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    return browser_page


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_keys_on_a_focused_button_do_what_the_button_says_and_no_more(stage, seated):
    """Case B12: nothing listens to keys on the whole page, and Enter on Approve is one yes."""
    for key in ("a", "r", "y", "n", "Enter", "Control+Enter"):
        seated.locator("body").press(key)
    assert Approval.objects.get().state == "pending"
    seated.get_by_label("I understand that this cannot be undone").check()
    seated.get_by_role("button", name="Approve", exact=True).focus()
    seated.keyboard.press("Enter")
    expect(seated.get_by_text("Approved by olivia.")).to_be_visible()
    assert Decision.objects.count() == 1
    assert Entry.objects.filter(kind__in=["approval.rejected", "approval.late"]).count() == 0


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_what_is_in_flight_blocks_its_own_request_alone(stage, seated, live_server):
    """Cases B3 and B14: both answers of one request step back together, another's do not."""
    other = stage.refund(stage.saga("Refund order 9", "refund-9"), payment_intent="pi_9")
    approve = seated.get_by_role("button", name="Approve", exact=True)
    seated.get_by_label("I understand that this cannot be undone").check()
    # The answer is on its way and does not come: nothing is sent, so nothing is answered.
    seated.evaluate(
        "window.sent = 0; document.addEventListener('submit', (event) => {"
        "if (!event.defaultPrevented) window.sent += 1; event.preventDefault(); })"
    )
    approve.click()
    busy = seated.get_by_role("button", name="Approving…")
    expect(busy).to_be_disabled()
    expect(seated.get_by_role("button", name="Reject")).to_be_disabled()
    seated.get_by_label("What should the agent know?").fill("no")
    seated.get_by_role("button", name="Reject").click(force=True)
    busy.click(force=True)
    assert seated.evaluate("window.sent") == 1
    second = seated.context.new_page()
    second.goto(
        live_server.url + reverse("approvals:approval-detail", args=[stage.request(other).pk])
    )
    expect(second.get_by_role("button", name="Approve", exact=True)).to_be_enabled()
    second.close()
    assert not Decision.objects.exists()
