"""How states, times, digests and icons look. Every page says them in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ledger import keys
from ledger.legs import DRILL_MEANING, DrillState
from ledger.states import SAGA_MEANING, STEP_MEANING, SagaState, StepState
from ledger.templatetags.visible import show

register = template.Library()

STEP_TONE: Mapping[StepState, str] = {
    StepState.WAITING: "quiet",
    StepState.AWAITING_APPROVAL: "wait",
    StepState.CHANGE_REQUESTED: "wait",
    StepState.QUEUED: "quiet",
    StepState.EXECUTING: "live",
    StepState.UNKNOWN: "doubt",
    StepState.COMMITTED: "good",
    StepState.FAILED: "bad",
    StepState.REJECTED: "bad",
    StepState.CANCELLED: "quiet",
    StepState.COMPENSATING: "back",
    StepState.COMPENSATED: "undone",
    StepState.CORRECTED: "undone",
    StepState.STUCK: "bad",
}
SAGA_TONE: Mapping[SagaState, str] = {
    SagaState.RUNNING: "live",
    SagaState.PAUSED: "wait",
    SagaState.COMPENSATING: "back",
    SagaState.STUCK: "bad",
    SagaState.COMPLETED: "good",
    SagaState.COMPENSATED: "undone",
}
# What an attempt came to, in the tones of the states that it leads to.
ATTEMPT_TONE = {"started": "live", "done": "good", "failed": "bad", "unknown": "doubt"}
APPROVAL_TONE = {
    "pending": "wait",
    "approved": "good",
    "rejected": "bad",
    "change_requested": "wait",
    "expired": "quiet",
    "superseded": "quiet",
    "cancelled": "quiet",
}
APPROVAL_ICON = {
    "pending": "awaiting_approval",
    "approved": "committed",
    "rejected": "rejected",
    "change_requested": "change_requested",
    "expired": "queued",
    "superseded": "cancelled",
    "cancelled": "cancelled",
}

# Tone and picture of how a drill stands.
DRILL_LOOK: Mapping[DrillState, tuple[str, str]] = {
    DrillState.WAITING: ("quiet", "queued"),
    DrillState.RUNNING: ("live", "executing"),
    DrillState.WORKED: ("good", "committed"),
    DrillState.FAILED: ("bad", "failed"),
    DrillState.STOPPED: ("wait", "paused"),
    DrillState.REFUSED: ("bad", "rejected"),
    DrillState.INTERRUPTED: ("doubt", "unknown"),
    DrillState.EXPIRED: ("quiet", "cancelled"),
}

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def span(length: timedelta | float) -> str:
    """A length of time as a person says it: 8 s, 4 min, 2 h 10 min, 3 d 4 h."""
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    for index, (size, unit) in enumerate(_UNITS):
        whole, rest = divmod(int(seconds), size)
        if not whole:
            continue
        smaller = _UNITS[index + 1 : index + 2]
        if smaller and whole < 10 and unit != "min" and rest // smaller[0][0]:
            return f"{whole} {unit} {rest // smaller[0][0]} {smaller[0][1]}"
        return f"{whole} {unit}"
    return "0 s"


def measured(length: timedelta) -> str:
    """How long a call or a saga took: 4 ms, 1.3 s; from 10 s on as any other length."""
    seconds = length.total_seconds()
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))} ms"
    return f"{seconds:.1f} s" if seconds < 10 else span(length)


@register.filter(name="span")
def span_of(length: timedelta | float | None) -> str:
    return "" if length is None else span(length)


def _time(moment: datetime | None, show: str, text: str) -> SafeString | str:
    if moment is None:
        return ""
    return format_html(
        '<time datetime="{}" title="{}" data-show="{}">{}</time>',
        moment.isoformat(timespec="milliseconds"),
        moment.strftime("%d %b %Y, %H:%M:%S UTC"),
        show,
        text,
    )


@register.filter
def ago(moment: datetime | None) -> SafeString | str:
    """'4 min ago'. The exact time in UTC and here is in the title; it ticks with JavaScript."""
    if moment is None:
        return ""
    length = timezone.now() - moment
    text = f"{span(length)} ago" if length >= timedelta(seconds=1) else "now"
    return _time(moment, "ago", text)


@register.filter
def age(moment: datetime | None) -> SafeString | str:
    return _time(moment, "age", span(timezone.now() - moment) if moment else "")


@register.filter
def left(moment: datetime | None) -> SafeString | str:
    """'2 h 10 min left', or how long ago it expired."""
    return _countdown(moment, "left", "expired") if moment else "no limit"


@register.filter
def lease(moment: datetime | None) -> SafeString | str:
    """'12 s left'. A lease is short and renewed all the time: only one that ran out is news."""
    return _countdown(moment, "lease", "ran out") if moment else ""


def _countdown(moment: datetime, kind: str, ended: str) -> SafeString | str:
    now = timezone.now()
    text = f"{span(moment - now)} left" if moment > now else f"{ended} {span(now - moment)} ago"
    return _time(moment, kind, text)


@register.filter
def until(moment: datetime | None) -> SafeString | str:
    if moment is None:
        return ""
    now = timezone.now()
    return _time(moment, "until", f"in {span(moment - now)}" if moment > now else "now")


@register.filter
def clock(moment: datetime | None) -> SafeString | str:
    """The time of day in UTC to the millisecond, after its date unless that is today's.

    The title has both, whatever is shown.
    """
    if moment is None:
        return ""
    today, its = timezone.now().astimezone(UTC), moment.astimezone(UTC)
    date = "" if its.date() == today.date() else its.strftime("%d %b %Y, ")
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        moment.isoformat(timespec="microseconds"),
        moment.strftime("%d %b %Y, %H:%M:%S UTC"),
        f"{date}{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}",
    )


@register.filter
def day(moment: datetime | None) -> SafeString | str:
    if moment is None:
        return ""
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        moment.isoformat(timespec="seconds"),
        moment.strftime("%d %b %Y, %H:%M:%S UTC"),
        moment.strftime("%d %b %Y, %H:%M UTC"),
    )


@register.simple_tag
@cache  # a page draws the same few pictures hundreds of times
def icon(name: str, label: str = "") -> SafeString:
    """A drawing of the sprite; without a label it is decoration and hidden from readers."""
    spoken = format_html('role="img" aria-label="{}"', label) if label else 'aria-hidden="true"'
    return format_html(
        '<svg class="icon{}" {}><use href="{}#{}"></use></svg>',
        " turns" if name == "executing" else "",
        spoken if label else SafeString(spoken),
        static("img/icons.svg"),
        name,
    )


@cache
def badge(word: str, tone: str, picture: str, meaning: str, *, strong: bool = False) -> SafeString:
    return format_html(
        '<span class="badge tone-{}{}" title="{}">{}{}</span>',
        tone,
        " strong" if strong else "",
        meaning,
        icon(picture),
        word.replace("_", " "),
    )


@register.filter
def step_badge(state: str) -> SafeString:
    """The state of a step: shape, word, and the sentence of ledger/states.py as a tooltip."""
    known = StepState(state)
    strong = known is StepState.STUCK
    return badge(known, STEP_TONE[known], known, STEP_MEANING[known], strong=strong)


@register.filter
def held_badge(state: str) -> SafeString:
    """The state of a step that a freeze holds: it is not 'ready to run'."""
    known = StepState(state)
    meaning = "A freeze holds it: nothing of it starts before that is lifted."
    return badge(known, STEP_TONE[known], known, meaning)


@register.filter
def saga_badge(state: str) -> SafeString:
    known = SagaState(state)
    strong = known is SagaState.STUCK
    return badge(known, SAGA_TONE[known], known, SAGA_MEANING[known], strong=strong)


@register.filter
def approval_badge(state: str) -> SafeString:
    return badge(state, APPROVAL_TONE[state], APPROVAL_ICON[state], "")


@register.filter
def drill_badge(state: str) -> SafeString:
    known = DrillState(state)
    tone, picture = DRILL_LOOK[known]
    return badge(known, tone, picture, DRILL_MEANING[known])


@register.filter
def words(state: str) -> str:
    """A state or tier as words."""
    return str(state).replace("_", " ")


@register.filter
def step_tone(state: str) -> str:
    return STEP_TONE[StepState(state)]


@register.filter
def short(value: str) -> str:
    """A digest or a key as every page cuts it: see `keys.short`."""
    return keys.short(value)


@register.filter
def digest(value: str) -> SafeString | str:
    """A digest or a key cut short, the whole in the title, and a button that copies the whole."""
    if not value:
        return ""
    return format_html(
        '<span class="digest" title="{0}">{1}</span>'
        '<button type="button" class="copy" data-copy="{0}" aria-label="Copy" hidden>{2}</button>',
        value,
        keys.short(value),
        icon("copy"),
    )


@register.filter
def actor(name: str) -> SafeString:
    """Who an entry names. Of a worker's long id the end is enough; the title has the whole."""
    kind, _, rest = name.partition(":")
    if kind == "worker":
        return format_html('<span title="{}">worker …{}</span>', name, rest[-6:])
    return show(rest if kind == "person" else f"{kind} {rest}".strip())


@register.inclusion_tag("ledger/tier.html")
def tier(of: str) -> dict[str, str]:
    """What undoing something of this tier would take, in words."""
    return {"tier": of}
