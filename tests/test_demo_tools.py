"""The demo's tools against their targets: done, found again, undone, and the undoing found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.outcomes import Applied, Done, Failed, NotApplied, Unknown
from ledger.states import Direction
from ledger.tools.contract import Call, Tool
from ledger.tools.registry import Registry, load
from ledger.tools.sandbox import sandboxed
from saga_console.demo import faultproxy, play, shop, tools
from saga_console.demo.targets import Addresses
from saga_console.demo.truth import Truth

UNDOABLE: dict[str, dict[str, Any]] = {
    "orders.cancel": {"order_id": "T-1"},
    "orders.confirm": {"order_id": "T-2"},
    "cloud.instance": {"name": "t", "image": "ami-03cf127a", "size": "t3.micro"},
    "dns.zone": {"name": "t.example"},
    "payments.charge": {
        "order_id": "T-1",
        "amount": 4200,
        "currency": "eur",
        "payment_method": "pm_card_visa",
    },
}


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in play.prepare(home).items():
            patch.setenv(name, value)
        yield Addresses.read(home / "demo")
    play.stop()


@pytest.fixture(scope="module")
def registry(at: Addresses) -> Registry:
    shop.place_orders(at, "T-1", "T-2")
    return load(at.home / "tools.toml", [tools])


def call(
    tool: Tool, args: dict[str, Any], key: str, way: str = "forward", result: Any = None
) -> Call:
    saga = {"id": "s", "task_id": "t", "name": "n", "metadata": {}}
    step = {"id": "i", "step_id": "x", "position": 1}
    checked = tool.checked_args(args)
    direction = Direction(way)
    return Call(direction, "s", "x", checked, result, key, saga, step, tool.timeout_s, 1)


@pytest.mark.parametrize("key", UNDOABLE)
def test_effect_is_found_by_its_key_and_so_is_its_undoing(registry: Registry, key: str) -> None:
    tool, args = registry.get(key), UNDOABLE[key]
    forward = call(tool, args, f"{key}-1")
    assert tool.probe(forward) == NotApplied()
    done = tool.run(forward)
    assert isinstance(done, Done)
    assert isinstance(tool.probe(forward), Applied)
    assert tool.probe(call(tool, args, f"{key}-2")) == NotApplied()
    back = call(tool, args, f"comp:{key}-1", "compensate", done.result)
    assert tool.probe(back) == NotApplied()
    assert isinstance(tool.run(back), Done)
    assert isinstance(tool.probe(back), Applied)


def test_record_is_made_and_taken_away_inside_its_zone(registry: Registry, at: Addresses) -> None:
    zone, record = registry.get("dns.zone"), registry.get("dns.record")
    made = zone.run(call(zone, {"name": "r.example"}, "zone"))
    assert isinstance(made, Done)
    args = {"zone_id": made.result["zone_id"], "name": "www.r.example", "address": "192.0.2.1"}
    forward = call(record, args, "record")
    done = record.run(forward)
    assert isinstance(done, Done)
    assert isinstance(record.probe(forward), Applied)
    too_early = zone.run(call(zone, {"name": "r.example"}, "comp:zone", "compensate", made.result))
    assert isinstance(too_early, Failed)
    assert "HostedZoneNotEmpty" in too_early.error
    back = call(record, args, "comp:record", "compensate", done.result)
    assert isinstance(record.run(back), Done)
    assert isinstance(record.probe(back), Applied)
    assert Truth(at).records("r.example") == []


def test_database_that_aws_refuses_has_certainly_not_started(
    registry: Registry, at: Addresses
) -> None:
    tool = registry.get("cloud.database")
    outcome = tool.run(call(tool, {"name": "d", "subnet_group": "not-there"}, "db"))
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert outcome.error.startswith("DBSubnetGroupNotFoundFault")
    assert Truth(at).databases("d") == []


def test_declined_card_has_certainly_not_paid(registry: Registry, at: Addresses) -> None:
    tool = registry.get("payments.charge")
    args = UNDOABLE["payments.charge"] | {
        "order_id": "T-9",
        "payment_method": "pm_card_chargeCustomerFail",
    }
    declined = call(tool, args, "declined")
    outcome = tool.run(declined)
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    # The target keeps the attempt, stamp and all: the probe must not take it for a payment.
    assert tool.probe(declined) == NotApplied()
    assert Truth(at).paid("T-9") == []


def test_refund_whose_answer_is_cut_off_is_unknown_and_the_probe_finds_it(
    registry: Registry, at: Addresses
) -> None:
    charge, refund = registry.get("payments.charge"), registry.get("payments.refund")
    paid = charge.run(call(charge, UNDOABLE["payments.charge"], "cut-charge"))
    assert isinstance(paid, Done)
    args = {"payment_intent": paid.result["id"], "amount": 4200, "note": "it's `odd` {x}"}
    forward = call(refund, args, "cut-refund")
    faultproxy.cut_next(at.proxy_url, "POST", "/v1/refunds")
    assert isinstance(refund.run(forward), Unknown)
    found = refund.probe(forward)
    assert isinstance(found, Applied)
    [refunded] = Truth(at).refunds(paid.result["id"])
    assert refunded["id"] == found.result["id"]
    assert refunded["metadata"]["note"] == "it's `odd` {x}"


def test_mail_goes_out_and_its_correction_answers_it(registry: Registry, at: Addresses) -> None:
    tool = registry.get("mail.confirmation")
    args = {"order_id": "T-1", "to": "ada@customer.example", "text": "On its way.\n"}
    sent = tool.run(call(tool, args, "mail"))
    assert isinstance(sent, Done)
    corrected = tool.run(call(tool, args, "corr:mail", "correct", sent.result))
    assert isinstance(corrected, Done)
    first, second = Truth(at).mails("ada@customer.example")
    assert second["In-Reply-To"] == first["Message-ID"] == sent.result["message_id"]


def test_mail_to_a_server_that_is_away_may_be_tried_again(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = registry.get("mail.confirmation")
    monkeypatch.setenv("SAGA_DEMO_MAIL", "127.0.0.1:9")
    args = {"order_id": "T-1", "to": "nobody@customer.example", "text": "On its way.\n"}
    outcome = tool.run(call(tool, args, "away"))
    assert isinstance(outcome, Failed)
    assert outcome.retryable


@pytest.mark.parametrize("key", ["payments.charge", "dns.zone", "cloud.instance"])
def test_what_the_demo_drills_is_done_and_undone_in_the_second_world_only(
    registry: Registry, at: Addresses, key: str
) -> None:
    tool = registry.get(key)
    assert tool.drill
    aimed = sandboxed(tool)
    args = tool.drill.args_for("0123456789ab")
    forward = call(aimed.tool, args, f"drill-{key}")
    done = aimed.tool.run(forward)
    assert isinstance(done, Done), done
    assert isinstance(aimed.tool.probe(forward), Applied)
    assert tool.probe(forward) == NotApplied()  # the first world knows nothing of it
    back = call(aimed.tool, args, f"comp:drill-{key}", "compensate", done.result)
    if aimed.check:
        assert isinstance(aimed.check(back), Applied)
    assert isinstance(aimed.tool.run(back), Done)
    assert isinstance(aimed.tool.probe(back), Applied)
    if aimed.check:
        assert aimed.check(back) == NotApplied()


def test_tools_file_names_only_the_proxy(at: Addresses, registry: Registry) -> None:
    written = Path(at.home / "tools.toml").read_text()
    assert play.WRITTEN_ADDRESS not in written
    assert written.count(f'url = "{at.proxy_url}/') == 7
    assert play.WRITTEN_SANDBOX not in written
    assert f'base_url = "{at.payments_sandbox_url}"' in written
