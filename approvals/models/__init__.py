from approvals.models.approval import Approval, Decision

__all__ = ["Approval", "Decision"]
