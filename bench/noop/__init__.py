"""An app with one tool that does nothing, so that what is measured is the console alone.

Installed like anybody's app: `SAGA_APPS=bench.noop`.
"""
