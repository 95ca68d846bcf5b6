from approvals.models.approval import Approval, Decision
from approvals.models.delegation import Delegation
from approvals.models.reservation import Reservation
from approvals.models.review import Review

__all__ = ["Approval", "Decision", "Delegation", "Reservation", "Review"]
