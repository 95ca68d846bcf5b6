"""The demo as a Django app: settings add it only when SAGA_DEMO=1, so that its tools exist
only while the demo runs."""

from django.apps import AppConfig


class DemoConfig(AppConfig):
    name = "saga_console.demo"
    label = "demo"
    verbose_name = "Demo"
