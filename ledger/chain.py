"""The chain of one saga, as anybody can verify it from what the API shows. Pure."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from uuid import UUID

FIRST = "0" * 64


def stamp(at: datetime) -> str:
    """A time as the hash has it: UTC, six digits, Z."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def entry_hash(
    *,
    prev_hash: str,
    saga_id: UUID | str,
    seq: int,
    kind: str,
    step_id: str,
    at: datetime,
    actor: str,
    payload: str,
) -> str:
    """SHA-256 over one field a line, the payload's text last; ledger/walls.py has it in SQL."""
    text = "\n".join([prev_hash, str(saga_id), str(seq), kind, step_id, stamp(at), actor, payload])
    return hashlib.sha256(text.encode()).hexdigest()


def checkpoint_root(prev_root: str, heads: list[tuple[str, int, str]]) -> str:
    """SHA-256 over the root before and `saga seq hash`, one head a line, sorted."""
    lines = [f"{saga} {seq} {head}" for saga, seq, head in sorted(heads)]
    return hashlib.sha256("\n".join([prev_root, *lines]).encode()).hexdigest()
