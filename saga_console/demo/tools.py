"""The demo's Python tools: AWS through boto3, mail through smtplib.

Each stamps its key on its effect where the target lets it, so that the probe finds exactly
this effect. Found with the app `saga_console.demo`, which is installed only with SAGA_DEMO=1.
Settle times are short because targets on the same machine answer at once; a real tool says
how long its target may take to show what it has done.
"""

from __future__ import annotations

import functools
import os
import smtplib
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
)

from ledger.outcomes import Applied, NotApplied, Sighting
from ledger.tools.contract import Call, ToolFailed, ToolRetry, ToolUnknown, tool
from saga_console.demo import cloud

ORDERS = "orders"
SHOP = "orders@shop.example"
THROTTLES = frozenset({"Throttling", "ThrottlingException", "RequestLimitExceeded"})


def text(**fields: str) -> dict[str, Any]:
    """A JSON Schema of required string fields, each with its title."""
    return {
        "type": "object",
        "required": list(fields),
        "additionalProperties": False,
        "properties": {
            name: {"type": "string", "minLength": 1, "title": title}
            for name, title in fields.items()
        },
    }


@functools.cache
def aws(service: str) -> Any:
    """A client of the demo's cloud; boto3 clients may be shared between threads."""
    return cloud.client(service, os.environ["SAGA_DEMO_CLOUD_URL"])


@contextmanager
def asked_of_aws() -> Iterator[None]:
    """Say what an AWS error means for the effect: not sent, refused, or nobody knows."""
    try:
        yield
    except (EndpointConnectionError, ConnectTimeoutError) as error:
        raise ToolRetry(str(error)) from error
    except ClientError as error:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        code = error.response["Error"]["Code"]
        if code in THROTTLES or status in (429, 503):
            raise ToolRetry(str(error)) from error
        if 400 <= status < 500:
            raise ToolFailed(str(error)) from error
        raise ToolUnknown(str(error)) from error
    except BotoCoreError as error:
        raise ToolUnknown(str(error)) from error


def error_code(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])


class OrderMove:
    """An order goes from one status to another, and back: one conditional write each way."""

    before: str
    after: str

    def execute(self, call: Call) -> Any:
        with asked_of_aws():
            self._move(call, self.before, self.after)
        return {"order_id": call.args["order_id"], "was": self.before, "status": self.after}

    def compensate(self, call: Call) -> Any:
        with asked_of_aws():
            self._move(call, self.after, self.before)
        return {"order_id": call.args["order_id"], "status": self.before}

    def probe(self, call: Call) -> Sighting:
        item = aws("dynamodb").get_item(
            TableName=ORDERS, Key={"order_id": {"S": call.args["order_id"]}}, ConsistentRead=True
        )
        stamp = item.get("Item", {}).get("saga_key", {}).get("S")
        if stamp != call.idempotency_key:
            return NotApplied()
        return Applied({"order_id": call.args["order_id"], "status": item["Item"]["status"]["S"]})

    def _move(self, call: Call, before: str, after: str) -> None:
        aws("dynamodb").update_item(
            TableName=ORDERS,
            Key={"order_id": {"S": call.args["order_id"]}},
            UpdateExpression="SET #status = :after, saga_key = :key",
            ConditionExpression="#status = :before",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={
                ":before": {"S": before},
                ":after": {"S": after},
                ":key": {"S": call.idempotency_key},
            },
        )


@tool(
    "orders.cancel",
    title="Cancel an order",
    version="1",
    tier="compensatable",
    blast_radius="medium",
    args=text(order_id="Order"),
    effect_key="cancel:{args.order_id}",
    resource="order:{args.order_id}",
    timeout_s=15,
    settle_s=1,
)
class CancelOrder(OrderMove):
    """placed → cancelled, and back."""

    before, after = "placed", "cancelled"


