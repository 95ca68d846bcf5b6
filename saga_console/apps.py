import gc
import logging
from typing import Any

from django.apps import AppConfig
from django.conf import settings

from saga_console import forking

# A request makes some hundred objects and leaves hardly any behind: looked through every 700, as
# Python does by itself, they cost a fiftieth of a step. 20,000 are a few megabytes.
_LOOK_AFTER = 20_000


class SagaConsoleConfig(AppConfig):
    name = "saga_console"
    verbose_name = "Saga Console"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """The first of all apps. What is loaded from here on stays: looking for garbage in it,
        again and again, was an eighth of each process's start."""
        super().__init__(*args, **kwargs)
        gc.disable()

    def ready(self) -> None:
        """Code and models are no garbage later either: no call waits while they are looked at."""
        gc.freeze()
        gc.set_threshold(_LOOK_AFTER)
        gc.enable()
        forking.watch()
        if settings.SAGA_FAULTS:
            logging.getLogger(__name__).warning(
                "SAGA_FAULTS is set: this process stops wherever %s says. It is for crash tests "
                "only; unset it wherever effects are real.",
                settings.SAGA_FAULTS,
            )
