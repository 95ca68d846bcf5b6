import logging

from django.apps import AppConfig
from django.conf import settings

from saga_console import forking


class SagaConsoleConfig(AppConfig):
    name = "saga_console"
    verbose_name = "Saga Console"

    def ready(self) -> None:
        forking.watch()
        if settings.SAGA_FAULTS:
            logging.getLogger(__name__).warning(
                "SAGA_FAULTS is set: this process stops wherever %s says. It is for crash tests "
                "only; unset it wherever effects are real.",
                settings.SAGA_FAULTS,
            )