@tool(
    "orders.confirm",
    title="Confirm an order",
    version="1",
    tier="compensatable",
    blast_radius="low",
    args=text(order_id="Order"),
    effect_key="confirm:{args.order_id}",
    resource="order:{args.order_id}",
    timeout_s=15,
    settle_s=1,
)
class ConfirmOrder(OrderMove):
    """placed → confirmed, and back."""

    before, after = "placed", "confirmed"


@tool(
    "cloud.instance",
    title="Start an instance",
    version="1",
    tier="compensatable",
    blast_radius="medium",
    args=text(name="Name", image="Image (AMI)", size="Instance type"),
    effect_key="instance:{args.name}",
    timeout_s=15,
    settle_s=1,
)
class Instance:
    """One EC2 instance, tagged with the key; undone by terminating it."""

    def execute(self, call: Call) -> Any:
        tags = {"Name": call.args["name"], "saga_key": call.idempotency_key}
        with asked_of_aws():
            answer = aws("ec2").run_instances(
                ImageId=call.args["image"],
                InstanceType=call.args["size"],
                MinCount=1,
                MaxCount=1,
                ClientToken=call.idempotency_key[:64],
                TagSpecifications=[
                    {
                        "ResourceType": "instance",
                        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
                    }
                ],
            )
        return {"instance_id": answer["Instances"][0]["InstanceId"]}

    def compensate(self, call: Call) -> Any:
        with asked_of_aws():
            aws("ec2").terminate_instances(InstanceIds=[call.result["instance_id"]])
        return {"instance_id": call.result["instance_id"], "state": "terminated"}

    def probe(self, call: Call) -> Sighting:
        if call.direction == "compensate":
            return self._probe_terminated(call.result["instance_id"])
        stamped = [{"Name": "tag:saga_key", "Values": [call.idempotency_key]}]
        found = instances(aws("ec2").describe_instances(Filters=stamped))
        return Applied({"instance_id": found[0]["InstanceId"]}) if found else NotApplied()

    def _probe_terminated(self, instance_id: str) -> Sighting:
        found = instances(aws("ec2").describe_instances(InstanceIds=[instance_id]))
        if all(one["State"]["Name"] in ("shutting-down", "terminated") for one in found):
            return Applied({"instance_id": instance_id, "state": "terminated"})
        return NotApplied()


