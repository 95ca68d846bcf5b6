"""The log is the state: replay every entry, compare with the rows, check every hash.

Reads only, in one snapshot, a saga at a time and never the whole ledger in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction

from ledger import keys
from ledger.chain import FIRST, checkpoint_root, entry_hash
from ledger.gate import gate
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
    """What the entries of one saga say its rows must be.

    `told_at` is the number of the last entry that told of a step, or of the saga itself (under
    ''); `proposed_at` that of the entry that froze its args.
    """

    saga_state: str = ""
    steps: dict[str, str] = field(default_factory=dict)
    told_at: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    proposed_at: dict[str, int] = field(default_factory=dict)
    effects: dict[str, int] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    decisions: dict[str, tuple[int, Mapping[str, Any]]] = field(default_factory=dict)
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
    yield from _decision_faults(saga, replay)


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
    if entry.hash != expected:
        return "its content does not match its hash"
    # A copy for the database's own rules, and not under the hash.
    if entry.state != json.loads(entry.payload).get("state", ""):
        return f"it is kept as {entry.state!r}, which its content does not say"
    return ""


def _replay(replay: Replay, entry: Entry) -> None:
    payload = json.loads(entry.payload)
    if "decision" in payload:
        said = payload | {"kind": entry.kind, "actor": entry.actor}
        replay.decisions[payload["decision"]] = (entry.seq, said)
    if not entry.state:
        return
    replay.told_at[entry.step_id] = entry.seq
    if not entry.step_id:
        replay.saga_state = entry.state
        return
    if entry.kind == "step.proposed" and entry.step_id in replay.steps:
        replay.proposed_twice[entry.step_id] = entry.seq
    replay.steps[entry.step_id] = entry.state
    if entry.kind in {"step.proposed", "step.revised"} and not payload.get("alternative"):
        replay.digests[entry.step_id] = payload["args_digest"]
        replay.proposed_at[entry.step_id] = entry.seq
    if entry.kind == "step.committed":
        replay.effects[entry.step_id] = entry.seq
        replay.results[entry.step_id] = payload.get("result")


def _row_faults(saga: Saga, replay: Replay) -> Iterator[Fault]:
    name = str(saga.pk)
    if saga.state != replay.saga_state:
        told = f"its row says {saga.state}, this entry {replay.saga_state or 'nothing'}"
        yield Fault(name, replay.told_at.get(""), told)
    for step_id, seq in replay.proposed_twice.items():
        yield Fault(name, seq, f"step {step_id!r} is proposed anew: its row was taken away")
    rows = {step.step_id: step for step in Step.objects.filter(saga_id=saga.pk)}
    for missing in replay.steps.keys() - rows.keys():
        yield Fault(name, replay.told_at[missing], f"step {missing!r} has no row")
    for step in rows.values():
        for at, detail in _step_faults(step, replay):
            yield Fault(name, at, f"step {step.step_id!r}: {detail}")


def _step_faults(step: Step, replay: Replay) -> Iterator[tuple[int | None, str]]:
    """The number of the entry that a row contradicts, and how."""
    told = replay.steps.get(step.step_id, "nothing")
    proposed_at = replay.proposed_at.get(step.step_id)
    effect_at = replay.effects.get(step.step_id)
    if step.state != told:
        yield replay.told_at.get(step.step_id), f"its row says {step.state}, this entry {told}"
    if step.fingerprint != replay.digests.get(step.step_id):
        yield proposed_at, "its digest is not the proposed one"
    if step.fingerprint != keys.fingerprint(step.args_text):
        yield proposed_at, "its args do not match their digest"
    if step.executed_seq != effect_at:
        yield effect_at, f"its row has its effect at entry {step.executed_seq}"
    elif effect_at and json.loads(step.result_text or "null") != replay.results[step.step_id]:
        yield effect_at, "its result is not the recorded one"


def _decision_faults(saga: Saga, replay: Replay) -> Iterator[Fault]:
    """Where what people said, as the gate keeps it, is not what the ledger was told."""
    name = str(saga.pk)
    rows = gate().decisions(saga.pk)
    for decision, (seq, told) in replay.decisions.items():
        row = rows.get(decision)
        if row is None:
            yield Fault(name, seq, f"decision {decision} has no row")
        elif wrong := sorted(key for key in row if row[key] != told.get(key)):
            yield Fault(name, seq, f"decision {decision} has another {', '.join(wrong)}")
    for decision in sorted(rows.keys() - replay.decisions.keys()):
        yield Fault(name, None, f"decision {decision} is in no entry")


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
