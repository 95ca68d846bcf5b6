"""What may be declared as a sandbox, and that nothing of a drill can reach production."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger.outcomes import Applied, Done, Failed, NotApplied, StillUnknown, Unknown
from ledger.states import Direction
from ledger.tools.contract import Tool
from ledger.tools.faults import InvalidTools
from ledger.tools.http import HttpTarget
from ledger.tools.python import Drill, tool, tools_in
from ledger.tools.sandbox import NotDrillable, sandboxed
from ledger.tools.toolsfile import parsed
from tests.tooltexts import call

ENV = {"CRM_AUTH": "Bearer live", "CRM_SANDBOX_AUTH": "Bearer test"}
PRODUCTION, SANDBOX = "https://crm.example", "https://sandbox.example/crm"
TEXT = (
    (Path(__file__).parent / "data" / "drill.toml")
    .read_text(encoding="utf-8")
    .replace("PRODUCTION_URL", PRODUCTION)
    .replace("SANDBOX_URL", SANDBOX)
)
ARGS = 'args = { email = "{drill}@example.com" }'
SWAP = 'environment = { CRM_AUTH = "env:CRM_SANDBOX_AUTH" }'
CHECK_URL = f"""[tools."crm.customer".drill.check]
method = "GET"
url = "{PRODUCTION}/v1/customers/{{result.id}}\""""
CUSTOMER = TEXT.partition('\n[tools."crm.blind"]')[0]


def read(text: str = CUSTOMER) -> Tool:
    (found,) = parsed(text, "tools.toml", ENV)
    return found


def test_every_request_goes_to_the_sandbox_with_the_secret_of_the_sandbox() -> None:
    aimed = sandboxed(read(), ENV)
    target = aimed.tool.target
    assert isinstance(target, HttpTarget)
    actions = [*target.actions.values(), *target.probes.values()]
    assert len(actions) == 3
    for action in actions:
        request = action.request(
            call(direction=Direction.COMPENSATE, result={"id": "c"}), with_key=True
        )
        assert str(request.url).startswith(f"{SANDBOX}/v1/customers")
        assert request.headers["Authorization"] == "Bearer test"
    assert aimed.address == SANDBOX


def test_a_drill_is_no_part_of_what_a_tool_is() -> None:
    """A sandbox that moves makes no new version: no step has to be confirmed for it."""
    without = CUSTOMER.partition('[tools."crm.customer".drill]')[0]
    moved = CUSTOMER.replace(SANDBOX, "https://elsewhere.example")
    assert read().digest == read(without).digest == read(moved).digest
    assert "drill" not in read().definition


@pytest.mark.parametrize(
    ("old", "new", "line_of", "reason"),
    [
        (f'base_url = "{SANDBOX}"\n', "", ".drill]", "'base_url' is a required"),
        (f"{ARGS}\n", "", ".drill]", "'args' is a required"),
        (SANDBOX, "sandbox.example", "base_url", "starts with http"),
        (SANDBOX, f"{SANDBOX}?x=1", "base_url", "neither a query"),
        (SANDBOX, "https://me:pw@sandbox.example", "base_url", "credentials"),
        (SANDBOX, PRODUCTION, "base_url", "runs in production"),
        (SANDBOX, "https://CRM.example.:443/sandbox", "base_url", "runs in production"),
        (ARGS, 'args = { mail = "y" }', "args = {", "the example args do not fit"),
        (SWAP, 'environment = { CRM_AUTH = "Bearer x" }', "environment", "env:NAME"),
        (SWAP, 'environment = { CRM_AUTH = "env:CRM_AUTH" }', "environment", "what production"),
        (f"{SWAP}\n", "", ".drill]", "would be shown"),
        (SWAP, SWAP.replace("}", ', OTHER = "env:X" }'), "environment", "in no header"),
        ('match = "deleted', 'macht = "deleted', "macht", "did you mean 'match'"),
        (CHECK_URL, CHECK_URL.replace("result.id", "args.no"), "{args.no}", "names no property"),
        ("!= `true` && id", "!=", 'match = "deleted', "JMESPath"),
    ],
)
def test_a_wrong_declaration_names_line_and_reason(old, new, line_of, reason) -> None:
    assert old in CUSTOMER
    text = CUSTOMER.replace(old, new)
    with pytest.raises(InvalidTools) as refused:
        parsed(text, "tools.toml", ENV)
    told = [(int(f.where.rpartition(":")[2]), f.reason) for f in refused.value.faults]
    lines = text.splitlines()
    assert any(line_of in lines[at - 1] and reason in why for at, why in told), told


