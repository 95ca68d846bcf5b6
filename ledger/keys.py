"""Identity: when two steps are the same step, and under which key a target sees them.

Design section 4. Digests are over the canonical text of parsed args, never over raw text
and never over a jsonb round trip. Pure: no Django.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Any
from uuid import UUID

import rfc8785

from ledger.errors import InvalidArgs
from ledger.jsontext import parse_json, pointer, storable, storable_facts
from ledger.lookalikes import skeleton
from ledger.states import Direction

__all__ = [
    "canonical",
    "claim_skeleton",
    "differing_paths",
    "direction_key",
    "downstream_key",
    "fingerprint",
    "identity_text",
    "parse_json",
    "pointer",
    "repeat_claim",
    "repeated_effect",
    "short",
    "skeleton",
    "storable",
    "storable_facts",
]

MAX_DIFFERENCES = 50
# Enough to tell the few dozen of a page apart, and to find one at a target.
SHORT = 12


def canonical(value: Any) -> str:
    """RFC 8785 text of a JSON value: 1 and 1.0 are the same, strings stay as given.

    Raises InvalidArgs for what has no canonical form (see `parse_json`).
    """
    try:
        return rfc8785.dumps(value).decode("utf-8")
    except (rfc8785.CanonicalizationError, RecursionError, ValueError, TypeError) as error:
        raise InvalidArgs(f"This cannot be written as canonical JSON: {error}") from None


def fingerprint(canonical_args: str) -> str:
    """64 hex digits: SHA-256 of canonical text."""
    return hashlib.sha256(canonical_args.encode("utf-8")).hexdigest()


def short(key: str) -> str:
    """A digest or key as people are shown it: `comp:` and the like, and the first twelve digits."""
    prefix, colon, rest = key.rpartition(":")
    return f"{prefix}{colon}{rest[:SHORT]}"


def downstream_key(saga_id: str, step_id: str, tool: str, canonical_args: str) -> str:
    """The key the target sees on every forward attempt of this step: 64 hex digits.

    A pure function of the step, so that it can never be minted anew (case C63). The four
    parts are hashed as one canonical JSON list: no choice of parts can run into another.
    """
    return fingerprint(canonical([saga_id, step_id, tool, canonical_args]))


def direction_key(key: str, direction: Direction, alternative: int = 0) -> str:
    """The key of one direction of a step, or of its alternative number `alternative` (from 1)."""
    if alternative < 0:
        raise ValueError(f"alternative must be 0 or more, not {alternative}")
    own = f"alt{alternative}:{key}" if alternative else key
    match direction:
        case Direction.FORWARD:
            return own
        case Direction.COMPENSATE:
            return f"comp:{own}"
        case Direction.CORRECT:
            return f"corr:{own}"


def differing_paths(a: Any, b: Any) -> list[str]:
    """JSON Pointers at which two JSON values differ, sorted, at most 50; 1 equals 1.0."""
    found: list[str] = []
    _compare(a, b, (), found)
    return sorted(found)[:MAX_DIFFERENCES]


def _compare(a: Any, b: Any, path: tuple[Any, ...], found: list[str]) -> None:
    if isinstance(a, dict) and isinstance(b, dict):
        for name in a.keys() | b.keys():
            if name in a and name in b:
                _compare(a[name], b[name], (*path, name), found)
            else:
                found.append(pointer((*path, name)))
    elif isinstance(a, list) and isinstance(b, list):
        for index in range(max(len(a), len(b))):
            if index < len(a) and index < len(b):
                _compare(a[index], b[index], (*path, index), found)
            else:
                found.append(pointer((*path, index)))
    elif isinstance(a, bool) != isinstance(b, bool) or a != b:  # in Python, True equals 1
        found.append(pointer(path))


# How the claim of a deliberate repeat begins: beside the effect that it repeats, so that a repeat
# that is asked again finds the first repeat, and not a third effect.
_REPEAT = re.compile(r"repeat of [0-9a-f-]{36}: ")


def repeat_claim(step: UUID, effect_key: str) -> str:
    """The claim of a second effect on purpose, as the one of `step`."""
    return f"repeat of {step}: {effect_key}"


def repeated_effect(claim: str) -> str:
    """The effect key behind the claim of a repeat, or of a repeat of one; else the claim itself."""
    return _REPEAT.sub("", claim)


def claim_skeleton(claim: str) -> str:
    """The text under which all is found that looks like this claim, repeats of its effect too."""
    return skeleton(repeated_effect(claim) or claim)


def identity_text(text: str) -> str:
    """Text of effect keys and resources: NFC, so that two spellings of é are one key."""
    return unicodedata.normalize("NFC", text)
