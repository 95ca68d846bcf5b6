"""What the engine knows of a tool, wherever it was written: `Tool`, and the `Call` it is given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from ledger.keys import canonical
from ledger.outcomes import (
    Applied,
    Done,
    Failed,
    NotApplied,
    Outcome,
    Sighting,
    StillUnknown,
    Unknown,
)
from ledger.states import BlastRadius, Direction, Tier
from ledger.tools.drill import Drill
from ledger.tools.faults import DefinitionError
from ledger.tools.identity import Identity
from ledger.tools.schemas import Schema, checked

# What may change without a person having to confirm it: it alters no call. `directions` cannot
# change alone, for they are read off the source, which has a digest of its own.
_NOT_IN_DIGEST = frozenset({"title", "compatible_with", "directions"})
MAX_RESULT_DEPTH = 100
JSON_LEAVES = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt (or one probe) of one direction of a step.

    `args` are the stored, checked args; `result` the recorded forward result when undoing;
    `saga` has id, task_id, name, metadata; `step` has id, step_id, position.
    """

    direction: Direction
    saga_id: str
    step_id: str
    args: dict[str, Any]
    result: Any
    idempotency_key: str
    saga: dict[str, Any]
    step: dict[str, Any]
    timeout_s: float
    attempt: int


class Target(Protocol):
    """How a tool reaches the world: over HTTP or through Python code. May raise anything."""

    @property
    def directions(self) -> frozenset[Direction]: ...

    @property
    def probed(self) -> frozenset[Direction]: ...

    def run(self, call: Call) -> Outcome: ...

    def probe(self, call: Call) -> Sighting: ...


@dataclass(frozen=True)
class Tool:
    """A registered tool. Times are in seconds.

    `definition` is its JSON snapshot without secrets, stored with every step; `digest` is
    the SHA-256 of the parts of it that can change what happens. `compatible_with` are the
    versions or digests whose steps this tool may retry and undo unasked. `drill` says where it
    may be tried out for real.
    """

    key: str
    title: str
    version: str
    tier: Tier
    blast_radius: BlastRadius
    args_schema: dict[str, Any]
    definition: dict[str, Any] = field(repr=False)
    digest: str
    target: Target = field(repr=False, compare=False)
    result_schema: dict[str, Any] | None = None
    effect_key: str | None = None
    resource: str | None = None
    timeout_s: float = 10.0
    retries: int = 5
    downstream_idempotent: bool = False
    idempotent_for_s: float = 86400
    settle_s: float = 30.0
    compatible_with: frozenset[str] = frozenset()
    # No part of the definition: it changes no call of a step.
    drill: Drill | None = field(default=None, compare=False, repr=False)

    @property
    def can_compensate(self) -> bool:
        return Direction.COMPENSATE in self.target.directions

    @property
    def can_correct(self) -> bool:
        return Direction.CORRECT in self.target.directions

    def can_probe(self, direction: Direction = Direction.FORWARD) -> bool:
        """Whether the effect of this direction can be looked for."""
        return direction in self.target.probed

    def is_compatible_with(self, version: str, digest: str) -> bool:
        """Whether a step recorded under `version` and `digest` may run under this tool unasked."""
        same = (version, digest) == (self.version, self.digest)
        return same or not {version, digest}.isdisjoint(self.compatible_with)

    @cached_property
    def definition_text(self) -> str:
        """The definition as JSON text, as each proposal sends it along."""
        return json.dumps(self.definition)

    @cached_property
    def _args(self) -> Schema:
        return Schema(self.args_schema)

    @cached_property
    def _result(self) -> Schema | None:
        return None if self.result_schema is None else Schema(self.result_schema)

    @cached_property
    def _identities(self) -> Mapping[str, Identity]:
        texts = {"effect key": self.effect_key, "resource": self.resource}
        return {
            what: Identity(text, self.args_schema, what)
            for what, text in texts.items()
            if text is not None
        }

    def check(self) -> None:
        """Raise DefinitionError unless schemas, identities and tier fit together."""
        _ = self._args, self._result, self._identities
        check_tier(self.tier, self.target.directions)

    def checked_args(self, args: Any) -> dict[str, Any]:
        """`args` with schema defaults filled; InvalidArgs with up to 20 faults otherwise."""
        return checked(self._args, args)

    def effect_key_for(self, args: dict[str, Any]) -> str | None:
        """The business identity of the effect, or None when the tool declares none."""
        identity = self._identities.get("effect key")
        return identity.of(args) if identity else None

    def resource_for(self, args: dict[str, Any]) -> str | None:
        """What attempts are serialised on, or None."""
        identity = self._identities.get("resource")
        return identity.of(args) if identity else None

    def run(self, call: Call) -> Outcome:
        """Make the call and say what came of it. Never raises: a doubt is Unknown (rule 5.7)."""
        if call.direction not in self.target.directions:
            return Failed(f"{self.key} has no {call.direction}; nothing was sent")
        try:
            outcome = self.target.run(call)
            return self._judged(outcome, call.direction)
        except BaseException as error:  # foreign code: whatever it raises, it may have called out
            return Unknown(f"{self.key} stopped with {describe(error)}")

    def _judged(self, outcome: Outcome, direction: Direction) -> Outcome:
        match outcome:
            case Done(result):
                if fault := json_fault(result):
                    return Unknown(f"it returned what is not JSON: {fault}")
                schema = self._result if direction is Direction.FORWARD else None
                if schema is not None and (faults := schema.faults(result)):
                    where = faults[0]["pointer"] or "the result"
                    return Unknown(f"the answer does not fit: {where}: {faults[0]['detail']}")
                return outcome
            case Failed() | Unknown():
                return outcome
        return Unknown(f"{self.key} gave no outcome but {type(outcome).__name__}")

    def probe(self, call: Call) -> Sighting:
        """Look for the effect of `call.direction`. Never raises: a doubt is StillUnknown."""
        if not self.can_probe(call.direction):
            return StillUnknown(f"{self.key} has no probe for {call.direction}")
        try:
            return self._seen(self.target.probe(call))
        except BaseException as error:
            return StillUnknown(f"the probe of {self.key} stopped with {describe(error)}")

    def _seen(self, sighting: Sighting) -> Sighting:
        match sighting:
            case Applied(result):
                fault = json_fault(result)
                return (
                    StillUnknown(f"the probe found what is not JSON: {fault}")
                    if fault
                    else (sighting)
                )
            case NotApplied() | StillUnknown():
                return sighting
        return StillUnknown(f"the probe of {self.key} gave {type(sighting).__name__}")


