"""An edited version without its masks: who edits is shown no secrets, and changes none unseen.

A part that comes back exactly as it was shown is the part that it stands for. The places of a
list can move, so a list with a secret in it comes back whole or with the secret written anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from approvals.models import Approval
from ledger.errors import InvalidArgs
from ledger.masking import MASK
from ledger.queries.shown import args_of


def meant(request: Approval, sent: Any) -> Any:
    """What `sent` says once its masks stand for what they hide. Raises InvalidArgs."""
    bound = json.loads(request.args_text)
    shown = args_of(bound, request.tool, request.tool_digest)
    if shown == bound:
        return sent
    found = _instead(sent, shown, bound)
    if MASK in json.dumps(found, ensure_ascii=False):
        raise InvalidArgs(
            f"A secret is still masked ({MASK}) at a place where it was not before. Leave that "
            "part exactly as it was, or write the secret itself.",
            errors=[{"pointer": "", "detail": f"contains {MASK}"}],
        )
    return found


def as_shown(request: Approval, args: Any) -> Any:
    """The other way: with masks for what `request` has as well, and news as they are."""
    bound = json.loads(request.args_text)
    return _instead(args, bound, args_of(bound, request.tool, request.tool_digest))


def _instead(value: Any, before: Any, after: Any) -> Any:
    """`value` with every part that is the same in `before` as it is in `after`."""
    if _text(value) == _text(before):
        return after
    if all(isinstance(one, Mapping) for one in (value, before, after)):
        return {
            name: _instead(part, before[name], after[name])
            if name in before and name in after
            else part
            for name, part in value.items()
        }
    return value


def _text(value: Any) -> str:
    """Of the JSON: true is not 1."""
    return json.dumps(value, sort_keys=True)
