from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings


class CannotAsk(SystemExit):
    """The policy cannot be used as it is set. One line, exit status 1; nothing starts."""


class ApprovalsConfig(AppConfig):
    name = "approvals"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Refuse to start under a policy that would be ignored: the wrong people would be asked."""
        if settings.SAGA_POLICY:
            raise CannotAsk(
                f"SAGA_POLICY: policy files are not read yet, and {settings.SAGA_POLICY} would be "
                "ignored. Unset it to start under the default policy (docs/approvals.md)."
            )
