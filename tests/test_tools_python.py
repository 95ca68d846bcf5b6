"""Tools in Python: registration, the three outcomes, named errors, probes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from typing_extensions import TypedDict

from ledger.errors import InvalidArgs, UnknownTool
from ledger.outcomes import Applied, Done, Failed, NotApplied, Outcome, StillUnknown, Unknown
from ledger.states import Direction
from ledger.tools.contract import Call, Tool
from ledger.tools.faults import InvalidTools
from ledger.tools.python import ToolFailed, ToolRetry, ToolUnknown, tool, tools_in
from ledger.tools.registry import load
from tests.tooltexts import call


@dataclass
class Hold:
    """Args as a dataclass."""

    room: str
    nights: int = 1


class Mail(TypedDict):
    """Args as a TypedDict."""

    to: str


@tool(
    "rooms.hold",
    version="2",
    tier="compensatable",
    blast_radius="low",
    args=Hold,
    result={"type": "object", "required": ["hold_id"]},
    effect_key="hold:{args.room}",
)
class HoldRoom:
    """Hold a room

    for a guest."""

    def execute(self, call: Call) -> Any:
        return {"hold_id": f"{call.args['room']}/{call.args['nights']}"}

    def compensate(self, call: Call) -> Any:
        return {"released": call.result["hold_id"]}


def registered(execute: Callable[[Call], Any], **more: Any) -> Tool:
    """A pivot whose execute is the given function."""
    body = {"execute": lambda self, call: execute(call), "__module__": __name__}
    probe = more.pop("probe", None)
    if probe:
        body["probe"] = lambda self, call: probe(call)
    given = {"version": "1", "tier": "pivot", "blast_radius": "low", "args": {}, **more}
    cls = tool("t", **given)(type("Written", (), body))
    made: Tool = vars(cls)["__saga_tool__"]
    return made


def raises(error: BaseException) -> Callable[[Call], Any]:
    def execute(_: Call) -> Any:
        raise error

    return execute


def test_a_module_s_tools_are_found_and_run() -> None:
    registry = load(None, [sys.modules[__name__]])
    found = registry.get("rooms.hold")
    assert registry.all() == tools_in(sys.modules[__name__]) == [found]
    assert (found.title, found.version, found.can_compensate) == ("Hold a room", "2", True)
    args = found.checked_args({"room": "12"})
    assert args == {"room": "12", "nights": 1}
    assert found.effect_key_for(args) == "hold:12"
    done = found.run(call(args))
    assert done == Done({"hold_id": "12/1"})
    undo = call(args, Direction.COMPENSATE, result={"hold_id": "12/1"})
    assert found.run(undo) == Done({"released": "12/1"})


def test_a_class_imported_twice_is_one_tool() -> None:
    module = sys.modules[__name__]
    assert len(load(None, [module, module]).all()) == 1


def test_an_unknown_tool_is_named() -> None:
    with pytest.raises(UnknownTool, match=r"no\.such"):
        load(None).get("no.such")


def test_a_dataclass_and_a_typed_dict_become_schemas() -> None:
    with pytest.raises(InvalidArgs) as refused:
        load(None, [sys.modules[__name__]]).get("rooms.hold").checked_args({"nights": "2", "x": 1})
    found = {f["pointer"] for f in refused.value.extra["errors"]}
    assert found == {"/args/room", "/args/nights", "/args/x"}
    assert registered(lambda _: None, args=Mail).checked_args({"to": "a"}) == {"to": "a"}


def test_the_snapshot_names_module_version_and_source() -> None:
    definition = load(None, [sys.modules[__name__]]).get("rooms.hold").definition
    assert definition["module"] == f"{__name__}.HoldRoom"
    assert definition["source"] == "python"
    assert len(definition["source_digest"]) == 64
    assert load(None).rebuild(definition) is None


@pytest.mark.parametrize(
    ("execute", "outcome"),
    [
        (lambda _: None, Done(None)),
        (lambda _: [1, {"a": (2, 3)}], Done([1, {"a": (2, 3)}])),
        (lambda _: Done(4), Done(4)),
        (lambda _: Failed("no", retryable=True), Failed("no", True)),
        (raises(ToolFailed("declined")), Failed("declined")),
        (raises(ToolRetry("busy", 4)), Failed("busy", True, 4)),
        (raises(ToolRetry("busy")), Failed("busy", True)),
        (raises(ToolUnknown("lost")), Unknown("lost")),
    ],
)
def test_what_the_code_says_is_the_outcome(
    execute: Callable[[Call], Any], outcome: Outcome
) -> None:
    assert registered(execute).run(call()) == outcome


class _Endless(BaseException):
    """As those of some libraries are (gevent.Timeout), and its text raises one too."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


