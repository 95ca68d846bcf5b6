"""Requests that are told of, brought to each of their ends."""

from __future__ import annotations

import time
from typing import Any

from approvals.services import deciding, expiring
from ledger.models import Notice
from ledger.services import closing
from tests.approvalcast import Case, person

MAIL = """
[channel.desk]
form = "mail"
groups = ["approvers"]
to = ["desk@example.org"]
"""


def kinds_of(case: Case) -> list[str]:
    """What was told about the newest request of a case, in order."""
    return list(
        Notice.objects.filter(about=case.request.pk).order_by("id").values_list("kind", flat=True)
    )


def end(case: Case, how: str) -> None:
    """Bring the request to one of its ends."""
    olivia = person("olivia", "approvers")
    told: dict[str, Any] = {"args_digest": case.digest, "reason": "as agreed"}
    match how:
        case "approved":
            deciding.approve(olivia, case.request.pk, **told)
        case "rejected":
            deciding.reject(olivia, case.request.pk, **told)
        case "change_requested":
            deciding.request_change(olivia, case.request.pk, **told)
        case "expired":
            case.ask_again(seconds=0.01)
            time.sleep(0.05)
            assert expiring.sweep() == 1
        case "superseded":
            case.ask_again()
        case "cancelled":
            closing.abort(case.saga, "no longer wanted", bearer=case.agent)
