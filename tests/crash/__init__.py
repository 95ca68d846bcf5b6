"""Every crash point, driven from outside: real processes, servers and targets (docs/recovery.md).

`python -m tests.crash` runs every row and prints the table; tests/test_crash.py runs the quick
ones in the ordinary suite.
"""
