"""What one call to the outside world can come to. Three values, and no fourth.

`Failed` is said only when it is certain that the effect did not happen. Whatever
leaves a doubt is `Unknown`: the engine then looks, and never guesses (design rule 5.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Done:
    """The effect happened. `result` is any JSON value, kept and given to the undo."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The effect certainly did not happen.

    `retryable` says that asking again may help; `retry_after_s` is the target's own
    wish (its Retry-After), in seconds.
    """

    error: str
    retryable: bool = False
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody knows whether the effect happened."""

    reason: str


Outcome = Done | Failed | Unknown


@dataclass(frozen=True, slots=True)
class Applied:
    """A probe found the effect; `result` is what it found."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class NotApplied:
    """A probe looked properly and found nothing. It counts only after the tool's settle time."""


@dataclass(frozen=True, slots=True)
class StillUnknown:
    """A probe could not tell."""

    reason: str


Sighting = Applied | NotApplied | StillUnknown