def instances(answer: Any) -> list[Any]:
    """The instances in an answer of DescribeInstances."""
    return [one for group in answer["Reservations"] for one in group["Instances"]]


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
)
class Zone:
    """One Route 53 zone, its CallerReference the key; undone by deleting it."""

    def execute(self, call: Call) -> Any:
        with asked_of_aws():
            answer = aws("route53").create_hosted_zone(
                Name=call.args["name"], CallerReference=call.idempotency_key
            )
        return {"zone_id": answer["HostedZone"]["Id"], "name": call.args["name"]}

    def compensate(self, call: Call) -> Any:
        with asked_of_aws():
            aws("route53").delete_hosted_zone(Id=call.result["zone_id"])
        return {"zone_id": call.result["zone_id"], "deleted": True}

    def probe(self, call: Call) -> Sighting:
        if call.direction == "compensate":
            try:
                aws("route53").get_hosted_zone(Id=call.result["zone_id"])
            except ClientError as error:
                if error_code(error) == "NoSuchHostedZone":
                    return Applied({"zone_id": call.result["zone_id"], "deleted": True})
                raise
            return NotApplied()
        for page in aws("route53").get_paginator("list_hosted_zones").paginate():
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
        with asked_of_aws():
            aws("route53").change_resource_record_sets(
                HostedZoneId=call.args["zone_id"], ChangeBatch={"Changes": [change]}
            )

    def _is_there(self, call: Call) -> bool:
        wanted = self._wanted(call)
        answer = aws("route53").list_resource_record_sets(
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


@tool(
    "cloud.database",
    title="Start a database",
    version="1",
    tier="compensatable",
    blast_radius="medium",
    args=text(name="Name", subnet_group="Subnet group"),
    effect_key="database:{args.name}",
    timeout_s=15,
    settle_s=1,
)
class Database:
    """One RDS database. AWS refuses an unknown subnet group for good."""

    def execute(self, call: Call) -> Any:
        with asked_of_aws():
            aws("rds").create_db_instance(
                DBInstanceIdentifier=call.args["name"],
                DBInstanceClass="db.t3.micro",
                Engine="postgres",
                AllocatedStorage=20,
                DBSubnetGroupName=call.args["subnet_group"],
                Tags=[{"Key": "saga_key", "Value": call.idempotency_key}],
            )
        return {"name": call.args["name"]}

    def compensate(self, call: Call) -> Any:
        with asked_of_aws():
            aws("rds").delete_db_instance(
                DBInstanceIdentifier=call.args["name"], SkipFinalSnapshot=True
            )
        return {"name": call.args["name"], "deleted": True}

    def probe(self, call: Call) -> Sighting:
        stamp = {"Key": "saga_key", "Value": call.idempotency_key}
        try:
            answer = aws("rds").describe_db_instances(DBInstanceIdentifier=call.args["name"])
        except ClientError as error:
            if error_code(error) != "DBInstanceNotFound":
                raise
            return NotApplied() if call.direction == "forward" else Applied({"deleted": True})
        if call.direction == "forward" and stamp in answer["DBInstances"][0]["TagList"]:
            return Applied({"name": call.args["name"]})
        return NotApplied()


@tool(
    "mail.confirmation",
    title="Send an order confirmation",
    version="1",
    tier="non_compensatable",
    blast_radius="high",
    args=text(order_id="Order", to="To", text="Text"),
    effect_key="confirmation:{args.order_id}",
    resource="order:{args.order_id}",
    timeout_s=15,
    settle_s=1,
)
class ConfirmationMail:
    """A mail cannot be called back. Its correction is another mail.

    There is no probe: SMTP has no question "did you get it?". A connection that breaks after
    the text was sent leaves the step unknown, and a person has to look.
    """

    def execute(self, call: Call) -> Any:
        mail = EmailMessage()
        mail["Subject"] = f"Your order {call.args['order_id']} is on its way"
        mail.set_content(call.args["text"])
        return post(mail, call)

    def correct(self, call: Call) -> Any:
        mail = EmailMessage()
        mail["Subject"] = f"We are sorry: your order {call.args['order_id']} is not on its way"
        mail["In-Reply-To"] = mail["References"] = call.result["message_id"]
        mail.set_content(
            "Our last mail was wrong: the payment was declined and nothing has been sent.\n"
            "You do not have to do anything.\n"
        )
        return post(mail, call)


def post(mail: EmailMessage, call: Call) -> dict[str, str]:
    """Hand one mail over, and know at each point whether it can have been accepted."""
    message_id = f"<{call.idempotency_key}@shop.example>"
    mail["Message-ID"], mail["From"], mail["To"] = message_id, SHOP, call.args["to"]
    host, _, port = os.environ["SAGA_DEMO_MAIL"].rpartition(":")
    server = smtplib.SMTP(timeout=call.timeout_s / 3)
    try:
        server.connect(host, int(port))
        server.ehlo_or_helo_if_needed()
    except (OSError, smtplib.SMTPException) as error:
        raise ToolRetry(f"the mail server was not reached: {error}") from error
    try:
        server.send_message(mail)
    except (smtplib.SMTPRecipientsRefused, smtplib.SMTPResponseException) as error:
        raise ToolFailed(f"the mail server refused it: {error}") from error
    except (OSError, smtplib.SMTPException) as error:
        raise ToolUnknown(f"the connection broke while the mail was sent: {error}") from error
    finally:
        # The answer to QUIT says nothing about the mail, so it is not waited for.
        server.close()
    return {"message_id": message_id, "to": call.args["to"]}
