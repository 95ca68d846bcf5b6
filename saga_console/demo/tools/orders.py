"""The shop's orders: items of a DynamoDB table, each with its status."""

from __future__ import annotations

from typing import Any

from ledger.outcomes import Applied, NotApplied, Sighting
from ledger.tools.contract import Call
from ledger.tools.python import tool
from saga_console.demo.shop import ORDERS
from saga_console.demo.tools import aws
from saga_console.demo.tools.schemas import text


class OrderMove:
    """An order goes from one status to another, and back: one conditional write each way."""

    before: str
    after: str

    def execute(self, call: Call) -> Any:
        with aws.asked():
            self._move(call, self.before, self.after)
        return {"order_id": call.args["order_id"], "was": self.before, "status": self.after}

    def compensate(self, call: Call) -> Any:
        with aws.asked():
            self._move(call, self.after, self.before)
        return {"order_id": call.args["order_id"], "status": self.before}

    def probe(self, call: Call) -> Sighting:
        item = aws.client("dynamodb").get_item(
            TableName=ORDERS, Key={"order_id": {"S": call.args["order_id"]}}, ConsistentRead=True
        )
        stamp = item.get("Item", {}).get("saga_key", {}).get("S")
        if stamp != call.idempotency_key:
            return NotApplied()
        return Applied({"order_id": call.args["order_id"], "status": item["Item"]["status"]["S"]})

    def _move(self, call: Call, before: str, after: str) -> None:
        aws.client("dynamodb").update_item(
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
