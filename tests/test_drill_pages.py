"""The page of a tool: what is known of its undo, and the button that finds out."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Page, expect

from ledger.models import Drill, Freeze
from ledger.outcomes import Done, Failed
from ledger.queries import drills
from ledger.services import closing, freezing, proposing, shifts, tokens
from ledger.services.proposals import AlternativeProposal, Proposal
from ledger.shift import ShiftLoop
from tests.drillcast import Yard, facts, work, yard
from tests.stage import PASSWORD, Stage, a_stage

__all__ = ["a_stage", "yard"]


def signed_in(name: str, group: str) -> Client:
    client = Client()
    client.force_login(tokens.seat_operator(name, group=group, password=PASSWORD))
    return client


def text(client: Client, key: str = "") -> str:
    """A page as words: the list, or one tool's own."""
    address = reverse("ledger:tool", args=[key]) if key else reverse("ledger:tools")
    html = client.get(address).content.decode()
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def press(client: Client, key: str = "crm.customer", reason: str = "Release") -> str:
    sent = {"reason": reason, "next": reverse("ledger:tool", args=[key])}
    answer = client.post(reverse("ledger:drill", args=[key]), sent, follow=True)
    return answer.content.decode()


def test_never_is_a_warning_until_the_undo_has_worked_somewhere(yard: Yard) -> None:
    oskar = signed_in("oskar", "oncall")
    said = text(oskar)
    assert "4 tools whose undo nobody has seen work." in said
    assert "Compensation: never worked for real never drilled" in said
    assert "Correction: never worked for real never drilled" in said
    yard.drill()
    said = text(oskar)
    assert "3 tools whose undo nobody has seen work." in said
    assert re.search(r"Compensation: never worked for real drilled \S+( s ago)? worked", said)


def test_a_press_drills_and_the_page_says_what_came_of_every_leg(yard: Yard) -> None:
    oskar = signed_in("oskar", "oncall")
    press(oskar)
    drill = Drill.objects.get()
    assert (drill.asked_by, drill.reason) == ("person:oskar", "Release")
    said = text(oskar, "crm.customer")
    assert "Waits for a worker." in said
    assert "Drill in the sandbox" not in said
    work(lambda: facts(drill.pk).is_over)
    said = text(oskar, "crm.customer")
    for part in (
        "Executed, undone, and seen to be gone.",
        "Execute done",
        "The probe finds it found",
        "The check sees it found",
        "Compensate done",
        "The probe finds it undone gone",
        "The check sees it gone gone",
        "asked for by oskar",
        "Drill in the sandbox",
    ):
        assert part in said, part


def test_an_undo_that_does_not_work_is_red_with_the_targets_own_words(yard: Yard) -> None:
    yard.write(("customers/{result.id}", "customers/not-{result.id}"))
    yard.drill("crm.blind")
    said = text(signed_in("oskar", "oncall"), "crm.blind")
    assert "failed Compensate failed. What execute did is left in the sandbox." in said
    assert "404" in said


def test_a_drill_of_an_older_version_is_outdated(yard: Yard) -> None:
    yard.drill()
    yard.write(('version = "1"', 'version = "2"'))
    oskar = signed_in("oskar", "oncall")
    assert "drilled with version 1, now 2" in text(oskar)
    assert "drilled with version 1, now 2" in text(oskar, "crm.customer")
    assert "4 tools whose undo nobody has seen work." in text(oskar)
    yard.write(("timeout_s = 5", "timeout_s = 6"))
    assert "drilled before version 1 was changed" in text(oskar)


def test_without_a_sandbox_the_page_says_what_to_declare_and_has_no_button(yard: Yard) -> None:
    oskar = signed_in("oskar", "oncall")
    said = text(oskar, "crm.homeless")
    assert "add [tools.&quot;crm.homeless&quot;.drill] with base_url and args" in said
    assert "Drill in the sandbox" not in said
    assert "declares no sandbox" in press(oskar, "crm.homeless")
    assert not Drill.objects.exists()


def test_only_operators_drill_and_only_with_a_reason(yard: Yard) -> None:
    vera, oskar = signed_in("vera", "viewers"), signed_in("oskar", "oncall")
    assert "Drill in the sandbox" not in text(vera, "crm.customer")
    assert "pressing needs the group" in text(vera, "crm.customer")
    assert "may only look" in press(vera)
    assert "Say why" in press(oskar, reason=" ")
    assert press(oskar, "no.such.tool")
    assert not Drill.objects.exists()
    token = tokens.issue_agent_token("a")
    answer = Client().post(
        reverse("ledger:drill", args=["crm.customer"]),
        {"reason": "x"},
        headers={"Authorization": f"Bearer {token}"},
    )
    assert answer.status_code == 302
    assert answer["Location"].startswith(reverse("login"))
    assert not Drill.objects.exists()


def test_a_frozen_tool_has_no_button(yard: Yard) -> None:
    freezing.freeze("tool", "crm.customer", reason="Bank is down", actor="person:oskar")
    oskar = signed_in("oskar", "oncall")
    assert "A freeze stops this tool, and with it its drills." in text(oskar, "crm.customer")
    assert "A freeze stops crm.customer" in press(oskar)
    assert not Drill.objects.exists()
    assert Freeze.objects.count() == 1


