from ledger.models.attempt import Attempt, EffectClaim, IdempotencyRecord, ResourceHold
from ledger.models.drill import Drill, DrillLeg
from ledger.models.entry import Checkpoint, CheckpointHead, Entry
from ledger.models.identity import Agent, Token
from ledger.models.message import Message, Notice
from ledger.models.outbox import OutboxMessage, Shift
from ledger.models.saga import Freeze, Saga
from ledger.models.step import Step, ToolVersion
from ledger.models.tombstone import (
    ClaimTombstone,
    Export,
    LateWord,
    Restoration,
    StepTombstone,
    Tombstone,
)

__all__ = [
    "Agent",
    "Attempt",
    "Checkpoint",
    "CheckpointHead",
    "ClaimTombstone",
    "Drill",
    "DrillLeg",
    "EffectClaim",
    "Entry",
    "Export",
    "Freeze",
    "IdempotencyRecord",
    "LateWord",
    "Message",
    "Notice",
    "OutboxMessage",
    "ResourceHold",
    "Restoration",
    "Saga",
    "Shift",
    "Step",
    "StepTombstone",
    "Token",
    "Tombstone",
    "ToolVersion",
]
