"""A batch of payouts that waits for a yes, and the form in which a person edits it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from ledger.models import Step
from ledger.tools.installed import registry
from tests.stage import TOOLS, Stage, sign_in

BATCH = """
[tools."payouts.batch"]
title = "Pay a batch out"
version = "1"
tier = "pivot"
blast_radius = "high"
effect_key = "batch:{args.batch}"
[tools."payouts.batch".args]
type = "object"
required = ["batch", "limit", "lines"]
[tools."payouts.batch".args.properties]
batch = { type = "string", description = "names the effect" }
limit = { type = "integer", minimum = 1, description = "in cents" }
rate = { type = "number" }
dry_run = { type = "boolean" }
memo = { type = ["string", "null"] }
currency = { enum = ["eur", "usd", "chf"] }
trace = { type = "object", readOnly = true }
[tools."payouts.batch".args.properties.lines]
type = "array"
[tools."payouts.batch".args.properties.lines.items]
type = "object"
required = ["to", "cents"]
properties.to.type = "string"
properties.cents = { type = "integer", minimum = 1 }
[tools."payouts.batch".execute]
method = "POST"
url = "https://payments.example/v1/batches"
"""
ARGS: dict[str, Any] = {
    "batch": "2026-11-29",
    "limit": 9_007_199_254_740_991,
    "rate": 1.25,
    "dry_run": False,
    "memo": None,
    "currency": "eur",
    "trace": {"source": ["ledger", {"row": 7, "ok": True, "was": None}]},
    "lines": [{"to": "acct_1", "cents": 120_000}, {"to": "acct_2", "cents": 5}],
}


@pytest.fixture
def batch(stage: Stage, settings: Any) -> Step:
    """A batch that waits for an approver."""
    Path(settings.SAGA_TOOLS).write_text(TOOLS + BATCH, encoding="utf-8")
    registry.cache_clear()
    step = stage.propose(stage.saga(), "pay", "payouts.batch", ARGS, "Friday's payouts.")
    return Step.objects.get(pk=step)


@pytest.fixture
def late_batch(stage: Stage, batch: Step) -> Step:
    """The same past the saga's pivot, where a no turns nothing back."""
    stage.decide(batch.pk)
    stage.work()
    later = ARGS | {"batch": "2026-11-30"}
    step = stage.propose(batch.saga_id, "pay-later", "payouts.batch", later)
    return Step.objects.get(pk=step)


@pytest.fixture
def browser(stage: Stage) -> Client:
    client = Client()
    sign_in(client, stage.approver)
    return client


class Fields(HTMLParser):
    """What a browser without JavaScript would send of a page's forms, pressed buttons aside."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = {}
        self._name = ""
        self._text: list[str] | None = None
        self.feed(html[html.index("<main") :])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        if tag == "input" and "name" in told and told.get("type") != "checkbox":
            self._keep(told["name"], told.get("value", ""))
        elif tag in ("textarea", "select"):
            self._name, self._text = told.get("name", ""), [] if tag == "textarea" else None
        elif tag == "option" and "selected" in told:
            self._keep(self._name, told.get("value", ""))

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._text is not None:
            text = "".join(self._text).removeprefix("\n")
            self._keep(self._name, text.replace("\n", "\r\n"))
            self._text = None

    def _keep(self, name: str, value: str) -> None:
        self.found.setdefault(name, []).append(value)


def edit_url(stage: Stage, step: Step) -> str:
    return reverse("approvals:edit", args=[stage.request(step.pk).pk])


def press(browser: Client, url: str, html: str, do: str, **changed: str) -> Any:
    sent: dict[str, Any] = Fields(html).found | {"do": do} | changed
    return browser.post(url, sent)
