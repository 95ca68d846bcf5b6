"""A process that was forked leaves its parent's connections alone (case P28).

A socket that two processes use carries the words of both. RQ's own worker forks for each job, and
so do web servers that load the application first.
"""

from __future__ import annotations

import os
from typing import Any

from django.db import connections
from django.db.backends.postgresql.base import DatabaseWrapper

# Kept, so that nothing closes them: the farewell would end the parent's session.
_inherited: list[Any] = []


def leave_behind() -> None:
    """In a new child: forget every connection and pool, without a word to the server."""
    for wrapper in connections.all(initialized_only=True):
        _inherited.append(wrapper.connection)
        wrapper.connection = None
        wrapper.in_atomic_block = wrapper.needs_rollback = False
        wrapper.savepoint_ids = []
    pools = vars(DatabaseWrapper)["_connection_pools"]  # Django has no other way to them
    _inherited.append(dict(pools))
    pools.clear()


def watch() -> None:
    """From now on every child of this process starts with connections of its own."""
    os.register_at_fork(after_in_child=leave_behind)
