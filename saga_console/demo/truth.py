"""What really happened, read from the targets themselves and from nowhere else."""

from __future__ import annotations

import email.policy
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from email.parser import BytesParser
from typing import Any

import httpx

from saga_console.demo import cloud, shop
from saga_console.demo.targets import PAYMENTS_KEY, Addresses

# The payment server lists ten objects when it is not told how many.
ALL = 1_000_000


@dataclass(frozen=True)
class Truth:
    """Reads effects. It goes past the fault proxy, and past the console."""

    at: Addresses

    def refunds(self, payment: str) -> list[Any]:
        """The refunds of one payment."""
        return [
            refund for refund in self._payments("refunds") if refund["payment_intent"] == payment
        ]

    def paid(self, order: str) -> list[Any]:
        """The payments that succeeded for one order."""
        return [
            payment
            for payment in self._payments("payment_intents")
            if payment["metadata"].get("order_id") == order and payment["status"] == "succeeded"
        ]

    def order(self, order_id: str) -> str:
        """An order's status."""
        key = {"order_id": {"S": order_id}}
        answer = self._aws("dynamodb").get_item(TableName=shop.ORDERS, Key=key, ConsistentRead=True)
        return str(answer["Item"]["status"]["S"])

    def instances(self, name: str) -> list[str]:
        """The states of all instances ever started under this name."""
        wanted = [{"Name": "tag:Name", "Values": [name]}]
        answer = self._aws("ec2").describe_instances(Filters=wanted)
        return [
            one["State"]["Name"] for group in answer["Reservations"] for one in group["Instances"]
        ]

    def zones(self, domain: str) -> list[str]:
        """The ids of the zones of this name."""
        answer = self._aws("route53").list_hosted_zones_by_name(DNSName=domain)
        return [zone["Id"] for zone in answer["HostedZones"] if zone["Name"] == f"{domain}."]

    def records(self, domain: str) -> list[str]:
        """The names of the records under this domain that somebody made."""
        route53 = self._aws("route53")
        return [
            record["Name"]
            for zone in self.zones(domain)
            for record in route53.list_resource_record_sets(HostedZoneId=zone)["ResourceRecordSets"]
            if record["Type"] not in ("NS", "SOA")
        ]

    def databases(self, name: str) -> list[str]:
        answer = self._aws("rds").describe_db_instances()
        found = [one["DBInstanceIdentifier"] for one in answer["DBInstances"]]
        return [one for one in found if one == name]

    def mails(self, to: str) -> list[EmailMessage]:
        """The mails in the mailbox for this address, oldest first."""
        return [mail for mail in self._all_mails() if mail["To"] == to]

    def _all_mails(self) -> Iterator[EmailMessage]:
        files = sorted((self.at.maildir / "new").glob("*"), key=lambda one: one.stat().st_mtime_ns)
        for file in files:
            with file.open("rb") as written:
                yield BytesParser(EmailMessage, policy=email.policy.default).parse(written)

    def _payments(self, what: str) -> list[Any]:
        answer = httpx.get(
            f"{self.at.payments_url}/v1/{what}",
            params={"limit": ALL},
            headers={"Authorization": f"Bearer {PAYMENTS_KEY}"},
            trust_env=False,
        )
        answer.raise_for_status()
        return list(answer.json()["data"])

    def _aws(self, service: str) -> Any:
        return cloud.client(service, self.at.cloud_url)
