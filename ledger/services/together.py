"""Proposals that come at the same moment, written in one transaction.

Each of them costs Postgres and this process twice as much alone. Written together are only steps
that are new in every respect, may run without asking anybody, and whose locks are free: whatever
else a proposal may come to, `proposing.propose` finds out, alone. So it does for all of them when
anything goes wrong with their transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import OperationalError, connection

from ledger import faultpoints, storage
from ledger.bearer import Bearer
from ledger.errors import Unauthorized
from ledger.services import inserting, proposing, relating
from ledger.services.gathering import Gathering
from ledger.services.preparing import Prepared, prepare
from ledger.services.proofs import Proof
from ledger.services.proposals import Answer, Proposal
from ledger.services.unit import Unit
from ledger.services.unit_sql import LOCK_OWN_IF_FREE
from ledger.statements import Statement

logger = logging.getLogger(__name__)

# Their sagas' locks are held until the last of them is put together. And while one half of sixteen
# callers is written, the calls of the other half are made: of 16 the rate was 0.91, of 4 0.98.
MOST = 8
# How long a proposal waits for one that is held up, say by the lock of its saga.
PATIENCE_S = 0.02
# Longer arguments are looked through, judged and told in nobody's time but their own.
LARGEST_ARGS = 8192
# For what cannot be asked for without waiting: a tool's new version that another is just writing.
_BRIEFLY: Statement = ("SELECT set_config('lock_timeout', '250ms', true)", [])


@dataclass(slots=True, eq=False)
class _Asked:
    """One proposal, and what has become of it: `answer`, `error`, or it is to be proposed alone."""

    saga_id: UUID
    proposal: Proposal
    bearer: Bearer
    proof: Proof | None
    prepared: Prepared | None = None
    answer: Answer | None = None
    error: OperationalError | None = None
    # It was written together with others, and nobody knows whether it was committed.
    may_be_done: bool = False

    def prepare(self) -> bool:
        """Whether it may be written together with others. Alone, it is told what is wrong."""
        bearer = self.proof.bearer if self.proof else self.bearer
        try:
            self.prepared = prepare(self.saga_id, self.proposal, bearer=bearer)
        except Exception as error:
            logger.debug("proposed alone: %r", error)
            return False
        return len(self.prepared.variant.args_text) <= LARGEST_ARGS


_gathering: Gathering[_Asked] = Gathering(most=MOST, patience_s=PATIENCE_S)


def propose(
    saga_id: UUID, proposal: Proposal, *, bearer: Bearer, proof: Proof | None = None
) -> Answer:
    """As `proposing.propose`: together with those that other threads submit at this moment."""
    asked = _Asked(saga_id, proposal, bearer, proof)
    if connection.in_atomic_block or proposal.alternatives or proposal.repeat_of is not None:
        return _alone(asked)
    with _gathering.turn(asked, key=saga_id, ready=asked.prepare) as led:
        if len(led) == 1:
            return _alone(asked)
        if led:
            _write_if_possible(led)
    if asked.error is not None:
        raise OperationalError(*asked.error.args) from asked.error.__cause__
    return asked.answer or _alone(asked)


def _alone(asked: _Asked) -> Answer:
    how = proposing.propose_again if asked.may_be_done else proposing.propose
    return how(
        asked.saga_id,
        asked.proposal,
        bearer=asked.bearer,
        proof=asked.proof,
        prepared=asked.prepared,
    )


def _write_if_possible(led: Sequence[_Asked]) -> None:
    """Whatever goes wrong with one of them is nothing that another shall be told."""
    try:
        _write(led)
    except BaseException as error:
        logger.warning("%d proposals are written one by one: %r", len(led), error)
        is_lost = storage.may_be_done(error) or not isinstance(error, Exception)
        for asked in led:
            asked.may_be_done, asked.answer = is_lost and asked.answer is not None, None
            if isinstance(error, OperationalError) and storage.has_no_connection(error):
                asked.error = error  # alone, each would wait for one as long again
        if is_lost:
            connection.close()
        if not isinstance(error, Exception):
            raise


@storage.transition
def _write(led: Sequence[_Asked]) -> None:
    """Write those that can be written, and give them their answers."""
    reads = [(asked, prepared, _reads(asked, prepared)) for asked, prepared in _unlike(led)]
    faultpoints.reached("P0")
    statements = [_BRIEFLY, *(one for _, _, mine in reads for one in mine)]
    _, *found = storage.rows_all(statements)
    each = iter(found)
    unit = Unit("", sends_ahead=False)
    for asked, prepared, mine in reads:
        asked.answer = _insert(unit, asked.proof, prepared, list(islice(each, len(mine))))
    if any(asked.answer for asked in led):
        faultpoints.reached("P1")
        unit.flush(last=True)


def _unlike(led: Sequence[_Asked]) -> Iterator[tuple[_Asked, Prepared]]:
    """No two of them whose effects look alike: neither would see the other's."""
    claimed: set[str] = set()
    for asked in led:
        prepared = asked.prepared
        assert prepared is not None
        if not prepared.claim:
            yield asked, prepared
        elif prepared.skeleton not in claimed:
            claimed.add(prepared.skeleton)
            yield asked, prepared


def _reads(asked: _Asked, prepared: Prepared) -> list[Statement]:
    """The saga's lock, whose token it is, and what it may be about. None of them waits."""
    lock = (LOCK_OWN_IF_FREE, [asked.saga_id, prepared.bearer.agent_id])
    owner = [asked.proof.statement] if asked.proof else []
    return [lock, *owner, *relating.looks(asked.saga_id, prepared, waits=False)]


def _insert(
    unit: Unit, proof: Proof | None, prepared: Prepared, rows: list[list[Any]]
) -> Answer | None:
    """The answer, if this can be written together with others; `rows` are those of `_reads`."""
    locked, *rows = rows
    if proof is not None:
        try:
            proof.heed(rows.pop(0))
        except Unauthorized:
            return None
        if proof.bearer != prepared.bearer:
            return None
    *free, related = rows
    if not locked or not all(one.alone for (one,) in free):
        return None
    unit.actor = prepared.bearer.actor
    return inserting.insert_new(unit, unit.took(locked[0]), prepared, related)
