"""The demo's outside world, without the console: what it does by itself, and what it does not."""

from __future__ import annotations

import os
import signal
import smtplib
import subprocess
import sys
import time
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import httpx
import pytest

from saga_console.demo import cloud, faultproxy, shop
from saga_console.demo.targets import PAYMENTS_KEY, World, answers_http
from saga_console.demo.truth import Truth


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World.start(tmp_path_factory.mktemp("world"))
    yield world
    world.stop()


@pytest.fixture
def payments(world: World) -> Iterator[httpx.Client]:
    """A client that goes through the fault proxy, as the tools do."""
    with client_of(world.at.proxy_url) as client:
        yield client


def client_of(url: str) -> httpx.Client:
    key = {"Authorization": f"Bearer {PAYMENTS_KEY}"}
    return httpx.Client(base_url=url, headers=key, timeout=10, trust_env=False)


def charged(payments: httpx.Client, card: str = "pm_card_visa") -> Any:
    form = {"amount": "4200", "currency": "eur", "payment_method": card, "confirm": "true"}
    answer = payments.post("/v1/payment_intents", data=form)
    answer.raise_for_status()
    return answer.json()


def test_payment_target_refunds_twice_for_one_idempotency_key(
    world: World, payments: httpx.Client
) -> None:
    payment = charged(payments)["id"]
    form = {"payment_intent": payment, "amount": "4200"}
    for _ in range(2):
        answer = payments.post("/v1/refunds", data=form, headers={"Idempotency-Key": "the-same"})
        assert answer.status_code == 200
    # Twice what was paid, and no complaint: nothing here would stop a forgetful agent.
    assert [one["amount"] for one in Truth(world.at).refunds(payment)] == [4200, 4200]


def test_payment_target_keeps_the_stamp_that_probes_look_for(payments: httpx.Client) -> None:
    payment = charged(payments)["id"]
    form = {"payment_intent": payment, "metadata[saga_key]": "k1"}
    refund = payments.post("/v1/refunds", data=form).json()
    listed = payments.get("/v1/refunds", params={"payment_intent": payment, "limit": 100}).json()
    assert [(one["id"], one["metadata"]) for one in listed["data"]] == [
        (refund["id"], {"saga_key": "k1"})
    ]


def test_payment_target_lists_only_ten_unless_told_how_many(
    world: World, payments: httpx.Client
) -> None:
    payment = charged(payments)["id"]
    for _ in range(11):
        payments.post("/v1/refunds", data={"payment_intent": payment, "amount": "1"})
    unasked = payments.get("/v1/refunds", params={"payment_intent": payment}).json()
    assert (len(unasked["data"]), unasked["has_more"]) == (10, True)
    assert len(Truth(world.at).refunds(payment)) == 11


def test_cut_answer_leaves_the_effect_and_breaks_the_connection(
    world: World, payments: httpx.Client
) -> None:
    payment = charged(payments)["id"]
    world.proxy.cut_next("POST", "/v1/refunds")
    with pytest.raises(httpx.TransportError):
        payments.post("/v1/refunds", data={"payment_intent": payment})
    [refund] = Truth(world.at).refunds(payment)
    assert world.proxy.cuts[-1].status == 200
    assert refund["id"] in world.proxy.cuts[-1].body


def test_proxy_cuts_only_what_it_was_armed_for_and_only_once(
    world: World, payments: httpx.Client
) -> None:
    before = len(world.proxy.cuts)
    faultproxy.cut_next(world.at.proxy_url, "POST", "/v1/refunds")
    payment = charged(payments)["id"]
    assert payments.get("/v1/refunds").status_code == 200
    with pytest.raises(httpx.TransportError):
        payments.post("/v1/refunds", data={"payment_intent": payment, "amount": "1"})
    again = payments.post("/v1/refunds", data={"payment_intent": payment, "amount": "1"})
    assert again.status_code == 200
    assert len(faultproxy.cuts(world.at.proxy_url)) == before + 1


def test_proxy_passes_errors_on_as_they_are(payments: httpx.Client) -> None:
    form = {"amount": "1", "currency": "eur", "payment_method": "pm_card_chargeCustomerFail"}
    declined = payments.post("/v1/payment_intents", data={**form, "confirm": "true"})
    assert (declined.status_code, declined.json()["error"]["code"]) == (402, "card_declined")
    assert payments.get("/v1/refunds", params={"payment_intent": "pi_none"}).status_code == 404


