"""Real servers for the whole run: a Postgres and a Valkey in a home of its own.

Given DATABASE_URL or REDIS_URL, those are used instead (the role needs CREATEDB).
They start when the first test asks, so tests of pure functions do not wait for them.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import django
import psycopg
import pytest
import redis
from playwright.sync_api import Browser, Page, expect, sync_playwright
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

pytest_plugins = [
    "tests.apicast",
    "tests.judgecast",
    "tests.shop",
    "tests.proofcast",
    "tests.postcast",
]

# Homes in memory where there is room: a commit then waits for no disk, and the run takes half the
# time. Postgres is told nothing of it; what the tests kill are processes, not disks.
_MEMORY, _ROOM = Path("/dev/shm"), 4 * 1024**3
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
    tempfile.tempdir = os.environ["TMPDIR"] = str(_MEMORY)

# Before Django reads its settings: this run never touches the home of a console that is used.
_HOME = Path(tempfile.mkdtemp(prefix="saga-test-"))
(_HOME / "static").mkdir()
os.environ["SAGA_HOME"] = str(_HOME)
# Lanes inherit it from the process that reports, and share what is there.
os.environ.setdefault("SAGA_TESTS_FURNISHED", str(_HOME / "furnished"))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "saga_console.settings")
os.environ.setdefault("SECRET_KEY", "only-for-tests")
os.environ.setdefault("SAGA_STATIC_FROM_SOURCE", "1")
# Playwright's sync API runs an event loop in this thread, where Django would refuse the ORM.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")

django.setup()

from django.conf import settings  # noqa: E402
from django.contrib.auth.hashers import PBKDF2PasswordHasher  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import TransactionTestCase  # noqa: E402

from saga_console.home import Home  # noqa: E402
from saga_console.servers import VARIABLE, ensure_servers  # noqa: E402
from tests.furnished import furnished  # noqa: E402


class FewRounds(PBKDF2PasswordHasher):
    """Django's own hasher with a thousand rounds for a million: guessing tests hash a lot. Only
    in this process; the consoles that tests start hash as everybody's do."""

    iterations = 1000


settings.PASSWORD_HASHERS = [f"{__name__}.FewRounds"]


# Modules and tests are no garbage: looking for it in them was a part of each lane's start, and of
# every test later on.
gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """In each lane, and in the process that reports, which collects nothing itself."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    shutil.rmtree(_HOME, ignore_errors=True)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = _browser_tests_left_out


@pytest.fixture(scope="session")
def saga_home() -> Home:
    """The home of this test run."""
    return Home(_HOME)


@pytest.fixture(scope="session")
def servers(saga_home: Home) -> Iterator[None]:
    """DATABASE_URL and REDIS_URL answer, and are in the environment of this process."""
    given = {variable: os.environ.get(variable) for variable in VARIABLE.values()}
    if not given["DATABASE_URL"]:
        furnished(_HOME, "postgres")
    uses = ensure_servers(saga_home)
    if not given["DATABASE_URL"]:
        with psycopg.connect(saga_home.database_url_as("postgres"), autocommit=True) as admin:
            admin.execute("ALTER ROLE saga CREATEDB")
    yield
    for use in uses:
        use.release()
    for variable, value in given.items():
        if value is None:
            os.environ.pop(variable, None)


@pytest.fixture(scope="session")
def django_db_keepdb(
    servers: None, saga_home: Home, django_db_modify_db_settings: None, django_db_keepdb: bool
) -> bool:
    """On servers of ours the tests' database is a copy of the console's, with all migrations."""
    if os.environ["DATABASE_URL"] != saga_home.database_url:
        return django_db_keepdb
    made = sql.SQL("CREATE DATABASE {} OWNER saga TEMPLATE saga").format(
        sql.Identifier(connection.creation._get_test_db_name())
    )
    url = saga_home.database_url_as("postgres", "postgres")
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(made)
    return True


# Only what has rows, and with every trigger asleep: Django's `flush` makes a hundred files anew,
# and all permissions, after each test (80 ms; this takes 3).
_EMPTIED = """
CREATE OR REPLACE FUNCTION emptied_after_a_test() RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET session_replication_role = replica AS $emptied$
DECLARE found regclass; has_rows boolean;
BEGIN
    FOR found IN SELECT c.oid FROM pg_class c WHERE c.relkind = 'r'
        AND c.relnamespace = 'public'::regnamespace
        AND c.relname NOT IN ('django_migrations', 'django_content_type', 'auth_permission')
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', found) INTO has_rows;
        IF has_rows THEN
            EXECUTE format('DELETE FROM %s', found);
        END IF;
    END LOOP;
