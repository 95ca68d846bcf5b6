from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from ledger.models.fields import ClockTimestamp, uuid7


class Review(models.Model):
    """What a yes under break-glass costs: it stays open until somebody else closes it.

    The database refuses such a yes without its review, and a review that is closed by the
    person who made it necessary (approvals/walls_who.py).
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    approval = models.ForeignKey("Approval", on_delete=models.PROTECT, related_name="reviews")
    decision = models.OneToOneField("Decision", on_delete=models.PROTECT, related_name="review")
    opened_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    opened_at = models.DateTimeField(db_default=ClockTimestamp())
    closed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    closed_name = models.CharField(max_length=150, default="", blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)
    finding = models.TextField(default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(closed_by__isnull=True) | ~Q(closed_by=F("opened_by")),
                name="approvals_review_by_another",
            ),
            models.CheckConstraint(
                condition=Q(closed_by__isnull=True, closed_at__isnull=True, finding="")
                | Q(closed_by__isnull=False, closed_at__isnull=False) & ~Q(finding=""),
                name="approvals_review_closed_whole",
            ),
        ]
        indexes = [
            models.Index(
                fields=["-id"], condition=Q(closed_at__isnull=True), name="approvals_open_reviews"
            )
        ]

    def __str__(self) -> str:
        return f"review of {self.approval_id}"
