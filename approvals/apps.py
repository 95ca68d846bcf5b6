from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings

from approvals import policy
from approvals.policyfile import InvalidPolicy, read


class CannotAsk(SystemExit):
    """The policy cannot be used as it is written. A line for each fault; nothing starts."""


class ApprovalsConfig(AppConfig):
    name = "approvals"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Read the policy, in every process. What cannot be read is refused, never asked about."""
        if settings.SAGA_POLICY:
            try:
                policy.use(read(settings.SAGA_POLICY))
            except InvalidPolicy as error:
                raise CannotAsk(f"SAGA_POLICY: nothing starts under this policy\n{error}") from None
