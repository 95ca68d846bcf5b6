"""One transition: sagas locked, rows read, facts and states written together.

A service opens a `Unit` inside its transaction, locks the sagas that it will change, moves
steps and sagas, and flushes once. `move` and `move_saga` are the only way to change a state,
and each writes the entry that tells of it: the database refuses a commit in which state and
last entry differ (ledger/walls.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from ledger import keys, storage
from ledger.rows import SAGA_WIDTH, STEP_WIDTH, SagaRow, StepRow
from ledger.services import unit_sql as sql
from ledger.statements import Coming, Statement
from ledger.states import STEP_FINISHED, STEP_WITHOUT_EFFECT, RecordState, SagaState, StepState
from ledger.walls_sql import SUPERSEDED


class Superseded(Exception):
    """Somebody else changed this row first. A normal answer: do nothing."""


class Unit:
    """Collects what one transition changes. `actor` is who every entry names."""

    def __init__(self, actor: str, *, sends_ahead: bool = True) -> None:
        self.actor = actor
        self._sends_ahead = sends_ahead
        self.sagas: dict[UUID, SagaRow] = {}
        self.steps: dict[UUID, StepRow] = {}
        self._statements: list[Statement] = []
        self._entries: list[dict[str, Any]] = []
        self._messages: list[dict[str, Any]] = []
        self._endings: list[dict[str, Any]] = []
        self._freed: list[str] = []
        self._unclaimed: list[str] = []
        self.left_more = False

    # -- reading, under the lock ------------------------------------------------------

    def lock(self, saga_ids: Iterable[UUID], *, then: Sequence[Statement] = ()) -> list[list[Any]]:
        """Lock sagas, then read the rows of each of `then`: one round trip.

        Locks are taken in the order of ids, so that two units never wait in a circle.
        """
        wanted = sorted({*saga_ids} - self.sagas.keys())
        lock: Statement = (sql.LOCK_ONE, wanted) if len(wanted) == 1 else (sql.LOCK, [wanted])
        return self._locked(storage.rows_all([lock, *then]))

    def lock_ahead(self, saga_id: UUID, *, of: UUID | None, then: Sequence[Statement]) -> Coming:
        """Ask for the lock of a saga of this agent, and do not wait for it: `locked` does."""
        return storage.ahead([(sql.LOCK_OWN, [saga_id, of]), *then])

    def locked(self, coming: Coming) -> list[list[Any]]:
        """What `lock` returns, of a lock that was asked for ahead."""
        return self._locked(storage.rows_of(coming))

    def _locked(self, rows: list[list[Any]]) -> list[list[Any]]:
        sagas, *results = rows
        for found in sagas:
            self.took(found)
        return results

    def took(self, found: Any) -> SagaRow:
        """A saga that a statement of the caller's own has locked, by its row."""
        saga = self.sagas[found.id] = SagaRow(*found)
        return saga

    def lock_with_steps(
        self, step_ids: Sequence[UUID], *, then: Sequence[Statement] = ()
    ) -> list[list[Any]]:
        """Lock steps together with their sagas, in one statement; as `lock` otherwise.

        Both rows are locked, so that both are read as they are once the lock is had.
        """
        wanted = [*step_ids]
        lock: Statement = (
            (sql.LOCK_BOTH_ONE, wanted) if len(wanted) == 1 else (sql.LOCK_BOTH, [wanted])
        )
        locked, *results = storage.rows_all([lock, *then])
        for found in locked:
            self._keep(found)
        return results

    def assume(self, saga: SagaRow, step: StepRow) -> None:
        """Take rows for what they were, without a lock and without reading them.

        Sound, because every change of a saga or of its steps is told by an entry, and an entry of
        this unit names its number: where another came first, nothing is written (`Superseded`).
        """
        self.sagas.setdefault(saga.id, copy(saga))
        self.steps[step.id] = copy(step)

    def lock_taken(self, take: str, params: Sequence[Any]) -> list[Any]:
        """Take messages and lock their steps and sagas, in one statement; the messages' rows.

        `take` selects messages with their `step_id`, locking them. As `lock_with_steps`
        otherwise: a step or saga that another unit holds is waited for.
        """
        locked = storage.rows(sql.LOCK_TAKEN.format(take), params)
        for found in locked:
            self._keep(found)
        return locked

    def _keep(self, found: Any) -> None:
        saga, step = found[:SAGA_WIDTH], found[SAGA_WIDTH : SAGA_WIDTH + STEP_WIDTH]
        if saga[0] not in self.sagas:
            self.sagas[saga[0]] = SagaRow(*saga)
        self.steps[step[0]] = StepRow(*step)

    def read_saga_steps(self, saga: SagaRow) -> list[StepRow]:
        """Every step of a locked saga, in the order of their positions."""
        self._read("s.saga_id = %s", [saga.id])
        mine = [step for step in self.steps.values() if step.saga_id == saga.id]
        return sorted(mine, key=lambda step: step.position)

    def read_unfinished_after(self, step: StepRow) -> StepRow | None:
        """The first step after this one in its saga that has not ended, if there is one."""
        if self.sagas[step.saga_id].step_count <= step.position:
            return None
        # Those that were read before may have moved since: they are as they are here.
        self._read(
            "s.saga_id = %s AND s.position > %s AND s.state <> ALL(%s) AND s.id <> ALL(%s::uuid[]) "
            "ORDER BY s.position LIMIT 1",
            [step.saga_id, step.position, sorted(STEP_FINISHED), [*self.steps]],
        )
        mine = (one for one in self.steps.values() if one.saga_id == step.saga_id)
        after = (one for one in mine if one.position > step.position)
        left = (one for one in after if one.state not in STEP_FINISHED)
        return min(left, key=lambda one: one.position, default=None)

    def _read(self, where: str, params: list[Any]) -> None:
        for row in storage.rows(sql.READ.format(where), params):
            if row.id not in self.steps:
                self.steps[row.id] = StepRow(**row._asdict())

    # -- facts and states -------------------------------------------------------------

    def entry(
        self,
        saga: SagaRow,
        kind: str,
        step: StepRow | str = "",
        /,
        *,
        actor: str = "",
        **payload: Any,
    ) -> int:
        """Add a fact; its number within the saga. `payload` holds JSON values only."""
        saga.head_seq += 1
        self._entries.append(
            {
                "saga_id": str(saga.id),
                "seq": saga.head_seq,
                "kind": kind,
                "step_id": step.step_id if isinstance(step, StepRow) else step,
                "actor": actor or self.actor,
                "payload": keys.storable_facts(payload),
            }
        )
        return saga.head_seq

    def move(self, step: StepRow, state: StepState, kind: str, /, **payload: Any) -> int:
        """Change a step's state and tell of it; the number of the entry."""
        if step.state != step.was:
            self.flush()  # the database checks every edge, so none may be skipped
        step.state = state
        step.dirty = True
        if state in STEP_WITHOUT_EFFECT and not step.residue:
            if step.effect_key or step.alternatives:
                self._unclaimed.append(str(step.id))
        return self.entry(self.sagas[step.saga_id], kind, step, state=state.value, **payload)

    def move_saga(self, saga: SagaRow, state: SagaState, kind: str, /, **payload: Any) -> None:
        """Change a saga's state and tell of it."""
        if saga.state != saga.was:
            self.flush()
        saga.state = state
        saga.dirty = True
        self.entry(saga, kind, state=state.value, **payload)

    def send(
        self,
        step: StepRow,
        kind: str,
        direction: str,
        *,
        delay_s: float = 0.0,
        round_no: int = 0,
        negatives: int = 0,
    ) -> None:
        """Want an attempt, or a look, `delay_s` seconds from now."""
        self.left_more = True
        saga = self.sagas[step.saga_id]
        variant = step.variant
        self._messages.append(
            {
                "step_id": str(step.id),
                "kind": kind,
                "direction": direction,
                "saga_fence": saga.fence,
                "tool": variant.tool,
                "agent": saga.agent,
                "saga_id": str(saga.id),
                "resource": variant.resource,
                "round": round_no,
                "negatives": negatives,
                "delay_s": delay_s,
            }
        )

    def free(self, step: StepRow) -> None:
        """Give the step's resource back."""
        if step.variant.resource:
            self.left_more = True
            self._freed.append(str(step.id))

    def end_attempt(
        self, attempt_id: UUID, state: str, record: RecordState, outcome: dict[str, Any]
    ) -> None:
        """End an attempt and the idempotency record of its key; `outcome` as `told` gives it."""
        self._endings.append(
            {
                "id": str(attempt_id),
                "state": state,
                "record": record.value,
                "outcome": keys.storable(outcome)[0],
            }
        )

    # -- writing ----------------------------------------------------------------------

    def also(self, statement: str, params: Sequence[Any] | dict[str, Any]) -> None:
        """Write this too, before everything else of the next flush."""
        self._statements.append((statement, params))

    def send_ahead(self) -> None:
        """Have Postgres begin with what `also` was given, while the rest is being put together.

        For what holds its saga's lock already: else a worker that is stopped here would keep it.
        Not of a unit that puts together many such: it hands all of them over at once.
        """
        if self._sends_ahead:
            storage.ahead(self._statements)
            self._statements = []

    def flush(self, *, last: bool = False) -> None:
        """Write everything in one round trip. Raises Superseded.

        `last` says that nothing follows in this transition: COMMIT then travels with it.
        """
        try:
            (storage.execute_last if last else storage.execute_all)(self._writes())
        except DatabaseError as error:
            if storage.sqlstate(error) == SUPERSEDED:
                raise Superseded from error
            raise
        self._written()

    def _writes(self) -> list[Statement]:
        steps = [sql.step_change(step) for step in self.steps.values() if step.dirty]
        sagas = [sql.saga_change(saga) for saga in self.sagas.values() if saga.dirty]
        writes = [
            (sql.INSERT_ENTRIES, self._entries),
            (sql.UPDATE_STEPS, steps),
            (sql.UPDATE_SAGAS, sagas),
            (sql.END_ATTEMPTS, self._endings),
            (sql.INSERT_MESSAGES, self._messages),
        ]
        statements = [*self._statements]
        for batch, rows in writes:
            if rows:
                statements += batch.of(rows)
        for text, ids in ((sql.RELEASE_CLAIMS, self._unclaimed), (sql.RELEASE_HOLDS, self._freed)):
            if ids:
                statements.append((text, [ids]))
        return statements

    def _written(self) -> None:
        for saga in self.sagas.values():
            saga.was, saga.dirty = saga.state, False
        for step in self.steps.values():
            step.was, step.fence_was, step.dirty = step.state, step.fence, False
        self._statements.clear()
        for pending in (
            self._entries,
            self._messages,
            self._endings,
            self._freed,
            self._unclaimed,
        ):
            pending.clear()
