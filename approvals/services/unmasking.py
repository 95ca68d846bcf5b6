"""An edited version without its masks: who edits is shown no secrets, and changes none unseen."""

from __future__ import annotations

import json
from typing import Any

from approvals.models import Approval
from ledger.masking import instead
from ledger.queries.shown import args_meant, args_of


def meant(request: Approval, sent: Any) -> Any:
    """What `sent` says once its masks stand for what they hide. Raises InvalidArgs."""
    return args_meant(sent, json.loads(request.args_text), request.tool, request.tool_digest)


def as_shown(request: Approval, args: Any) -> Any:
    """The other way: with masks for what `request` has as well, and news as they are."""
    bound = json.loads(request.args_text)
    return instead(args, bound, args_of(bound, request.tool, request.tool_digest))
