from ledger.models.attempt import Attempt, EffectClaim, IdempotencyRecord, ResourceHold
from ledger.models.entry import Checkpoint, CheckpointHead, Entry
from ledger.models.identity import Agent, Token
from ledger.models.message import Message, Notice
from ledger.models.outbox import OutboxMessage, Shift
from ledger.models.saga import Freeze, Saga
from ledger.models.step import Step, ToolVersion

__all__ = [
    "Agent",
    "Attempt",
    "Checkpoint",
    "CheckpointHead",
    "EffectClaim",
    "Entry",
    "Freeze",
    "IdempotencyRecord",
    "Message",
    "Notice",
    "OutboxMessage",
    "ResourceHold",
    "Saga",
    "Shift",
    "Step",
    "Token",
    "ToolVersion",
]
