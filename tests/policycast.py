"""Policies for tests: written as people write them, and in use for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from approvals import policy
from approvals.policy import Policy
from approvals.policyfile import InvalidPolicy, parsed


def written(text: str) -> Policy:
    return parsed(text, "policy.toml")


def faults(text: str) -> list[str]:
    """`line: reason` of every fault of a policy file."""
    with pytest.raises(InvalidPolicy) as caught:
        written(text)
    return [str(fault).removeprefix("policy.toml:") for fault in caught.value.faults]


@contextmanager
def under(text: str) -> Iterator[Policy]:
    """What a process does that was started with this policy file."""
    before = policy.current()
    policy.use(written(text))
    try:
        yield policy.current()
    finally:
        policy.use(before)
