"""What the door remembers. Everything else that the console keeps belongs to the two apps."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from ledger.models.fields import ClockTimestamp


class LoginTry(models.Model):
    """One password that was given at a door, for a day; a good one for a month.

    `account` is the SHA-256 of the name as typed, folded: people type passwords there, too.
    """

    account = models.CharField(max_length=64)
    address = models.CharField(max_length=64)
    is_good = models.BooleanField(default=False)
    at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        indexes = [
            models.Index(fields=["account", "-at"], name="saga_tries_of_account"),
            models.Index(
                fields=["address", "-at"], condition=Q(is_good=False), name="saga_tries_from"
            ),
            models.Index(fields=["at"], name="saga_tries_by_age"),
        ]

    def __str__(self) -> str:
        return f"{'good' if self.is_good else 'bad'} try from {self.address}"
