"""How long to wait before the next try. Pure: the random source is passed in."""

from __future__ import annotations

from random import Random

# A target may ask for patience, but not park a saga for days by one header.
MAX_RETRY_AFTER_S = 3600.0


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