END $emptied$
"""


def _empty(_: TransactionTestCase) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT emptied_after_a_test()")


@pytest.fixture(scope="session")
def django_db_setup(servers, django_db_setup, django_db_blocker, saga_home: Home) -> None:
    """How the tables are emptied after a `transaction=True` test.

    On servers of ours a superuser sees to it. On others Django truncates, and so does a test that
    plays many stories: the ledger refuses that, so exactly those triggers sleep, in the test
    database only.
    """
    find = """
        SELECT format('ALTER TABLE %s DISABLE TRIGGER %I', tgrelid::regclass, tgname)
        FROM pg_trigger WHERE tgname LIKE '%\\_no\\_truncate' AND NOT tgisinternal
    """
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(find)
        for (statement,) in cursor.fetchall():
            cursor.execute(statement)
    if os.environ["DATABASE_URL"] == saga_home.database_url:
        name = settings.DATABASES["default"]["NAME"]  # pytest-django has put the test's name here
        superuser = saga_home.database_url_as("postgres", name)
        with psycopg.connect(superuser, autocommit=True) as admin:
            admin.execute(_EMPTIED)
        TransactionTestCase._fixture_teardown = _empty


@pytest.fixture
def redis_client(servers: None) -> Iterator[redis.Redis]:
    """The run's Redis, emptied before the test."""
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        client.flushall()
        yield client


@pytest.fixture
def console_env(db, servers: None) -> dict[str, str]:
    """The environment for a process that shall work on this test's database and Redis.

    Use it with `transactional_db`: another process sees only what is committed.
    """
    given = conninfo_to_dict(os.environ["DATABASE_URL"])
    part = {key: quote(str(given.get(key, "")), safe="") for key in ("user", "password", "host")}
    login = part["user"] + (f":{part['password']}" if part["password"] else "")
    where = f"host={part['host']}&port={given.get('port', 5432)}"
    name = settings.DATABASES["default"]["NAME"]  # pytest-django has put the test's name here
    return os.environ | {"DATABASE_URL": f"postgresql://{login}@/{name}?{where}"}


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# What a page is waited for at most: four lanes on two cores, which others use as well, are slow.
PATIENCE_MS = 60_000
_browser_tests_left_out: list[str] = []


# Files that start consoles and wait for them, the longest first: lanes take file after file, and
# the one that takes such a file last is waited for by all the others.
_LONG = """
    proof_crash demo_whole up proof_tampering pages_browser cases_restart rough machine
    archive_killed cases_tls last_moment redeployed drill_sandbox demo_tools proof_queue home
    pages_who pages_narrow drill_command proof_answers crash proof_walls proof_woken proof_storm
    proof_states bench messages_delivery demo_targets policy_file cases_targets tools_start
    messages_sagas api_over_http surfaces docs api_bad_input
""".split()  # noqa: SIM905


def _long_first(item: pytest.Item) -> int:
    name = item.path.stem.removeprefix("test_").removeprefix("approvals_")
    return _LONG.index(name) if name in _LONG else len(_LONG)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a Chromium the browser tests cannot run; that is said, never hidden."""
    items.sort(key=_long_first)
    if CHROMIUM:
        return
    left_out = [item for item in items if item.get_closest_marker("browser")]
    if left_out and os.environ.get("REQUIRE_BROWSER"):
        raise pytest.UsageError("REQUIRE_BROWSER is set and there is no chromium here")
    _browser_tests_left_out.extend(item.nodeid for item in left_out)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """A lane that inherits this would read Django's settings before it has a home of its own."""
    os.environ.pop("DJANGO_SETTINGS_MODULE", None)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What one lane (pytest-xdist) has left out is said by the process that reports."""
    _browser_tests_left_out.extend(
        one for one in node.workeroutput.get("left_out", ()) if one not in _browser_tests_left_out
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _browser_tests_left_out:
        terminalreporter.section("BROWSER TESTS DID NOT RUN", sep="!", red=True, bold=True)
        terminalreporter.line(f"no chromium here; {len(_browser_tests_left_out)} left out:")
        for name in _browser_tests_left_out:
            terminalreporter.line(f"  {name}")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One headless Chromium for the run. Tests that use it carry `@pytest.mark.browser`."""
    with sync_playwright() as playwright:
        # Chromium's sandbox cannot be set up by root, which is who runs a container.
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=args)
        expect.set_options(timeout=PATIENCE_MS)
        yield browser
        browser.close()


@pytest.fixture
def browser_page(chromium: Browser) -> Iterator[Page]:
    """A fresh, empty profile; a script error or a breach of the CSP on any page fails the test."""
    context = chromium.new_context()
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "console",
        lambda message: wrong.append(message.text) if message.type == "error" else None,
    )
    page.set_default_timeout(PATIENCE_MS)
    yield page
    context.close()
    assert not wrong, wrong
