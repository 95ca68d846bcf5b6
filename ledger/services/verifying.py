"""The log is the state: replay every entry, compare with the rows, check every hash.

Reads only, in one snapshot, a saga at a time and never the whole ledger in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db import connection, transaction

from ledger.chain import FIRST, checkpoint_root
from ledger.gate import gate
from ledger.models import Checkpoint, CheckpointHead, Entry, Saga, Step
from ledger.replay import Fault, saga_faults
from ledger.services.verifying_tombstones import LAST, seals, tombstone_faults

__all__ = ["Fault", "verify", "verify_saga"]


def verify(on_saga: Any = None) -> Iterator[Fault]:
    """Every fault, in the order of sagas; `on_saga(count)` is told how far it is."""
    with transaction.atomic():
        if not connection.savepoint_ids:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        count = 0
        for saga in Saga.objects.order_by("id").iterator(chunk_size=500):
            yield from verify_saga(saga)
            count += 1
            if on_saga:
                on_saga(count)
        yield from _orphans()
        yield from tombstone_faults()
        yield from _checkpoints()


def verify_saga(saga: Saga) -> Iterator[Fault]:
    """The faults of one saga: its chain first, then what its rows should be."""
    entries = Entry.objects.filter(saga_id=saga.pk).order_by("seq").iterator(chunk_size=1000)
    steps = Step.objects.filter(saga_id=saga.pk)
    yield from saga_faults(saga, entries, steps, gate().decisions(saga.pk))


def _orphans() -> Iterator[Fault]:
    """Entries whose saga is gone (only possible with `ledger_saga_leaves_whole` switched off)."""
    lost = Entry.objects.exclude(saga_id__in=Saga.objects.values("pk")).values_list(
        "saga_id", "seq"
    )
    for saga_id, seq in lost[:1]:
        yield Fault(str(saga_id), seq, "its saga has no row")


def _checkpoints() -> Iterator[Fault]:
    prev_root = FIRST
    for checkpoint in Checkpoint.objects.order_by("pk").iterator(chunk_size=500):
        heads = list(
            CheckpointHead.objects.filter(checkpoint=checkpoint).values_list(
                "saga_id", "seq", "hash"
            )
        )
        root = checkpoint_root(prev_root, [(str(s), n, h) for s, n, h in heads])
        if (checkpoint.prev_root, checkpoint.root) != (prev_root, root):
            yield Fault("-", None, f"checkpoint {checkpoint.pk} does not match its heads")
            return
        prev_root = checkpoint.root
        yield from _heads_faults(checkpoint, heads)


def _heads_faults(checkpoint: Checkpoint, heads: list[tuple[Any, int, str]]) -> Iterator[Fault]:
    known = {
        (row[0], row[1]): row[2]
        for row in Entry.objects.filter(saga_id__in=[head[0] for head in heads])
        .filter(seq__in=[head[1] for head in heads])
        .values_list("saga_id", "seq", "hash")
    }
    sealed = seals([head[0] for head in heads])
    for saga_id, seq, head in heads:
        if head not in (known.get((saga_id, seq)), sealed.get((saga_id, seq))):
            if seq < sealed.get((saga_id, LAST), 0) and (saga_id, seq) not in known:
                continue  # archived; its export has this entry, and the seal is over it
            yield Fault(
                str(saga_id), seq, f"checkpoint {checkpoint.pk} saw another end of this chain"
            )
