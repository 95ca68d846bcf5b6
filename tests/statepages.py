"""docs/states.md, written from the tables of states: `python -m tests.statepages` prints it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from approvals.states import ANSWERED, OPEN, ApprovalState
from approvals.states import MEANING as APPROVAL_MEANING
from approvals.states import TRANSITIONS as APPROVAL_TRANSITIONS
from ledger import states
from ledger.states import AttemptState, MessageState, RecordState, SagaState
from ledger.walls import STEP_START

RECORD_MEANING: Mapping[RecordState, str] = {
    RecordState.PENDING: "An attempt under this key has been promised, and its end is not known.",
    RecordState.EXECUTED: "The effect under this key happened. Final: the key is spent.",
    RecordState.FAILED: "It certainly did not happen; a permitted retry may promise it again.",
}

ATTEMPT_MEANING: Mapping[AttemptState, str] = {
    AttemptState.STARTED: "It may be on its way: the intent is committed, no end of it is known.",
    AttemptState.DONE: "The target has said that it was carried out.",
    AttemptState.FAILED: "It certainly had no effect.",
    AttemptState.UNKNOWN: "Nobody heard how it ended. What it says later is kept as evidence.",
}

HEAD = """# States

This page is made from `ledger/states.py` and `approvals/states.py`, and a test compares it with
them: `python -m tests.statepages > docs/states.md` writes it anew. Triggers made from the same
tables refuse every other change, whoever connects: see
[decision 3](decisions/0003-walls-in-plain-sql.md).
`[*]` points at where a row may begin; a state with no arrow out of it is an end.

"""

GROUPS = (
    ("finished, as far as its agent is concerned", states.STEP_FINISHED),
    ("never started, so there is nothing to undo", states.STEP_NOT_STARTED),
    ("something may be out in the world now", states.STEP_IN_DOUBT),
    ("ended without an effect, so its effect key is free again", states.STEP_WITHOUT_EFFECT),
    ("impossible once the effect is recorded, by a trigger", states.STEP_BEFORE_EFFECT),
)
SAGA_GROUPS = (
    ("ended", states.SAGA_ENDED),
    ("an agent may still propose steps", states.SAGA_OPEN),
)
APPROVAL_GROUPS = (
    ("still able to lead to a run", OPEN),
    ("only with the decisions of people, by a constraint trigger", ANSWERED),
)

Groups = Sequence[tuple[str, Iterable[StrEnum]]]


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join(
        [
            _machine(
                "Step",
                "One intended side effect.",
                states.STEP_MEANING,
                states.STEP_TRANSITIONS,
                STEP_START,
                GROUPS,
            ),
            _machine(
                "Saga",
                "One task of one agent.",
                states.SAGA_MEANING,
                states.SAGA_TRANSITIONS,
                [SagaState.RUNNING],
                SAGA_GROUPS,
            ),
            _machine(
                "Idempotency record",
                "What is known of one downstream key.",
                RECORD_MEANING,
                states.RECORD_TRANSITIONS,
                [RecordState.PENDING],
                (),
            ),
            _machine(
                "Attempt",
                "One call of a target, from the intent that is written before it.",
                ATTEMPT_MEANING,
                states.ATTEMPT_TRANSITIONS,
                [AttemptState.STARTED],
                (),
            ),
            _machine(
                "Message",
                "One piece of news on one channel: mail, webhook, Slack or Teams.",
                states.MESSAGE_MEANING,
                states.MESSAGE_TRANSITIONS,
                [MessageState.WAITING],
                (),
            ),
            _machine(
                "Approval",
                "The question put to people about one direction of one step.",
                APPROVAL_MEANING,
                APPROVAL_TRANSITIONS,
                [ApprovalState.PENDING],
                APPROVAL_GROUPS,
            ),
        ]
    )


def _machine(
    noun: str,
    lede: str,
    meaning: Mapping[Any, str],
    edges: Mapping[Any, frozenset[Any]],
    begins: Iterable[StrEnum],
    groups: Groups,
) -> str:
    known = [str(state) for state in meaning]
    after = {str(old): sorted(map(str, new), key=known.index) for old, new in edges.items()}
    lines = [f"## {noun}", "", lede, "", *_drawn(after, begins), ""]
    lines += ["| state | meaning | then |", "|---|---|---|"]
    lines += [
        f"| `{state}` | {text} | {_names(after[str(state)]) or 'the end'} |"
        for state, text in meaning.items()
    ]
    if groups:
        lines += ["", "| group | states |", "|---|---|"]
        lines += [
            f"| {name} | {_names(sorted(map(str, group), key=known.index))} |"
            for name, group in groups
        ]
    return "\n".join(lines) + "\n"


def _names(found: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in found)


def _drawn(after: Mapping[str, Iterable[str]], begins: Iterable[StrEnum]) -> list[str]:
    edges = [f"    {old} --> {new}" for old, targets in after.items() for new in targets]
    starts = [f"    [*] --> {state}" for state in sorted(begins)]
    return ["```mermaid", "stateDiagram-v2", *starts, *edges, "```"]


if __name__ == "__main__":
    sys.stdout.write(page())
