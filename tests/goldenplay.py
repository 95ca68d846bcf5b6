"""The scenes of a golden ledger: sagas brought into every state by what brings them there.

Agents propose, people decide, shifts work against the payment server; a worker that was killed
is a claim that nobody records. Nothing is written past the services, but for a lease that is
let run out early and a request's end that is brought forward, as the tests of both do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledger.services.checkpoints import anchor
from tests.goldencast import Play, make_due
from tests.goldengate import (
    approved,
    approved_by_two,
    edited_by_a_person,
    expired,
    glass_broken,
    passed_on,
    rejected,
    reopened,
    revised,
    taken_back,
    turned_late,
)
from tests.goldenopen import (
    approved_and_not_run,
    asked_again,
    blind,
    change_requested,
    compensating,
    executing,
    frozen,
    of_another_worker,
    queued,
    retrying,
    stuck,
    unknown,
    waiting,
)
from tests.goldensettled import (
    aborted,
    alternative,
    answered,
    archived,
    compensated,
    completed,
    confirmed,
    contradicted,
    deduplicated,
    edited_by_an_operator,
    late,
    looked_up,
    repeated,
    sent_again,
    skipped,
    undone_at_last,
    with_residue,
)

__all__ = ["Play", "play_all"]
SETTLED = (
    archived, completed, approved, approved_by_two, taken_back, sent_again, undone_at_last,
    compensated, aborted, with_residue, rejected, expired, revised,
    alternative, deduplicated, repeated, looked_up, late, answered,
    skipped, contradicted, edited_by_a_person, edited_by_an_operator, confirmed, reopened,
    glass_broken, passed_on, turned_late,
)  # fmt: skip
IN_FLIGHT = (
    blind, stuck, waiting, change_requested, approved_and_not_run, frozen, executing, unknown,
    asked_again, retrying, compensating, queued, of_another_worker,
)  # fmt: skip


def play_all(play: Play, say: Callable[[str], Any]) -> None:
    """Every scene, the settled first; in the end what is in flight is due."""
    for scene in (*SETTLED, *IN_FLIGHT):
        say(scene.__name__)
        scene(play)
    make_due()
    anchor()
