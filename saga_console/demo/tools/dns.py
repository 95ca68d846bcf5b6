"""Zones and records: Route 53."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from ledger.outcomes import Applied, NotApplied, Sighting
from ledger.tools.contract import Call
from ledger.tools.python import tool
from saga_console.demo.tools import aws
from saga_console.demo.tools.schemas import text


@tool(
    "dns.zone",
    title="Create a DNS zone",
    version="1",
    tier="compensatable",
    blast_radius="medium",
    args=text(name="Domain"),
    effect_key="zone:{args.name}",
    resource="zone:{args.name}",
    timeout_s=15,
    settle_s=1,
    drill=aws.drill({"name": "{drill}.drill.example"}),
)
class Zone:
    """One Route 53 zone, its CallerReference the key; undone by deleting it."""

    def execute(self, call: Call) -> Any:
        with aws.asked():
            answer = aws.client("route53").create_hosted_zone(
                Name=call.args["name"], CallerReference=call.idempotency_key
            )
        return {"zone_id": answer["HostedZone"]["Id"], "name": call.args["name"]}

    def compensate(self, call: Call) -> Any:
        with aws.asked():
            aws.client("route53").delete_hosted_zone(Id=call.result["zone_id"])
        return {"zone_id": call.result["zone_id"], "deleted": True}

    def probe(self, call: Call) -> Sighting:
        if call.direction == "compensate":
            try:
                aws.client("route53").get_hosted_zone(Id=call.result["zone_id"])
            except ClientError as error:
                if aws.error_code(error) == "NoSuchHostedZone":
                    return Applied({"zone_id": call.result["zone_id"], "deleted": True})
                raise
            return NotApplied()
        for page in aws.client("route53").get_paginator("list_hosted_zones").paginate():
            for zone in page["HostedZones"]:
                if zone["CallerReference"] == call.idempotency_key:
                    return Applied({"zone_id": zone["Id"], "name": call.args["name"]})
        return NotApplied()


@tool(
    "dns.record",
    title="Create a DNS record",
    version="1",
    tier="compensatable",
    blast_radius="medium",
    args=text(zone_id="Zone", name="Name", address="IPv4 address"),
    effect_key="record:{args.name}",
    resource="zone:{args.zone_id}",
    timeout_s=15,
    settle_s=1,
)
class Record:
    """One A record. A record carries no stamp: the probe compares name, type and address.

    CREATE (not UPSERT) is refused when the name is taken, so that what is found is ours.
    """

    def execute(self, call: Call) -> Any:
        self._change("CREATE", call)
        return {"name": call.args["name"], "address": call.args["address"]}

    def compensate(self, call: Call) -> Any:
        self._change("DELETE", call)
        return {"name": call.args["name"], "deleted": True}

    def probe(self, call: Call) -> Sighting:
        there = self._is_there(call)
        if call.direction == "compensate":
            return NotApplied() if there else Applied({"name": call.args["name"], "deleted": True})
        if there:
            return Applied({"name": call.args["name"], "address": call.args["address"]})
        return NotApplied()

    def _change(self, action: str, call: Call) -> None:
        change = {"Action": action, "ResourceRecordSet": self._wanted(call)}
        with aws.asked():
            aws.client("route53").change_resource_record_sets(
                HostedZoneId=call.args["zone_id"], ChangeBatch={"Changes": [change]}
            )

    def _is_there(self, call: Call) -> bool:
        wanted = self._wanted(call)
        answer = aws.client("route53").list_resource_record_sets(
            HostedZoneId=call.args["zone_id"],
            StartRecordName=wanted["Name"],
            StartRecordType="A",
            MaxItems="1",
        )
        return any(
            one["Name"] == wanted["Name"] and one["ResourceRecords"] == wanted["ResourceRecords"]
            for one in answer["ResourceRecordSets"]
        )

    def _wanted(self, call: Call) -> dict[str, Any]:
        return {
            "Name": call.args["name"].rstrip(".") + ".",
            "Type": "A",
            "TTL": 60,
            "ResourceRecords": [{"Value": call.args["address"]}],
        }
