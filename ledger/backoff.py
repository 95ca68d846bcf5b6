"""How long to wait before the next try. Pure: the random source is passed in."""

from __future__ import annotations

from random import Random

# A target may ask for patience, but not park a saga for days by one header.
MAX_RETRY_AFTER_S = 3600.0

# Inconclusive looks before a person is asked; with the backoff below that is about 3 minutes.
LOOKS = 10
LOOK_CAP_S = 60.0
SLOW_LOOK_CAP_S = 3600.0


def delay_s(
    attempt: int,
    *,
    base_s: float = 0.5,
    cap_s: float = 60,
    rng: Random,
    retry_after_s: float | None = None,
) -> float:
    """Seconds to wait after failed attempt number `attempt` (from 1).

    Exponential backoff with full jitter (AWS Architecture Blog, 2015): uniform between 0
    and the exponential ceiling, so that many callers never come back in step. A target's
    own `retry_after_s` is a floor, at most one hour.
    """
    if attempt < 1:
        raise ValueError(f"attempts are counted from 1, not {attempt}")
    ceiling = min(cap_s, base_s * 2 ** min(attempt - 1, 60))
    floor = min(max(retry_after_s or 0.0, 0.0), MAX_RETRY_AFTER_S)
    return max(rng.uniform(0, ceiling), floor)


def look_delay_s(looks: int) -> float:
    """Seconds until the next look, after `looks` that could not tell (from 1).

    Doubling from half a second to a minute while nobody else is asked; after `LOOKS` a person
    is, and the looking goes on ever more slowly, to once an hour: a target that was away for a
    night must not need a person for each step that it left in doubt.
    """
    if looks < 1:
        raise ValueError(f"looks are counted from 1, not {looks}")
    if looks < LOOKS:
        return min(LOOK_CAP_S, 0.5 * 2.0 ** (looks - 1))
    return min(SLOW_LOOK_CAP_S, LOOK_CAP_S * 2.0 ** min(looks - LOOKS + 1, 60))
