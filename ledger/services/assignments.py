"""What a claim hands to a worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from ledger.rows import SagaRow, StepRow
from ledger.states import Direction
from ledger.tools.contract import Call, Tool


@dataclass(frozen=True, slots=True)
class Assignment:
    """One call that this worker may make now. `attempt` is None for a look (a probe).

    `rows`: the saga and the step as the claim left them. `looks_since`: when a look was taken,
    which also tells it from a later one by the same message.
    """

    message: int
    attempt: UUID | None
    token: UUID
    saga: UUID
    step: UUID
    direction: Direction
    round: int
    negatives: int
    lease_s: float
    tool: Tool
    call: Call
    rows: tuple[SagaRow, StepRow] | None = field(default=None, compare=False, repr=False)
    looks_since: datetime | None = None
