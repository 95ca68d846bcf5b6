"""Tools written in Python: a class with execute, and by its tier compensate, correct, probe.

    from ledger.tools.python import ToolFailed, tool

    @tool("mail.confirm", version="1", tier="non_compensatable", blast_radius="medium",
          args=Confirmation, resource="order:{args.order_id}")
    class Confirm:
        def execute(self, call): ...
        def correct(self, call): ...
        def probe(self, call): ...

A plain return is Done with that result. Code that knows that nothing happened raises
ToolFailed or ToolRetry; whatever else it raises is Unknown (design rule 5.7).
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

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
from ledger.tools.contract import Call, Tool, digest_of
from ledger.tools.drill import Drill
from ledger.tools.faults import DefinitionError, Fault, InvalidTools
from ledger.tools.sandbox import faults_of
from ledger.tools.schemas import closed

_METHODS = {
    Direction.FORWARD: "execute",
    Direction.COMPENSATE: "compensate",
    Direction.CORRECT: "correct",
}
_MARK = "__saga_tool__"
__all__ = ["Drill", "PythonTarget", "ToolFailed", "ToolRetry", "ToolUnknown", "tool", "tools_in"]
C = TypeVar("C", bound=type)


class ToolFailed(Exception):
    """It certainly did not happen, and trying again would not help."""


class ToolRetry(Exception):
    """It certainly did not happen, and trying again may help, `retry_after_s` seconds on."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ToolUnknown(Exception):
    """It may have happened; look before anything else."""


@dataclass(frozen=True)
class PythonTarget:
    """Calls the methods of one instance of the tool's class."""

    instance: Any = field(repr=False)

    @property
    def directions(self) -> frozenset[Direction]:
        return frozenset(d for d, name in _METHODS.items() if hasattr(self.instance, name))

    @property
    def probed(self) -> frozenset[Direction]:
        # One probe method serves every direction: call.direction says which effect is meant.
        return self.directions if hasattr(self.instance, "probe") else frozenset()

    def says(self, direction: Direction) -> str:
        """The first line of the docstring of this direction's method, or ''."""
        method = getattr(self.instance, _METHODS[direction], None)
        told = (inspect.getdoc(method) or "").strip() if method is not None else ""
        return told.partition("\n")[0]

    def run(self, call: Call) -> Outcome:
        """Call the method of this direction; named errors become outcomes."""
        try:
            returned = getattr(self.instance, _METHODS[call.direction])(call)
        except ToolFailed as error:
            return Failed(str(error))
        except ToolRetry as error:
            return Failed(str(error), retryable=True, retry_after_s=error.retry_after_s)
        except ToolUnknown as error:
            return Unknown(str(error))
        if isinstance(returned, Done | Failed | Unknown):
            return returned
        return Done(returned)

    def probe(self, call: Call) -> Sighting:
        """Call the probe; a plain return, None above all, is never taken for an answer."""
        return _sighting("probe", self.instance.probe(call))

    def check(self, call: Call) -> Sighting:
        """A drill's own look, independent of the probe; judged as strictly."""
        return _sighting("check", self.instance.check(call))


def _sighting(what: str, sighting: Any) -> Sighting:
    if isinstance(sighting, Applied | NotApplied | StillUnknown):
        return sighting
    return StillUnknown(
        f"the {what} must return Applied, NotApplied or StillUnknown, not {type(sighting).__name__}"
    )


def tool(
    key: str,
    *,
    version: str,
    tier: Tier | str,
    blast_radius: BlastRadius | str,
    args: Any,
    title: str | None = None,
    result: dict[str, Any] | None = None,
    effect_key: str | None = None,
    resource: str | None = None,
    timeout_s: float = 10.0,
    retries: int = 5,
    downstream_idempotent: bool = False,
    idempotent_for_s: float = 86400,
    settle_s: float = 30.0,
    compatible_with: Iterable[str] = (),
    drill: Drill | None = None,
) -> Callable[[C], C]:
    """Register a class as the tool `key`. `args` is a JSON Schema, TypedDict or dataclass.

    Raises InvalidTools, naming the class, when tier and methods do not fit together.
    """

    def register(cls: C) -> C:
        name = f"{cls.__module__}.{cls.__qualname__}"
        try:
            target = PythonTarget(cls())
            given: dict[str, Any] = {
                "key": key,
                "title": title or (inspect.getdoc(cls) or key).splitlines()[0],
                "version": version,
                "tier": str(Tier(tier)),
                "blast_radius": str(BlastRadius(blast_radius)),
                "effect_key": effect_key,
                "resource": resource,
                "timeout_s": timeout_s,
                "retries": retries,
                "downstream_idempotent": downstream_idempotent,
                "idempotent_for_s": idempotent_for_s,
                "settle_s": settle_s,
                "compatible_with": sorted(compatible_with),
            }
            schemas = {"args": closed(schema_of(args)), "result": result}
            source: dict[str, Any] = {
                "source": "python",
                "module": name,
                "source_digest": source_digest(cls),
            }
            # Told of an old step, when no process has this source any more.
            source |= {"directions": sorted(target.directions)}
            built = _drillable(_built({**given, **schemas, **source}, target), drill)
        except (DefinitionError, ValueError, TypeError) as error:
            raise InvalidTools([Fault(name, f"{key}: {error}")]) from error
        setattr(cls, _MARK, built)
        return cls

    return register


def _built(definition: dict[str, Any], target: PythonTarget) -> Tool:
    plain = {
        name: value
        for name, value in definition.items()
        if name not in ("args", "result", "source", "module", "source_digest", "directions")
    }
    plain["tier"] = Tier(plain["tier"])
    plain["blast_radius"] = BlastRadius(plain["blast_radius"])
    plain["compatible_with"] = frozenset(plain["compatible_with"])
    if Direction.FORWARD not in target.directions:
        raise DefinitionError("a tool needs execute(self, call)")
    built = Tool(
        **plain,
        args_schema=definition["args"],
        result_schema=definition["result"],
        definition=definition,
        digest=digest_of(definition),
        target=target,
    )
    built.check()
    return built


def _drillable(built: Tool, drill: Drill | None) -> Tool:
    if drill is None:
        return built
    for fault in faults_of(built, drill):
        raise DefinitionError(f"drill: {fault.reason}")
    return replace(built, drill=drill)


def schema_of(args: Any) -> dict[str, Any]:
    """A JSON Schema as given, or the schema of a TypedDict or dataclass."""
    if isinstance(args, dict):
        return args
    try:
        return TypeAdapter(args).json_schema()
    except PydanticUserError as error:
        raise DefinitionError(f"args has no JSON Schema: {error.message}") from None


def source_digest(cls: type) -> str:
    """SHA-256 of the whole module: a function beside the class is part of what it does."""
    path = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if path and Path(path).is_file():
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    try:
        return hashlib.sha256(inspect.getsource(cls).encode()).hexdigest()
    except (OSError, TypeError):
        raise DefinitionError("its source cannot be read, so a change could not be seen") from None


def tools_in(module: Any) -> list[Tool]:
    """The tools whose classes are names of `module`, in the order they were written."""
    found = [getattr(value, _MARK, None) for value in vars(module).values() if _is_class(value)]
    return [item for item in found if isinstance(item, Tool)]


def _is_class(value: Any) -> bool:
    return isinstance(value, type) and _MARK in vars(value)
