from ledger.models.attempt import Attempt, EffectClaim, IdempotencyRecord, ResourceHold
from ledger.models.drill import Drill, DrillLeg
from ledger.models.entry import Checkpoint, CheckpointHead, Entry
from ledger.models.identity import Agent, Token
from ledger.models.outbox import OutboxMessage, Shift
from ledger.models.saga import Freeze, Saga
from ledger.models.step import Step, ToolVersion

__all__ = [
    "Agent",
    "Attempt",
    "Checkpoint",
    "CheckpointHead",
    "Drill",
    "DrillLeg",
    "EffectClaim",
    "Entry",
    "Freeze",
    "IdempotencyRecord",
    "OutboxMessage",
    "ResourceHold",
    "Saga",
    "Shift",
    "Step",
    "Token",
    "ToolVersion",
]
