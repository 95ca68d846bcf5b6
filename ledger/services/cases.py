"""A step in trouble: the facts that decide what an operator may do about it. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ledger import storage
from ledger.actions import Action, Facts, Offer, Trouble, offers
from ledger.doubt import has_open_doubt
from ledger.rows import SAGA_AND_STEP_COLUMNS, SAGA_WIDTH, SagaRow, StepRow
from ledger.services.asking import key_for
from ledger.services.tooling import Parked, tool_to_run
from ledger.states import STEP_FINISHED, Direction, StepState

_READ = (
    f"SELECT {SAGA_AND_STEP_COLUMNS} FROM ledger_step s "  # noqa: S608 - the columns are ours
    "JOIN ledger_saga g ON g.id = s.saga_id JOIN ledger_agent a ON a.id = g.agent_id "
    "JOIN ledger_toolversion v ON v.digest = s.tool_version_id WHERE s.id = ANY(%s)"
)
_SEEN = """
SELECT s.id, a.state AS last_try, m.parked_why,
    m.due_at > clock_timestamp() AS delayed,
    ARRAY(SELECT key FROM ledger_idempotencyrecord
        WHERE step_id = s.id AND state = 'executed') AS spent,
    -- Of an attempt that has ended: nobody knows what it came to.
    ARRAY(SELECT key FROM ledger_idempotencyrecord
        WHERE step_id = s.id AND state = 'pending') AS promised,
    -- An undo is begun once, in one direction, whatever code is here today.
    coalesce((SELECT CASE e.kind WHEN 'step.correcting' THEN 'correct' ELSE 'compensate' END
        FROM ledger_entry e WHERE e.saga_id = s.saga_id AND e.step_id = s.step_id
            AND e.kind IN ('step.compensating', 'step.correcting') ORDER BY e.seq LIMIT 1),
        'forward') AS tries_now,
    (SELECT count(*) FROM ledger_entry e WHERE e.saga_id = s.saga_id AND e.step_id = s.step_id
        AND e.kind::text LIKE 'operator.%%' AND e.payload::jsonb ->> 'question' IS NOT NULL
    ) AS answers,
    EXISTS (SELECT 1 FROM ledger_entry e
        WHERE e.saga_id = s.saga_id AND e.kind = 'saga.turn_waits') AS turn_waits
FROM ledger_step s
LEFT JOIN LATERAL (SELECT state FROM ledger_attempt
    WHERE step_id = s.id ORDER BY fence DESC LIMIT 1) a ON true
LEFT JOIN LATERAL (SELECT parked_why, due_at FROM ledger_outboxmessage
    WHERE step_id = s.id AND taken_at IS NULL ORDER BY due_at LIMIT 1) m ON true
WHERE s.id = ANY(%s)
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A step, and what may be done about it now.

    `question` names what an operator would answer: it changes when the step is tried anew and
    when somebody answers, so that a form that was opened before answers nothing else.
    `confirms` is the digest of today's code, when a yes to it is what is missing.
    """

    saga: SagaRow
    step: StepRow
    facts: Facts
    question: str
    offers: Sequence[Offer]
    parked: Parked | None = None

    @property
    def trouble(self) -> Trouble | None:
        return self.facts.trouble

    @property
    def why(self) -> str:
        """In a sentence, why it does not go on by itself; '' when it does."""
        if self.trouble is None:
            return ""
        if self.parked is not None:
            return self.parked.why
        return self.step.held_why or str((self.step.error or {}).get("detail", ""))

    @property
    def confirms(self) -> str:
        return self.parked.changed_to if self.parked else ""

    def allows(self, action: Action) -> bool:
        return any(offer.action == action for offer in self.offers)


def cases(step_ids: Iterable[UUID]) -> Mapping[UUID, Case]:
    """The cases of these steps as they are now; four statements however many they are."""
    wanted = list(step_ids)
    found: dict[UUID, tuple[SagaRow, StepRow]] = {}
    for row in storage.rows(_READ, [wanted]) if wanted else ():
        values = list(row)
        step = StepRow(*values[SAGA_WIDTH:])
        found[step.id] = (SagaRow(*values[:SAGA_WIDTH]), step)
    seen = {row.id: row for row in storage.rows(_SEEN, [wanted])} if found else {}
    return {key: _case(*found[key], seen[key]) for key in found}


def case_of(saga: SagaRow, step: StepRow) -> Case:
    """The case of one step that the caller holds locked."""
    return _case(saga, step, storage.the_row(_SEEN, [[step.id]]))


def _case(saga: SagaRow, step: StepRow, seen: Any) -> Case:
    direction = Direction(seen.tries_now)
    tool = tool_to_run(step, direction)
    parked = tool if isinstance(tool, Parked) else None
    waits_parked = bool(seen.parked_why)
    facts = Facts(
        state=step.state,
        direction=direction,
        residue=step.residue,
        held=bool(step.held_why),
        in_doubt=has_open_doubt(step) or key_for(step, direction) in seen.promised,
        in_flight=seen.last_try == "started",
        delayed=bool(seen.delayed),
        parked=waits_parked or (parked is not None and step.state != StepState.QUEUED),
        confirmable=parked is not None and parked.may_be_confirmed,
        installed=parked is None or bool(parked.changed_to),
        can_look=not isinstance(tool, Parked) and tool.can_probe(direction),
        past_pivot=saga.is_past_pivot,
        going_back=bool(saga.ended_backward_why) or (seen.turn_waits and not saga.is_past_pivot),
        damaged=(step.error or {}).get("code") == "tampered",
        spent=step.state not in STEP_FINISHED and key_for(step, direction) in seen.spent,
    )
    trouble = facts.trouble
    question = f"{step.fence}.{seen.answers}.{direction}.{trouble}" if trouble else ""
    return Case(saga, step, facts, question, offers(facts), parked)
