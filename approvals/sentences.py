"""What people are told about a request, in the same words on every surface. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from approvals.states import ApprovalState

# A page that shows the time again, and ticks, is past any smaller number before it is read.
_JUST = 10
_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR

_DID = {
    ApprovalState.APPROVED: "approved",
    ApprovalState.REJECTED: "rejected",
    ApprovalState.CHANGE_REQUESTED: "sent back for a change",
}
_YOU_DID = {
    ApprovalState.APPROVED: "approved it",
    ApprovalState.REJECTED: "rejected it",
    ApprovalState.CHANGE_REQUESTED: "sent it back for a change",
}


def span(length: timedelta) -> str:
    """A length of time in its largest whole unit: `4 min`, `2 h`, `3 d`."""
    seconds = max(0, int(length.total_seconds()))
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"


def ago(length: timedelta) -> str:
    """How long something is past; in its first seconds a number is wrong at once."""
    return f"{span(length)} ago" if length.total_seconds() >= _JUST else "just now"


def length(seconds: int) -> str:
    """A time exactly, as a policy has it: `90 s`, `30 min`, `24 h`, `7 d`."""
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        # A single day reads better as 24 h.
        if seconds and seconds % unit == 0 and (unit < _DAY or seconds > unit):
            return f"{seconds // unit} {name}"
    return f"{seconds} s"


def number(value: Decimal) -> str:
    """A number with separators, and without the zeros behind the point that say nothing."""
    return f"{value:,.10f}".rstrip("0").rstrip(".")


def decided(
    state: ApprovalState,
    by: str,
    at: datetime,
    now: datetime,
    reason: str = "",
    *,
    is_own: bool = False,
) -> str:
    """Who won, what, and when (case B11). `is_own`: it is told to the very person who did it."""
    stop = "" if reason.endswith((".", "!", "?", "…")) else "."
    said = f" Reason: {reason}{stop}" if reason else ""
    if is_own:
        return f"You {_YOU_DID[state]} {ago(now - at)}.{said}"
    return f"It was already {_DID[state]} by {by} {ago(now - at)}.{said}"


def expired(at: datetime, now: datetime) -> str:
    return (
        f"The request expired {ago(now - at)} and nothing was run. If it is still wanted, "
        "the agent must submit it again as a new step."
    )


def late(at: datetime, now: datetime) -> str:
    return f"{expired(at, now)} Your answer was noted as late; it does not count."


def passed_on(at: datetime, now: datetime, to: str) -> str:
    return (
        f"Its time was over {ago(now - at)} and nothing was run: the question goes to the "
        f"group {to} now."
    )


def late_and_passed_on(at: datetime, now: datetime, to: str) -> str:
    return f"{passed_on(at, now, to)} Your answer was noted as late; it does not count."


def superseded(at: datetime, now: datetime, why: str) -> str:
    because = f" ({why.rstrip('.')})" if why else ""
    return (
        f"The request was replaced {ago(now - at)}{because}. What would run is no longer "
        "what was shown here; decide on the new request."
    )


def cancelled(at: datetime, now: datetime, why: str) -> str:
    because = f": {why.rstrip('.')}" if why else ""
    return f"The request was withdrawn {ago(now - at)}{because}. Nothing was run."


def too_late_for_withdrawn(at: datetime, now: datetime, why: str) -> str:
    return f"{cancelled(at, now, why)} Your answer was noted as late; it does not count."


def unused(runs_from: datetime | None, now: datetime) -> str:
    """What a yes has led to so far, when nothing has started under it."""
    if runs_from is not None and runs_from > now:
        return f"It starts in {span(runs_from - now)} at the earliest; until then a no beats it."
    return "It has not started yet; until it does, a no beats it."


def stale() -> str:
    return (
        "The digest that you sent is not that of what would run now. Read the request again and "
        "decide on what it shows."
    )


def used(at: datetime, now: datetime) -> str:
    return f"The yes was used {ago(now - at)}: the step has been started under it."


def right_used(name: str) -> str:
    return f"The right of {name} was used for this answer already; it counts once."
