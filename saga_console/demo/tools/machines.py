"""Instances and databases: EC2 and RDS."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from ledger.outcomes import Applied, NotApplied, Sighting
from ledger.tools.contract import Call
from ledger.tools.python import tool
from saga_console.demo.tools import aws
from saga_console.demo.tools.schemas import text


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
    drill=aws.drill({"name": "drill-{drill}", "image": "ami-03cf127a", "size": "t3.micro"}),
)
class Instance:
    """One EC2 instance, tagged with the key; undone by terminating it."""

    def execute(self, call: Call) -> Any:
        tags = {"Name": call.args["name"], "saga_key": call.idempotency_key}
        with aws.asked():
            answer = aws.client("ec2").run_instances(
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
        with aws.asked():
            aws.client("ec2").terminate_instances(InstanceIds=[call.result["instance_id"]])
        return {"instance_id": call.result["instance_id"], "state": "terminated"}

    def probe(self, call: Call) -> Sighting:
        if call.direction == "compensate":
            return self._probe_terminated(call.result["instance_id"])
        stamped = [{"Name": "tag:saga_key", "Values": [call.idempotency_key]}]
        found = instances(aws.client("ec2").describe_instances(Filters=stamped))
        return Applied({"instance_id": found[0]["InstanceId"]}) if found else NotApplied()

    def _probe_terminated(self, instance_id: str) -> Sighting:
        found = instances(aws.client("ec2").describe_instances(InstanceIds=[instance_id]))
        if all(one["State"]["Name"] in ("shutting-down", "terminated") for one in found):
            return Applied({"instance_id": instance_id, "state": "terminated"})
        return NotApplied()


def instances(answer: Any) -> list[Any]:
    """The instances in an answer of DescribeInstances."""
    return [one for group in answer["Reservations"] for one in group["Instances"]]


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
        with aws.asked():
            aws.client("rds").create_db_instance(
                DBInstanceIdentifier=call.args["name"],
                DBInstanceClass="db.t3.micro",
                Engine="postgres",
                AllocatedStorage=20,
                DBSubnetGroupName=call.args["subnet_group"],
                Tags=[{"Key": "saga_key", "Value": call.idempotency_key}],
            )
        return {"name": call.args["name"]}

    def compensate(self, call: Call) -> Any:
        with aws.asked():
            aws.client("rds").delete_db_instance(
                DBInstanceIdentifier=call.args["name"], SkipFinalSnapshot=True
            )
        return {"name": call.args["name"], "deleted": True}

    def probe(self, call: Call) -> Sighting:
        stamp = {"Key": "saga_key", "Value": call.idempotency_key}
        try:
            answer = aws.client("rds").describe_db_instances(DBInstanceIdentifier=call.args["name"])
        except ClientError as error:
            if aws.error_code(error) != "DBInstanceNotFound":
                raise
            return NotApplied() if call.direction == "forward" else Applied({"deleted": True})
        if call.direction == "forward" and stamp in answer["DBInstances"][0]["TagList"]:
            return Applied({"name": call.args["name"]})
        return NotApplied()