def test_the_production_of_another_tool_is_no_sandbox() -> None:
    other = TEXT.partition('[tools."crm.blind"]')[2].partition('\n[tools."crm.letter"]')[0]
    other = '[tools."crm.blind"]' + other.replace(PRODUCTION, "https://blind.example")
    text = CUSTOMER.replace(SANDBOX, "https://blind.example/test") + "\n" + other
    with pytest.raises(InvalidTools, match=r"the sandbox is where crm\.blind runs in production"):
        parsed(text, "tools.toml", ENV)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "127.0.0.2", "[::1]"])
def test_a_machine_by_its_other_names_is_the_same_machine(name: str) -> None:
    text = CUSTOMER.replace(PRODUCTION, "http://127.0.0.1:8420")
    with pytest.raises(InvalidTools, match="runs in production"):
        parsed(text.replace(SANDBOX, f"http://{name}:8420"), "tools.toml", ENV)
    parsed(text.replace(SANDBOX, f"http://{name}:8421"), "tools.toml", ENV)


def test_a_tool_that_nobody_can_undo_cannot_be_drilled() -> None:
    text = CUSTOMER.replace('tier = "compensatable"', 'tier = "pivot"')
    head, _, rest = text.partition('[tools."crm.customer".compensate]')
    text = head + '[tools."crm.customer".drill]' + rest.partition(".drill]")[2]
    with pytest.raises(InvalidTools, match="neither compensate nor correct"):
        parsed(text, "tools.toml", ENV)


# -- in Python --------------------------------------------------------------------------

ROOMS = '''
import os
import urllib.request
from pathlib import Path

from ledger.outcomes import Applied, NotApplied
from ledger.tools.python import Drill, ToolFailed, ToolRetry, tool


def folder():
    return Path(os.environ["ROOMS_FOLDER"])


@tool(
    "rooms.hold", version="1", tier="compensatable", blast_radius="low",
    args={"required": ["room"], "properties": {"room": {"type": "string"}}},
    timeout_s=5, settle_s=0,
    drill=Drill(args={"room": "r-{drill}"}, environment={"ROOMS_FOLDER": "env:ROOMS_SANDBOX"}),
)
class Hold:
    """Hold a room"""

    def execute(self, call):
        if call.args["room"] == "leak":
            return {name: os.environ[name] for name in ("CRM_AUTH", "HOME") if name in os.environ}
        if call.args["room"] == "exit":
            os._exit(7)
        if call.args["room"] == "missing":
            return os.environ["ROOMS_KEY"]
        if call.args["room"] == "busy":
            raise ToolRetry("full", retry_after_s=3)
        print("a tool that prints")
        (folder() / call.args["room"]).write_text(call.idempotency_key)
        return {"room": call.args["room"]}

    def compensate(self, call):
        (folder() / call.result["room"]).unlink()
        return {"free": True}

    def probe(self, call):
        there = (folder() / call.args["room"]).exists()
        wanted = call.direction == "forward"
        return Applied({"room": call.args["room"]}) if there is wanted else NotApplied()

    def check(self, call):
        return Applied() if any(folder().iterdir()) else NotApplied()
'''


