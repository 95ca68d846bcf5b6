from django.apps import AppConfig


class SagaConsoleConfig(AppConfig):
    name = "saga_console"
    verbose_name = "Saga Console"