def describe(error: BaseException) -> str:
    """An exception as one short line."""
    try:
        text = " ".join(str(error).split())
    except BaseException:  # an exception of foreign code may not even have a text
        text = "(no text)"
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__


def digest_of(definition: Mapping[str, Any]) -> str:
    """64 hex digits over what can change a call; not over titles."""
    told = {name: value for name, value in definition.items() if name not in _NOT_IN_DIGEST}
    return hashlib.sha256(canonical(told).encode("utf-8")).hexdigest()


def json_fault(value: Any, depth: int = 0) -> str | None:
    """Why `value` is not JSON, or None. Numbers that are not finite are left to `storable`."""
    if isinstance(value, JSON_LEAVES):
        return None
    if depth > MAX_RESULT_DEPTH:
        return "it is nested too deep"
    if isinstance(value, dict):
        if odd := next((key for key in value if not isinstance(key, str)), None):
            return f"the key {odd!r} is not text"
        return next(filter(None, (json_fault(v, depth + 1) for v in value.values())), None)
    if isinstance(value, list | tuple):
        return next(filter(None, (json_fault(v, depth + 1) for v in value)), None)
    return f"there is a {type(value).__name__} in it"


def check_tier(tier: Tier, directions: frozenset[Direction]) -> None:
    """A tier is a promise about undoing; raise DefinitionError unless the tool can keep it."""
    if tier is Tier.COMPENSATABLE and Direction.COMPENSATE not in directions:
        raise DefinitionError("a compensatable tool needs compensate, its direct inverse")
    if tier is not Tier.COMPENSATABLE and Direction.COMPENSATE in directions:
        raise DefinitionError(
            f"a {tier} tool cannot be undone, so it must not have compensate: "
            "use correct, or make the tier compensatable"
        )
    if tier is Tier.COMPENSATABLE and Direction.CORRECT in directions:
        raise DefinitionError("a compensatable tool is undone; its correct would never run")
