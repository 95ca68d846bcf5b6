"""What may have happened, whatever state a step is in. Pure: rows and models alike."""

from __future__ import annotations

from typing import Any, Protocol

from ledger.states import STEP_FINISHED, STEP_IN_DOUBT


class Told(Protocol):
    """A step as far as these questions go."""

    @property
    def state(self) -> Any: ...
    @property
    def error(self) -> Any: ...


def has_open_doubt(step: Told) -> bool:
    """Whether an attempt that may have had its effect is being sent again: until that is answered
    the step is in doubt, whatever its state (only what settles a doubt changes this error)."""
    return step.state not in STEP_FINISHED and (step.error or {}).get("code") == "unknown"


def may_have_happened(step: Told) -> bool:
    """Whether its forward call is out, or nobody knows what it came to."""
    return step.state in STEP_IN_DOUBT or has_open_doubt(step)