class _Textless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "execute",
    [
        raises(ValueError("x")),
        raises(TimeoutError()),
        raises(SystemExit(1)),
        raises(KeyboardInterrupt()),
        raises(GeneratorExit()),
        raises(asyncio.CancelledError()),
        raises(_Textless()),
        raises(_Endless()),
        raises(RecursionError()),
        lambda _: object(),
        lambda _: {1: 2},
        lambda _: {"a": [b"bytes"]},
        lambda _: Done({2}),
    ],
)
def test_any_doubt_in_the_code_is_unknown_and_never_an_exception(
    execute: Callable[[Call], Any],
) -> None:
    assert isinstance(registered(execute).run(call()), Unknown)


def test_a_result_that_does_not_fit_its_schema_is_unknown() -> None:
    schema = {"type": "object", "required": ["id"]}
    assert isinstance(registered(lambda _: {}, result=schema).run(call()), Unknown)
    assert registered(lambda _: {"id": 1}, result=schema).run(call()) == Done({"id": 1})


def test_a_direction_the_tool_does_not_have_is_failed() -> None:
    assert isinstance(registered(lambda _: 1).run(call(direction=Direction.COMPENSATE)), Failed)


@pytest.mark.parametrize("sighting", [Applied({"id": 1}), NotApplied(), StillUnknown("?")])
def test_a_probe_says_one_of_three_things(sighting: Any) -> None:
    made = registered(lambda _: 1, probe=lambda _: sighting)
    assert made.can_probe(Direction.FORWARD)
    assert made.probe(call()) == sighting


@pytest.mark.parametrize(
    "probe",
    [
        lambda _: None,
        lambda _: True,
        lambda _: {"id": 1},
        lambda _: Applied(object()),
        raises(ToolFailed("x")),
        raises(KeyError("x")),
        raises(_Endless()),
    ],
)
def test_a_probe_that_says_anything_else_stays_unknown(probe: Callable[[Call], Any]) -> None:
    assert isinstance(registered(lambda _: 1, probe=probe).probe(call()), StillUnknown)


def test_a_tool_without_probe_cannot_look() -> None:
    made = registered(lambda _: 1)
    assert not made.can_probe(Direction.FORWARD)
    assert isinstance(made.probe(call()), StillUnknown)


class _Undoes:
    def execute(self, call: Call) -> None: ...

    def compensate(self, call: Call) -> None: ...


class _Only:
    def execute(self, call: Call) -> None: ...


class _Nothing:
    pass


@pytest.mark.parametrize(
    ("cls", "wrong", "reason"),
    [
        (_Only, {"tier": "compensatable"}, "needs compensate"),
        (_Undoes, {"tier": "pivot"}, "must not have compensate"),
        (_Undoes, {"tier": "non_compensatable"}, "must not have compensate"),
        (_Nothing, {}, "needs execute"),
        (_Only, {"tier": "no"}, "'no' is not a valid Tier"),
        (_Only, {"blast_radius": "no"}, "BlastRadius"),
        (_Only, {"args": {"properties": {"a": {"type": "sting"}}}}, "not a JSON Schema"),
        (_Only, {"result": {"type": "sting"}}, "not a JSON Schema"),
        (_Only, {"effect_key": "x:{args.no}"}, "names no property"),
    ],
)
def test_a_wrong_tool_is_refused_when_it_is_registered(
    cls: type, wrong: dict[str, Any], reason: str
) -> None:
    given = {"version": "1", "tier": "pivot", "blast_radius": "low", "args": {}, **wrong}
    with pytest.raises(InvalidTools, match=reason) as refused:
        tool("t", **given)(cls)
    assert cls.__qualname__ in str(refused.value)
