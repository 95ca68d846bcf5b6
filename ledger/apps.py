from __future__ import annotations

from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings

from ledger import channels, masking, webhosts


class CannotTell(SystemExit):
    """Messages cannot be sent as it is set. One line a fault, exit status 1; nothing starts."""


class LedgerConfig(AppConfig):
    name = "ledger"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Know what must never leave, and refuse channels that would tell nobody."""
        masking.know(settings.SECRET_KEY, settings.EMAIL_HOST_PASSWORD)
        masking.know(*(str(one.get("PASSWORD", "")) for one in settings.DATABASES.values()))
        masking.know(urlsplit(settings.REDIS_URL).password or "")
        try:
            webhosts.hosts(settings.SAGA_WEBHOOK_HOSTS)
        except ValueError as error:
            raise CannotTell(f"SAGA_WEBHOOK_HOSTS: {error}") from None
        try:
            found = channels.channels().values()
        except channels.InvalidChannels as error:
            raise CannotTell(f"SAGA_CHANNELS: {error}") from None
        if any(channel.form == "mail" for channel in found) and not settings.SAGA_MAIL_URL:
            raise CannotTell(
                "SAGA_MAIL_URL: a channel of SAGA_CHANNELS is mail, and no server is named"
            )
