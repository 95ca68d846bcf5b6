"""Column kinds that several models share."""

from __future__ import annotations

import uuid
from enum import StrEnum

import uuid_utils.compat
from django.db import models
from django.db.models import DateTimeField, Func


def uuid7() -> uuid.UUID:
    """A UUIDv7: sorts by time, so an index on it grows at one end (RFC 9562, 5.7)."""
    return uuid_utils.compat.uuid7()


class ClockTimestamp(Func):
    """The database's clock at this moment; `now()` stands still within a transaction."""

    function = "clock_timestamp"
    template = "%(function)s()"
    output_field = DateTimeField()


def state_field(
    states: type[StrEnum], *, default: StrEnum | None = None
) -> models.CharField[str, str]:
    """A text column for one state of `states`."""
    longest = max(len(state.value) for state in states)
    choices = [(state.value, state.value.replace("_", " ")) for state in states]
    if default is None:
        return models.CharField(max_length=longest, choices=choices)
    return models.CharField(max_length=longest, choices=choices, default=default.value)


def state_constraint(field: str, states: type[StrEnum], name: str) -> models.CheckConstraint:
    """The database's own list of the permitted values of a state column."""
    values = [state.value for state in states]
    return models.CheckConstraint(condition=models.Q(**{f"{field}__in": values}), name=name)
