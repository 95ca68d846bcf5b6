"""What the entries of a saga say its rows must be, and where the two differ. Pure.

Rows are whatever has the columns as attributes: models of the database, or lines of an export.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger import keys
from ledger.chain import FIRST, entry_hash

# What an entry that freezes a step tells of it, beside its arguments: column and fact. Entries of
# earlier releases tell less.
_NAMED = {
    "tool": "tool",
    "tool_version_id": "tool_digest",
    "idempotency_key": "idempotency_key",
    "tier": "tier",
    "blast_radius": "blast_radius",
}
# At which earlier releases cut a fact once more than the row.
_ONCE_MAX_FACT = 100_000


def is_told(stored: Any, told: Any) -> bool:
    """Whether a step's stored result is the one that its entry tells.

    Compared as JSON: true is not 1.
    """
    if _json(stored) == _json(told):
        return True
    return keys.storable(stored, max_chars=_ONCE_MAX_FACT)[0] == keys.storable(told)[0]


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Fault:
    """What does not fit, and where it begins; `saga` is "-" when it is no saga's."""

    saga: str
    seq: int | None
    detail: str

    def __str__(self) -> str:
        if self.saga == "-":
            return self.detail
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
    named: dict[str, dict[str, Any]] = field(default_factory=dict)
    decisions: dict[str, tuple[int, Mapping[str, Any]]] = field(default_factory=dict)
    proposed_twice: dict[str, int] = field(default_factory=dict)


def saga_faults(
    saga: Any,
    entries: Iterable[Any],
    steps: Iterable[Any],
    decisions: Mapping[str, Mapping[str, Any]],
) -> Iterator[Fault]:
    """The faults of one saga: its chain first, then what its rows should be.

    `decisions`: what people said, as `ledger.gate.Gate.decisions` has it.
    """
    replay = Replay()
    seq, head = 0, FIRST
    for entry in entries:
        seq += 1
        fault = _entry_fault(entry, seq, head)
        if fault:
            yield Fault(str(saga.id), entry.seq, fault)
            return
        head = entry.hash
        _replay(replay, entry)
    if (saga.head_seq, saga.head_hash) != (seq, head):
        yield Fault(
            str(saga.id), seq, f"the chain ends at {seq}, but its saga says {saga.head_seq}"
        )
        return
    yield from _row_faults(saga, steps, replay)
    yield from _decision_faults(saga, decisions, replay)


def _entry_fault(entry: Any, seq: int, head: str) -> str:
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


def _replay(replay: Replay, entry: Any) -> None:
    payload = json.loads(entry.payload)
    # Only the gate's entries tell decisions; a refusal (`proposal.refused`) names one in its words.
    if entry.kind.startswith("approval.") and "decision" in payload:
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
        replay.named[entry.step_id] = {
            column: payload[fact] for column, fact in _NAMED.items() if fact in payload
        }
    if entry.kind == "step.committed":
        replay.effects[entry.step_id] = entry.seq
        replay.results[entry.step_id] = payload.get("result")


def _row_faults(saga: Any, steps: Iterable[Any], replay: Replay) -> Iterator[Fault]:
    name = str(saga.id)
    if saga.state != replay.saga_state:
        told = f"its row says {saga.state}, this entry {replay.saga_state or 'nothing'}"
        yield Fault(name, replay.told_at.get(""), told)
    for step_id, seq in replay.proposed_twice.items():
        yield Fault(name, seq, f"step {step_id!r} is proposed anew: its row was taken away")
    rows = {step.step_id: step for step in steps}
    for missing in replay.steps.keys() - rows.keys():
        yield Fault(name, replay.told_at[missing], f"step {missing!r} has no row")
    for step in rows.values():
        for at, detail in _step_faults(step, replay):
            yield Fault(name, at, f"step {step.step_id!r}: {detail}")


def _step_faults(step: Any, replay: Replay) -> Iterator[tuple[int | None, str]]:
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
    for column, fact in replay.named.get(step.step_id, {}).items():
        if str(getattr(step, column)) != fact:
            yield proposed_at, f"its {column.removesuffix('_id')} is not the proposed one"
    if step.executed_seq != effect_at:
        yield effect_at, f"its row has its effect at entry {step.executed_seq}"
    elif effect_at and not is_told(
        json.loads(step.result_text or "null"), replay.results[step.step_id]
    ):
        yield effect_at, "its result is not the recorded one"


def _decision_faults(
    saga: Any, rows: Mapping[str, Mapping[str, Any]], replay: Replay
) -> Iterator[Fault]:
    """Where what people said, as the gate keeps it, is not what the ledger was told."""
    name = str(saga.id)
    for decision, (seq, told) in replay.decisions.items():
        row = rows.get(decision)
        if row is None:
            yield Fault(name, seq, f"decision {decision} has no row")
        elif wrong := sorted(key for key in row if row[key] != told.get(key)):
            yield Fault(name, seq, f"decision {decision} has another {', '.join(wrong)}")
    for decision in sorted(rows.keys() - replay.decisions.keys()):
        yield Fault(name, None, f"decision {decision} is in no entry")
