"""A tools file against a real third-party server: localstripe, which dedupes nothing."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ledger.outcomes import Applied, Done, Failed, NotApplied
from ledger.states import Direction
from ledger.tools.registry import Registry, load
from tests.tooltexts import call

AUTH = "Basic " + base64.b64encode(b"sk_test_12345:").decode()
FILE = """
[tools."payments.charge"]
version = "1"
tier = "compensatable"
blast_radius = "medium"
args = {{ required = ["amount"], properties = {{ amount = {{ type = "integer" }} }} }}
[tools."payments.charge".execute]
method = "POST"
url = "{url}/v1/charges"
headers = {{ Authorization = "env:AUTH" }}
form = {{ amount = "{{args.amount}}", currency = "eur", source = "pm_card_visa" }}
[tools."payments.charge".compensate]
method = "POST"
url = "{url}/v1/refunds"
headers = {{ Authorization = "env:AUTH" }}
form = {{ charge = "{{result.id}}", "metadata[saga_key]" = "{{idempotency_key}}" }}
[tools."payments.charge".compensate.probe]
method = "GET"
url = "{url}/v1/refunds?charge={{result.id}}&limit=100"
headers = {{ Authorization = "env:AUTH" }}
match = "data[?metadata.saga_key == {{idempotency_key}}] | [0]"

[tools."payments.refund"]
version = "1"
tier = "pivot"
blast_radius = "high"
effect_key = "refund:{{args.charge}}"
[tools."payments.refund".args]
required = ["charge", "amount"]
properties.charge.type = "string"
properties.amount = {{ type = "integer", minimum = 1 }}
[tools."payments.refund".execute]
method = "POST"
url = "{url}/v1/refunds"
headers = {{ Authorization = "env:AUTH" }}
[tools."payments.refund".execute.form]
charge = "{{args.charge}}"
amount = "{{args.amount}}"
"metadata[saga_key]" = "{{idempotency_key}}"
[tools."payments.refund".probe]
method = "GET"
url = "{url}/v1/refunds?charge={{args.charge}}&limit=100"
headers = {{ Authorization = "env:AUTH" }}
match = "data[?metadata.saga_key == {{idempotency_key}}] | [0]"
"""


@pytest.fixture(scope="module")
def stripe_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a localstripe that lives as long as this module's tests."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    server = subprocess.Popen(
        [Path(sys.executable).with_name("localstripe"), "--port", str(port), "--from-scratch"],
        cwd=tmp_path_factory.mktemp("stripe"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, server)
        yield url
    finally:
        os.kill(server.pid, signal.SIGTERM)
        server.wait(10)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and server.poll() is None:
        try:
            httpx.get(url + "/v1/charges", timeout=1)
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("localstripe did not start")


@pytest.fixture
def registry(stripe_url: str, tmp_path: Path) -> Registry:
    """The charge and refund tools on that server."""
    path = tmp_path / "tools.toml"
    path.write_text(FILE.format(url=stripe_url))
    return load(path, environ={"AUTH": AUTH})


def charge(registry: Registry) -> str:
    outcome = registry.get("payments.charge").run(call({"amount": 1200}))
    assert isinstance(outcome, Done), outcome
    return str(outcome.result["id"])


def test_a_refund_is_done_and_its_own_probe_finds_it(registry: Registry) -> None:
    refund, args = registry.get("payments.refund"), {"charge": charge(registry), "amount": 700}
    assert refund.probe(call(args, key="k1")) == NotApplied()
    outcome = refund.run(call(args, key="k1"))
    assert isinstance(outcome, Done)
    assert outcome.result["amount"] == 700
    found = refund.probe(call(args, key="k1"))
    assert isinstance(found, Applied)
    assert found.result["id"] == outcome.result["id"]


def test_a_probe_never_takes_a_neighbour_for_its_own_effect(registry: Registry) -> None:
    refund, args = registry.get("payments.refund"), {"charge": charge(registry), "amount": 1}
    assert isinstance(refund.run(call(args, key="k1")), Done)
    assert refund.probe(call(args, key="k2")) == NotApplied()
    hostile = "k1`] || data[0] | [`"
    assert refund.probe(call(args, key=hostile)) == NotApplied()


def test_this_target_does_not_dedupe_which_is_why_the_ledger_must(registry: Registry) -> None:
    refund, args = registry.get("payments.refund"), {"charge": charge(registry), "amount": 1}
    first, second = (refund.run(call(args, key="same")) for _ in range(2))
    assert isinstance(first, Done)
    assert isinstance(second, Done)
    assert first.result["id"] != second.result["id"]


def test_a_charge_is_undone_by_its_recorded_result(registry: Registry) -> None:
    tool = registry.get("payments.charge")
    made = tool.run(call({"amount": 500}))
    assert isinstance(made, Done)
    undo = call({"amount": 500}, Direction.COMPENSATE, result=made.result, key="comp:k")
    assert tool.probe(undo) == NotApplied()
    undone = tool.run(undo)
    assert isinstance(undone, Done)
    assert undone.result["charge"] == made.result["id"]
    assert isinstance(tool.probe(undo), Applied)


def test_a_refusal_of_the_target_is_failed_with_its_words(registry: Registry) -> None:
    outcome = registry.get("payments.refund").run(call({"charge": "ch_none", "amount": 1}))
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert "Not Found" in outcome.error


def test_a_wrong_secret_is_failed_and_not_shown(stripe_url: str, tmp_path: Path) -> None:
    path = tmp_path / "tools.toml"
    path.write_text(FILE.format(url=stripe_url))
    tool = load(path, environ={"AUTH": "Bearer pk_wrong_1"}).get("payments.charge")
    outcome = tool.run(call({"amount": 1}))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("401")
    assert "pk_wrong" not in repr(outcome)
