"""The shop that the demo's agent works for: its orders, before anything happens to them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from saga_console.demo import cloud
from saga_console.demo.targets import Addresses

ORDERS = "orders"


def open_shop(at: Addresses) -> None:
    """The table that the shop keeps its orders in, with those that were there at the last stop."""
    dynamodb = cloud.client("dynamodb", at.cloud_url)
    if ORDERS in dynamodb.list_tables()["TableNames"]:
        return
    dynamodb.create_table(
        TableName=ORDERS,
        KeySchema=[{"AttributeName": "order_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "order_id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    if _book(at).exists():
        for item in json.loads(_book(at).read_text()):
            dynamodb.put_item(TableName=ORDERS, Item=item)


def close_shop(at: Addresses) -> None:
    """Keep the orders for the next start, unless the cloud, which lives in memory, is gone."""
    with suppress(BotoCoreError, ClientError):
        pages = cloud.client("dynamodb", at.cloud_url).get_paginator("scan")
        items = [item for page in pages.paginate(TableName=ORDERS) for item in page["Items"]]
        _book(at).write_text(json.dumps(items))


def _book(at: Addresses) -> Path:
    return at.home / "orders.json"


def warm_sandbox(at: Addresses) -> None:
    """The cloud loads a service at its first request, for seconds: not while somebody drills."""
    for service, ask in (("route53", "list_hosted_zones"), ("ec2", "describe_instances")):
        with suppress(BotoCoreError, ClientError):  # the console stopped meanwhile
            getattr(cloud.client(service, at.cloud_sandbox_url), ask)()


def place_orders(at: Addresses, *order_ids: str) -> None:
    """Customers order something: each order is placed."""
    dynamodb = cloud.client("dynamodb", at.cloud_url)
    for order_id in order_ids:
        item = {"order_id": {"S": order_id}, "status": {"S": "placed"}}
        dynamodb.put_item(TableName=ORDERS, Item=item)


def ship_order(at: Addresses, order_id: str) -> None:
    """Somebody in the warehouse is quicker than the saga: the order leaves the house."""
    cloud.client("dynamodb", at.cloud_url).update_item(
        TableName=ORDERS,
        Key={"order_id": {"S": order_id}},
        UpdateExpression="SET #status = :shipped",
        ExpressionAttributeNames={"#status": "status"},
        ExpressionAttributeValues={":shipped": {"S": "shipped"}},
    )
