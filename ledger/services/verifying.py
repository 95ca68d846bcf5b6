"""The log is the state: replay every entry, compare with the rows, check every hash.

Reads only, in one snapshot, a saga at a time and never the whole ledger in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction

from ledger import keys
from ledger.chain import FIRST, checkpoint_root, entry_hash
from ledger.models import Checkpoint, CheckpointHead, Entry, Saga, Step


@dataclass(frozen=True, slots=True)
class Fault:
    """What does not fit, and where it begins."""

    saga: str
    seq: int | None
    detail: str

    def __str__(self) -> str:
        where = f"saga {self.saga}" + (f", entry {self.seq}" if self.seq is not None else "")
        return f"{where}: {self.detail}"


@dataclass(slots=True)
class Replay:
    """What the entries of one saga say its rows must be."""

    saga_state: str = ""
    steps: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    effects: dict[str, int] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    proposed_twice: dict[str, int] = field(default_factory=dict)


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
        yield from _checkpoints()


def verify_saga(saga: Saga) -> Iterator[Fault]:
    """The faults of one saga: its chain first, then what its rows should be."""
    replay = Replay()
    seq, head = 0, FIRST
    for entry in Entry.objects.filter(saga_id=saga.pk).order_by("seq").iterator(chunk_size=1000):
        seq += 1
        fault = _entry_fault(entry, seq, head)
        if fault:
            yield Fault(str(saga.pk), entry.seq, fault)
            return
        head = entry.hash
        _replay(replay, entry)
    if (saga.head_seq, saga.head_hash) != (seq, head):
        yield Fault(
            str(saga.pk), seq, f"the chain ends at {seq}, but its saga says {saga.head_seq}"
        )
        return
    yield from _row_faults(saga, replay)


def _entry_fault(entry: Entry, seq: int, head: str) -> str:
    if entry.seq != seq:
        return f"entry {seq} is missing"
    if entry.prev_hash != head:
        return "it is not chained to the entry before it"
    expected = entry_hash(
        prev_hash=entry.prev_hash,
        saga_id=entry.saga_id,
        seq=entry.seq,
        kind=entry.kind,
        step_id=entry.step_id,
        at=entry.at,
        actor=entry.actor,
        payload=entry.payload,
    )
    return "" if entry.hash == expected else "its content does not match its hash"


def _replay(replay: Replay, entry: Entry) -> None:
    payload = json.loads(entry.payload)
    state = payload.get("state", "")
    if not state:
        return
    if not entry.step_id:
        replay.saga_state = state
        return
    if entry.kind == "step.proposed" and entry.step_id in replay.steps:
        replay.proposed_twice[entry.step_id] = entry.seq
    replay.steps[entry.step_id] = state
    if entry.kind in {"step.proposed", "step.revised"}:
        replay.digests[entry.step_id] = payload["args_digest"]
    if entry.kind == "step.committed":
        replay.effects[entry.step_id] = entry.seq
        replay.results[entry.step_id] = payload.get("result")


def _row_faults(saga: Saga, replay: Replay) -> Iterator[Fault]:
    name = str(saga.pk)
    if saga.state != replay.saga_state:
        yield Fault(name, None, f"its row says {saga.state}, its entries {replay.saga_state}")
    for step_id, seq in replay.proposed_twice.items():
        yield Fault(name, seq, f"step {step_id!r} is proposed anew: its row was taken away")
    rows = {step.step_id: step for step in Step.objects.filter(saga_id=saga.pk)}
    for missing in replay.steps.keys() - rows.keys():
        yield Fault(name, None, f"step {missing!r} is in the entries but has no row")
    for step in rows.values():
        yield from _step_faults(name, step, replay)


def _step_faults(saga: str, step: Step, replay: Replay) -> Iterator[Fault]:
    told = replay.steps.get(step.step_id, "")
    if step.state != told:
        yield Fault(saga, None, f"step {step.step_id!r} is {step.state}, its entries say {told}")
    if step.fingerprint != replay.digests.get(step.step_id):
        yield Fault(saga, None, f"the digest of step {step.step_id!r} is not the proposed one")
    if step.fingerprint != keys.fingerprint(step.args_text):
        yield Fault(saga, None, f"the args of step {step.step_id!r} do not match their digest")
    if step.executed_seq != replay.effects.get(step.step_id):
        yield Fault(saga, None, f"the effect of step {step.step_id!r} has no such entry")
    elif step.result_text is not None and json.loads(step.result_text) != replay.results.get(
        step.step_id
    ):
        yield Fault(saga, None, f"the result of step {step.step_id!r} is not the recorded one")


def _orphans() -> Iterator[Fault]:
    """Entries whose saga is gone (only possible with the foreign keys switched off)."""
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
    for saga_id, seq, head in heads:
        if known.get((saga_id, seq)) != head:
            yield Fault(
                str(saga_id), seq, f"checkpoint {checkpoint.pk} saw another end of this chain"
            )