def test_an_unknown_tool_is_not_found(yard: Yard) -> None:
    answer = signed_in("oskar", "oncall").get(reverse("ledger:tool", args=["no.such.tool"]))
    assert answer.status_code == 404


def test_when_the_undo_last_worked_for_real_is_read_from_the_ledger(stage: Stage) -> None:
    client = Client()
    client.force_login(stage.oncall)
    said = text(client, "payments.charge")
    assert "never no saga" in said
    assert "Last drilled never nobody knows whether it works" in said
    saga = stage.saga("Order 8801", "order-8801")
    stage.charge(saga)
    stage.work(Done({"id": "ch_1"}))
    stage.propose(saga, "cancel", "orders.cancel", {"order": "8801"})
    stage.answer(stage.claim(), Failed("404: no such order"))
    stage.work()
    said = text(client, "payments.charge")
    assert "step charge of Order 8801" in said
    assert "never no saga" not in said
    # It has worked, so it is not said beside it that nobody knows.
    assert "nobody knows" not in said
    assert "never no drill so far: that it works is known from the saga alone" in said
    assert "Compensation: worked for real" in text(client)
    # Its neighbour was proposed and never undone.
    assert "no saga has had to rely on it yet" in text(client, "orders.cancel")


def test_the_undo_of_an_alternative_is_its_own_tools_record(stage: Stage) -> None:
    """What was undone is what ran; the first choice, which failed, has shown nothing."""
    client = Client()
    client.force_login(stage.oncall)
    saga = stage.saga("Order 8802", "order-8802")
    way = AlternativeProposal("payments.charge", {"customer": "cus_9", "amount": 900})
    first = Proposal("pay", "orders.cancel", {"order": "8802"}, alternatives=(way,))
    proposing.propose(saga, first, bearer=stage.agent)
    stage.answer(stage.claim(), Failed("404: no such order"))
    stage.work(Done({"id": "ch_9"}))
    assert "no saga has had to rely on it yet" in text(client, "payments.charge")
    closing.abort(saga, "no longer wanted", bearer=stage.agent)
    stage.work()
    assert "step pay of Order 8802" in text(client, "payments.charge")
    assert "no saga has had to rely on it yet" in text(client, "orders.cancel")
    # The newest counts, whether it was a first choice or another.
    later = stage.saga("Order 8803", "order-8803")
    stage.charge(later)
    stage.work(Done({"id": "ch_10"}))
    closing.abort(later, "no longer wanted", bearer=stage.agent)
    stage.work()
    assert "step charge of Order 8803" in text(client, "payments.charge")


def test_the_record_of_every_tool_is_found_by_an_index(stage: Stage) -> None:
    """However many steps there are: one look for each tool, first choices and others."""
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        cursor.execute("EXPLAIN " + drills._REAL, [["payments.charge"]])
        plan = "\n".join(line for (line,) in cursor.fetchall())
        cursor.execute("RESET enable_seqscan; RESET enable_bitmapscan")
    assert "ledger_step_undone on" in plan
    assert "ledger_step_undone_other on" in plan


# -- in a browser -----------------------------------------------------------------------


@pytest.fixture
def worker() -> Iterator[Callable[[], None]]:
    """Starts a shift beside the browser, as a worker's process has one."""
    threads: list[threading.Thread] = []

    def life() -> None:
        ShiftLoop(shifts.ring_row()).run()
        connection.close()

    def start() -> None:
        threads.append(threading.Thread(target=life))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(30)


@pytest.mark.browser
def test_a_press_is_watched_to_its_end_without_a_reload(
    yard: Yard, live_server: Any, browser_page: Page, worker: Callable[[], None], monkeypatch: Any
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    tokens.seat_operator("oskar", group="oncall", password=PASSWORD)
    page = browser_page
    page.goto(live_server.url + reverse("ledger:tool", args=["crm.customer"]))
    page.get_by_label("Username").fill("oskar")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Reason").fill("Before the release")
    page.get_by_role("button", name="Drill in the sandbox").click()
    expect(page.get_by_text("Waits for a worker.")).to_be_visible()
    expect(page.get_by_role("button", name="Drill in the sandbox")).to_have_count(0)
    page.evaluate("window.stayed = true")
    worker()
    expect(page.get_by_text("Executed, undone, and seen to be gone.")).to_be_visible()
    expect(page.locator(".legs li.tone-good")).to_have_count(6)
    expect(page.get_by_role("button", name="Drill in the sandbox")).to_be_visible()
    assert page.evaluate("window.stayed")
    for width in (390, 768, 1440):
        page.set_viewport_size({"width": width, "height": 844})
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_without_javascript_the_button_works_and_a_reload_tells(
    yard: Yard, live_server: Any, chromium: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    tokens.seat_operator("oskar", group="oncall", password=PASSWORD)
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(live_server.url + reverse("ledger:tool", args=["crm.blind"]))
    page.get_by_label("Username").fill("oskar")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Reason").fill("Before the release")
    page.get_by_role("button", name="Drill in the sandbox").click()
    expect(page.get_by_text("Waits for a worker.")).to_be_visible()
    drill = Drill.objects.get()
    work(lambda: facts(drill.pk).is_over)
    page.reload()
    expect(page.get_by_text("Executed, and the undo says that it is done")).to_be_visible()
    context.close()
