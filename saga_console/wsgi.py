"""The door for web servers."""

from __future__ import annotations

import gc
import os

from django.core.wsgi import get_wsgi_application

from ledger.tools.installed import required

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "saga_console.settings")

application = get_wsgi_application()
required()

# What is loaded by now stays: the collector need not walk through all of Django again and again.
gc.collect()
gc.freeze()
