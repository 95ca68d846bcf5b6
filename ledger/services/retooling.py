"""A step that would run under another version of its tool than the gate has judged: it is bound to
that one, and judged again.

A yes is bound to one tool version (design section 6). The old version could still run as it was
recorded, but whoever replaced it may have had a reason. And code that was declared or confirmed to
be as good may be of another tier: whether it can be undone is for the gate, and for nobody else.
"""

from __future__ import annotations

from dataclasses import replace

from ledger import storage
from ledger.doubt import has_open_doubt
from ledger.errors import InvalidArgs, UnknownTool
from ledger.rows import SagaRow, StepRow, Variant
from ledger.services.asking import ask, denial, judge_variant
from ledger.services.editing import edited, supersede
from ledger.services.forward import queue
from ledger.services.holding import refuse
from ledger.services.reconciling import hold_for_operator
from ledger.services.tooling import other_stakes
from ledger.services.unit import Unit
from ledger.states import Direction, StepState
from ledger.tools.contract import Tool
from ledger.tools.installed import registry

# While a release is rolled out, workers of both are there, and each would ask about its own. Who
# has the older code leaves it to the others; looks are cheap, and a second is not long for people.
LOOK_AGAIN_S = 1.0
# Longer than a newer worker needs to come by, in a quiet minute or a busy one. When none has, the
# release was taken back, and what the older one would do is asked about.
LEFT_TO_NEWER_S = 300.0
# Whose code is older: what the ledger has known for longer.
_NEWER_MAY_COME = """
SELECT 1 AS yes FROM ledger_outboxmessage o, ledger_toolversion mine, ledger_toolversion asked
WHERE o.id = %s AND o.created_at > clock_timestamp() - %s * interval '1 second'
    AND mine.digest = %s AND asked.digest = %s AND mine.first_seen_at < asked.first_seen_at
"""


def is_left_to_newer(step: StepRow, today: Tool, message: int) -> bool:
    """Whether people were asked under newer code than `today`, whose workers may take it yet."""
    told = [message, LEFT_TO_NEWER_S, today.digest, step.variant.tool_digest]
    return storage.row(_NEWER_MAY_COME, told) is not None


def changed_tool(step: StepRow) -> Tool | None:
    """Today's tool, when it is another than people were asked about and not declared as good."""
    variant = step.variant
    try:
        today = registry().get(variant.tool)
    except UnknownTool:
        return None
    known = {variant.tool_version, variant.tool_digest}
    is_same = today.digest in (variant.tool_digest, step.confirmed_tool)
    return None if is_same or today.compatible_with & known else today


def tool_to_bind(step: StepRow, runs: Tool) -> Tool | None:
    """The version that the step must be judged under before it may run; None when it has been.

    What would run (`runs`: recorded, or declared or confirmed as good) when more or less is at
    stake with it than with what was judged. Today's when people were asked about another: in
    doubt not, for it is sent again as it was.
    """
    if other_stakes(step.variant, runs):
        return runs
    if step.variant.verdict != "ask" or has_open_doubt(step):
        return None
    return changed_tool(step)


def bind(unit: Unit, saga: SagaRow, step: StepRow, today: Tool) -> None:
    """Bind the step to this version, and put it to the gate; whoever said yes is asked anew."""
    old = step.variant
    why = told_changes(old, today)
    try:
        new = edited(step, today, old.args)
    except InvalidArgs as error:
        told = f"{why} {error.detail}"
        unit.move(step, StepState.STUCK, "step.stuck", direction="forward", error=told)
        hold_for_operator(unit, saga, step, told)
        return
    unit.move(step, StepState.AWAITING_APPROVAL, "step.held_again", why=why)
    unit.flush()
    must_ask = why if old.verdict == "ask" else ""
    verdict = judge_variant(saga, step.view(), new, Direction.FORWARD, must_ask=must_ask)
    new = replace(new, verdict="allow" if verdict.kind == "allow" else "ask")
    step = supersede(unit, step, today, new, verdict.rule)
    if verdict.kind == "deny":
        refuse(unit, saga, step, "denied", f"{why} {denial(verdict)}")
    elif verdict.kind == "allow":
        queue(unit, step, "step.queued", why=why)
    else:
        ask(unit, saga, step, Direction.FORWARD, verdict, why=why)


def told_changes(old: Variant, today: Tool) -> str:
    """How the tool has changed since it was judged, in sentences."""
    since = "Since the yes" if old.verdict == "ask" else "Since it was proposed"
    changed = (
        f"{since}, the tool's version changed: {old.tool_version} then, {today.version} now."
        if old.tool_version != today.version
        else f"{since}, the tool's definition changed; both are version {today.version}."
    )
    return f"{changed} {other_stakes(old, today)}".rstrip()