@pytest.fixture
def rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A tools module on the disk, a production folder and a sandbox folder."""
    (tmp_path / "drilled_rooms.py").write_text(ROOMS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CRM_AUTH", "Bearer live")
    for name in ("ROOMS_FOLDER", "ROOMS_SANDBOX"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    import drilled_rooms  # type: ignore[import-not-found]

    yield tools_in(drilled_rooms)[0]
    del sys.modules["drilled_rooms"]


def test_python_runs_in_the_sandbox_and_its_production_is_untouched(rooms: Tool) -> None:
    aimed = sandboxed(rooms)
    forward = call({"room": "blue"}, key="k")
    assert aimed.tool.run(forward) == Done({"room": "blue"})
    assert Path(os.environ["ROOMS_SANDBOX"], "blue").read_text() == "k"
    assert isinstance(aimed.tool.probe(forward), Applied)
    assert rooms.probe(forward) == NotApplied()
    back = call(
        {"room": "blue"}, key="comp:k", direction=Direction.COMPENSATE, result={"room": "blue"}
    )
    assert aimed.check
    assert aimed.check(back) == Applied()
    assert aimed.tool.run(back) == Done({"free": True})
    assert aimed.check(back) == NotApplied()
    assert isinstance(aimed.tool.probe(back), Applied)
    assert list(Path(os.environ["ROOMS_FOLDER"]).iterdir()) == []


def test_python_in_a_drill_sees_no_secret_and_no_home_of_production(rooms: Tool) -> None:
    seen = sandboxed(rooms).tool.run(call({"room": "leak"}))
    assert isinstance(seen, Done)
    assert set(seen.result) == {"HOME"}
    assert seen.result["HOME"] != os.environ.get("HOME")


def test_what_a_drill_was_not_given_stops_the_code_and_reaches_nobody(rooms: Tool) -> None:
    outcome = sandboxed(rooms).tool.run(call({"room": "missing"}))
    assert isinstance(outcome, Unknown)
    assert "KeyError: 'ROOMS_KEY'" in outcome.reason


def test_named_errors_and_a_dead_process_are_outcomes(rooms: Tool) -> None:
    aimed = sandboxed(rooms).tool
    assert aimed.run(call({"room": "busy"})) == Failed("full", retryable=True, retry_after_s=3)
    outcome = aimed.run(call({"room": "exit"}))
    assert isinstance(outcome, Unknown)
    assert "ended with 7" in outcome.reason


def test_code_that_was_changed_since_the_worker_loaded_it_is_not_drilled(
    rooms: Tool, tmp_path: Path
) -> None:
    (tmp_path / "drilled_rooms.py").write_text(ROOMS + "\n# changed\n")
    outcome = sandboxed(rooms).tool.run(call({"room": "blue"}))
    assert outcome == Unknown("the code on the disk is not the one that the worker has loaded")
    sighting = sandboxed(rooms).tool.probe(call({"room": "blue"}))
    assert isinstance(sighting, StillUnknown)


def test_a_python_sandbox_that_is_production_or_not_set_is_refused(
    rooms: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOMS_SANDBOX", os.environ["ROOMS_FOLDER"])
    with pytest.raises(NotDrillable, match="says the same as ROOMS_FOLDER: that is production"):
        sandboxed(rooms)
    monkeypatch.setenv("ROOMS_FOLDER", "http://localhost:80/x")
    monkeypatch.setenv("ROOMS_SANDBOX", "http://127.0.0.1/y")
    with pytest.raises(NotDrillable, match="that is production"):
        sandboxed(rooms)
    monkeypatch.delenv("ROOMS_SANDBOX")
    with pytest.raises(NotDrillable, match="ROOMS_SANDBOX, for the sandbox, is not set"):
        sandboxed(rooms)


@pytest.mark.parametrize(
    ("drill", "reason"),
    [
        (Drill(args={"room": "x"}), "name in environment what leads to the sandbox"),
        (
            Drill(args={"room": 1}, environment={"A": "env:B"}),
            "the example args do not fit: /args/room",
        ),
        (Drill(args={"room": "x"}, environment={"A": "B"}), 'write "env:NAME"'),
        (Drill(args={"room": "x"}, environment={"A": "env:A"}), "is what production uses"),
    ],
)
def test_a_wrong_declaration_in_python_stops_the_start(drill: Drill, reason: str) -> None:
    schema = {"required": ["room"], "properties": {"room": {"type": "string"}}}
    body = {"execute": lambda self, call: None, "compensate": lambda self, call: None}
    with pytest.raises(InvalidTools, match=reason):
        tool(
            "rooms.x",
            version="1",
            tier="compensatable",
            blast_radius="low",
            args=schema,
            drill=drill,
        )(type("X", (), {**body, "__module__": __name__}))
