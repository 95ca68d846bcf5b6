"""The documents say what the code does: nothing is missing in them, and nothing made up."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import BaseCommand, get_commands, load_command_class
from django.urls import URLPattern, URLResolver, get_resolver

from approvals.states import ApprovalState
from ledger.errors import SagaError
from ledger.states import RecordState, SagaState, StepState
from saga_console.api import api
from saga_console.home import BASE_DIR
from tests import statepages
from tests.apicast import Caller

README = BASE_DIR / "README.md"
DOCS = BASE_DIR / "docs"
PAGES = [README, BASE_DIR / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
OURS = ("ledger", "approvals", "saga_console")
# Pages whose addresses are Django's own business below this one.
FOREIGN = ("admin/",)


def words(path: Path) -> str:
    return path.read_text(encoding="utf-8")


MANUAL = "\n".join(words(path) for path in PAGES if "decisions" not in path.parts)


def blank(path: str) -> str:
    """An address without the names of its parts: both `{id}` and `<uuid:saga_id>` become {}."""
    return re.sub(r"\{[^}]*\}|<[^>]*>", "{}", path)


def test_the_page_of_states_is_what_the_tables_say() -> None:
    assert words(DOCS / "states.md") == statepages.page(), (
        "write it anew: python -m tests.statepages > docs/states.md"
    )


@pytest.mark.parametrize("kind", [StepState, SagaState, RecordState, ApprovalState])
def test_every_state_is_named(kind: Any) -> None:
    assert [state for state in kind if f"`{state}`" not in words(DOCS / "states.md")] == []


def test_every_setting_of_ours_is_named() -> None:
    known = [name for name in dir(settings) if name.startswith("SAGA_")]
    assert len(known) > 10
    assert [name for name in known if f"`{name}`" not in MANUAL] == []


def commands() -> list[str]:
    return sorted(name for name, app in get_commands().items() if app.split(".")[0] in OURS)


@pytest.mark.parametrize("name", commands())
def test_every_command_is_named(name: str) -> None:
    architecture = words(DOCS / "architecture.md")
    assert re.search(rf"`{name}[` ]", architecture)


@pytest.mark.parametrize("name", commands())
def test_every_option_of_a_command_is_named(name: str) -> None:
    told = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    foreign = BaseCommand().create_parser("manage.py", name)._option_string_actions
    options = [o for o in told._option_string_actions if o.startswith("--") and o not in foreign]
    assert [option for option in options if not re.search(rf"{option}(?![\w-])", MANUAL)] == []


def addresses(found: URLResolver, before: str = "/") -> Iterator[str]:
    for pattern in found.url_patterns:
        path = before + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            # An unnamed pattern answers for what is not there; `api-root` only reverses.
            if pattern.name and pattern.name != "api-root":
                yield blank(path)
        elif str(pattern.pattern) in FOREIGN:
            yield path
        else:
            yield from addresses(pattern, path)


def test_every_address_is_named() -> None:
    named = set(re.findall(r"(?<=[` ])/[^` ?]*(?=`)", blank(words(DOCS / "architecture.md"))))
    assert sorted(set(addresses(get_resolver())) - named) == []


def test_every_call_of_the_api_is_named_with_its_method_and_no_other_is() -> None:
    told = blank(words(DOCS / "architecture.md"))
    named = set(re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /api/v1/[^`]*)`", told))
    served = {
        f"{method.upper()} {blank(path)}"
        for path, calls in api.get_openapi_schema()["paths"].items()
        for method in calls
    }
    assert named == served


def problems() -> list[str]:
    return sorted(error.type for error in SagaError.__subclasses__())


@pytest.mark.parametrize("problem", problems())
def test_every_problem_has_its_own_heading(problem: str) -> None:
    assert f"\n### {problem}\n" in words(DOCS / "agents.md")


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as the usual viewers make them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", words(path), re.MULTILINE)
    }


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(BASE_DIR)))
def test_every_link_within_the_project_leads_somewhere(path: Path) -> None:
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", words(path)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        goal = path.parent / name if name else path
        if not goal.exists() or (anchor and anchor not in anchors(goal)):
            lost.append(link)
    said = re.findall(r"docs/[\w/.-]+\.(?:md|svg|png)", words(path))
    assert lost + [name for name in said if not (BASE_DIR / name).exists()] == []


def test_every_page_that_the_code_names_is_there() -> None:
    named = {
        name
        for app in OURS
        for path in (BASE_DIR / app).rglob("*.py")
        for name in re.findall(r"docs/[\w/.-]+\.md", words(path))
    }
    assert len(named) > 3
    assert [name for name in sorted(named) if not (BASE_DIR / name).exists()] == []


def test_every_decision_has_a_number_of_its_own_and_says_it() -> None:
    found = sorted((DOCS / "decisions").glob("*.md"))
    numbers = [int(path.name[:4]) for path in found]
    assert numbers == sorted(set(numbers))
    headings = [re.match(r"# (\d+)\. ", words(path)) for path in found]
    assert [heading and int(heading[1]) for heading in headings] == numbers


def test_every_runtime_dependency_has_its_reason() -> None:
    wanted = re.findall(
        r"^([A-Za-z][\w-]*)", words(BASE_DIR / "requirements/runtime.in"), re.MULTILINE
    )
    record = words(next((DOCS / "decisions").glob("*-what-a-running-console-depends-on.md")))
    assert re.findall(r"^\| `([\w-]+)` \|", record, re.MULTILINE) == wanted


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(BASE_DIR)))
def test_no_page_names_a_path_of_somebodys_machine(path: Path) -> None:
    assert re.findall(r"(?<![\w.])/(?:work|tmp|opt|root|home|Users)/\S*", words(path)) == []


def shell() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", words(README), re.MULTILINE | re.DOTALL)


def test_the_first_five_minutes_are_shell() -> None:
    assert len(shell()) > 10
    for block in shell():
        checked = subprocess.run(
            ["bash", "-n"], input=block, capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stderr


def test_the_readme_uses_only_commands_addresses_and_targets_that_exist() -> None:
    blocks = "\n".join(shell())
    assert set(re.findall(r"manage\.py (\w+)", words(README))) <= set(commands())
    makefile = words(BASE_DIR / "Makefile")
    for target in re.findall(r"(?:`| {4})make (\w+)", words(README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    served = {blank(path) for path in api.get_openapi_schema()["paths"]}
    used = {
        blank(re.sub(r"\$\w+", "{}", path))
        for path in re.findall(r"(?<=\$API)/[\w/$-]+|(?<=/api/v1)/[\w/$-]+", blocks)
    }
    assert len(used) > 8
    assert {f"/api/v1{path}" for path in used} - served == set()


def test_the_readmes_tools_file_loads() -> None:
    from ledger.tools.toolsfile import parsed

    (text,) = re.findall(r"<<'TOML'\n(.*?)^TOML$", "\n".join(shell()), re.MULTILINE | re.DOTALL)
    (tool,) = parsed(text, "README.md", {})
    assert tool.key == "notes.add"


@pytest.mark.django_db
@pytest.mark.usefixtures("tools")
def test_an_outsider_can_verify_a_chain_with_the_documented_code(agent: Caller) -> None:
    (code,) = re.findall(
        r"^```python\n(.*?)^```", words(DOCS / "architecture.md"), re.MULTILINE | re.DOTALL
    )
    known: dict[str, Any] = {}
    exec(code, known)  # our own page
    saga = agent.open()
    args = {"id": "größer € \u2028", "amount": 1.50}
    agent.post(f"sagas/{saga}/steps", {"step_id": "a", "tool": "notes.add", "args": args})
    agent.post(f"sagas/{saga}/abort", {"reason": "größer € 1.50\n"})
    entries = agent.get(f"sagas/{saga}/ledger").json()["items"]
    assert len(entries) > 3
    assert known["is_chained"](str(saga), entries)
    entries[1]["payload"]["tool"] = "notes.other"
    assert not known["is_chained"](str(saga), entries)
