from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from ledger.models.fields import ClockTimestamp, uuid7


class Delegation(models.Model):
    """For this time, `delegate` may answer in the right of `delegator`, who is out of office.

    Judged by the database's clock. It is never changed, only withdrawn, and never deleted
    (approvals/walls_who.py): every answer that was given under it names it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    delegator = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="delegations_given"
    )
    delegate = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="delegations_taken"
    )
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    reason = models.TextField()
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=~Q(delegator=F("delegate")), name="approvals_delegated_to_another"
            ),
            models.CheckConstraint(
                condition=Q(ends_at__gt=F("starts_at")), name="approvals_delegation_has_time"
            ),
        ]
        indexes = [
            models.Index(
                fields=["delegate", "ends_at"],
                condition=Q(withdrawn_at__isnull=True),
                name="approvals_covers_of",
            ),
            models.Index(fields=["delegator", "-id"], name="approvals_covered_by"),
        ]

    def __str__(self) -> str:
        return f"{self.delegate} for {self.delegator}"
