from approvals.models.approval import Approval, Decision
from approvals.models.reservation import Reservation

__all__ = ["Approval", "Decision", "Reservation"]
