"""Who talks to the console: agents, and the tokens of agents and operators."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from ledger.models.fields import ClockTimestamp, uuid7


class Agent(models.Model):
    """A program that proposes steps. Its owner may never decide on them (design section 6)."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=100, unique=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT
    )
    created_at = models.DateTimeField(db_default=ClockTimestamp())

    def __str__(self) -> str:
        return self.name


class Token(models.Model):
    """A bearer token, of one agent or of one person. Only its SHA-256 is kept."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    digest = models.CharField(max_length=64, unique=True)
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.PROTECT)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT
    )
    tools = ArrayField(models.CharField(max_length=200), default=list, blank=True)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(agent__isnull=False, user__isnull=True)
                | Q(agent__isnull=True, user__isnull=False),
                name="ledger_token_one_bearer",
            )
        ]

    def __str__(self) -> str:
        return f"token of {self.agent or self.user}"