def test_proxy_breaks_the_connection_when_the_target_is_gone() -> None:
    proxy = faultproxy.FaultProxy(upstream=("127.0.0.1", 9))
    proxy.start()
    try:
        with pytest.raises(httpx.TransportError):
            httpx.get(proxy.url, trust_env=False)
    finally:
        proxy.stop()


def test_cloud_target_starts_two_instances_for_one_client_token(world: World) -> None:
    ec2 = cloud.client("ec2", world.at.cloud_url)
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "twice"}]}]
    for _ in range(2):
        ec2.run_instances(
            ImageId="ami-03cf127a",
            InstanceType="t3.micro",
            MinCount=1,
            MaxCount=1,
            ClientToken="the-same",
            TagSpecifications=tags,
        )
    assert Truth(world.at).instances("twice") == ["running", "running"]


def test_cloud_target_keeps_a_zone_that_still_has_records(world: World) -> None:
    route53 = cloud.client("route53", world.at.cloud_url)
    zone = route53.create_hosted_zone(Name="full.example", CallerReference="1")["HostedZone"]["Id"]
    record = {"Name": "www.full.example", "Type": "A", "TTL": 60}
    record["ResourceRecords"] = [{"Value": "192.0.2.1"}]
    change = {"Changes": [{"Action": "CREATE", "ResourceRecordSet": record}]}
    route53.change_resource_record_sets(HostedZoneId=zone, ChangeBatch=change)
    with pytest.raises(route53.exceptions.HostedZoneNotEmpty):
        route53.delete_hosted_zone(Id=zone)
    assert Truth(world.at).records("full.example") == ["www.full.example."]


def test_cloud_door_reads_no_account_of_whoever_runs_the_demo(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text("[profile real]\nregion = us-east-1\nendpoint_url = http://127.0.0.1:9\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "real")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody's")
    client = cloud.client("route53", world.at.cloud_url)
    assert client.meta.endpoint_url == world.at.cloud_url
    assert client.meta.config.retries["total_max_attempts"] == 1
    assert client._request_signer._credentials.access_key == "demo"
    shop.open_shop(world.at)
    shop.open_shop(world.at)


def test_mailbox_keeps_what_it_accepted(world: World) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Message-ID"] = "a@shop.example", "b@c.example", "<1@shop>"
    mail.set_content("Grüße\n")
    with smtplib.SMTP("127.0.0.1", world.at.mailbox_port, timeout=5) as server:
        server.send_message(mail)
    [kept] = Truth(world.at).mails("b@c.example")
    assert (kept["Message-ID"], kept.get_content()) == ("<1@shop>", "Grüße\n")


def test_world_comes_back_with_its_ports_and_payments(tmp_path: Path) -> None:
    first = World.start(tmp_path)
    with client_of(first.at.payments_url) as payments:
        payment = charged(payments)["id"]
    first.stop()
    assert not answers_http(f"{first.at.payments_url}/v1/refunds")
    second = World.start(tmp_path)
    try:
        assert second.at == first.at
        with client_of(second.at.payments_url) as payments:
            assert payments.get(f"/v1/payment_intents/{payment}").json()["status"] == "succeeded"
    finally:
        second.stop()


def test_the_shop_comes_back_with_its_orders(tmp_path: Path) -> None:
    """What `make seed` has sown can be decided, and undone, after the next start."""
    world = World.start(tmp_path)
    try:
        shop.open_shop(world.at)
        shop.place_orders(world.at, "1004", "1008")
        shop.ship_order(world.at, "1008")
        shop.close_shop(world.at)
    finally:
        world.stop()
    shop.close_shop(world.at)  # the cloud is gone: nothing of what was kept is lost
    again = World.start(tmp_path)
    try:
        shop.open_shop(again.at)
        truth = Truth(again.at)
        assert truth.order("1004") == "placed"
        assert truth.order("1008") == "shipped"
    finally:
        again.stop()


def test_targets_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, "-c", STARTS_A_WORLD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert started.stdout is not None
    url = started.stdout.readline().strip()
    assert answers_http(f"{url}/v1/refunds")
    started.send_signal(signal.SIGKILL)
    started.wait()
    started.stdout.close()
    deadline = time.monotonic() + 10
    while answers_http(f"{url}/v1/refunds") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not answers_http(f"{url}/v1/refunds")


STARTS_A_WORLD = """
import pathlib, sys, time
from saga_console.demo.targets import World
print(World.start(pathlib.Path(sys.argv[1])).at.payments_url, flush=True)
time.sleep(60)
"""
