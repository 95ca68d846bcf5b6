"""A freeze that was accepted holds, however the operator wrote down what to stop."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction

from ledger import storage
from ledger.models import Freeze
from ledger.services.claiming_sql import TAKEABLE
from tests.apicast import Caller, problem_type

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tools")]

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "capitals": str.upper,
    "braces": "{{{}}}".format,
    "a URN": "urn:uuid:{}".format,
    "no hyphens": lambda text: text.replace("-", ""),
}


def takeable() -> int:
    """How many messages a shift would take now."""
    return len(storage.rows(f"SELECT 1 FROM ledger_outboxmessage o WHERE {TAKEABLE}"))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_freeze_holds_the_saga_however_its_id_is_written(
    agent: Caller, oncall: Caller, spelling: str
) -> None:
    saga = agent.open()
    agent.propose(saga)
    assert takeable() == 1
    stop = {"scope": "saga", "value": SPELLINGS[spelling](saga), "reason": "fire"}
    answer = oncall.post("freezes", stop)
    assert (answer.status_code, answer.json()["value"]) == (201, saga)
    assert (agent.get(f"sagas/{saga}").json()["state"], takeable()) == ("paused", 0)
    oncall.send("DELETE", f"freezes/{answer.json()['id']}")
    assert (agent.get(f"sagas/{saga}").json()["state"], takeable()) == ("running", 1)


@pytest.mark.parametrize("ago_s", [1, 3600])
@pytest.mark.parametrize("scope", ["all", "saga"])
def test_a_freeze_that_is_over_when_it_begins_is_refused(
    agent: Caller, oncall: Caller, scope: str, ago_s: int
) -> None:
    saga = agent.open()
    past = (datetime.now(UTC) - timedelta(seconds=ago_s)).isoformat()
    stop = {"scope": scope, "reason": "fire", "expires_at": past}
    answer = oncall.post("freezes", stop | ({"value": saga} if scope == "saga" else {}))
    assert (answer.status_code, problem_type(answer)) == (422, "invalid-args")
    assert answer.json()["errors"] == [
        {"pointer": "/expires_at", "detail": "must be in the future"}
    ]
    assert agent.get(f"sagas/{saga}").json()["state"] == "running"
    assert not Freeze.objects.exists()


@pytest.mark.parametrize("spelling", [name for name in SPELLINGS if name != "as it is"])
def test_the_database_takes_no_other_spelling_of_a_frozen_saga(
    agent: Caller, spelling: str
) -> None:
    odd = SPELLINGS[spelling](agent.open())
    with pytest.raises(IntegrityError, match="ledger_freeze_of_saga"), transaction.atomic():
        Freeze.objects.create(scope="saga", value=odd, reason="fire", created_by="person:ona")


def test_a_freeze_that_an_earlier_release_kept_under_another_spelling_holds_its_saga(
    agent: Caller,
) -> None:
    saga = agent.open()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_freeze DROP CONSTRAINT ledger_freeze_of_saga")
    for value in (saga.upper(), "yesterday's"):
        Freeze.objects.create(scope="saga", value=value, reason="fire", created_by="person:ona")
    import_module("ledger.migrations.0019_a_freeze_names_its_saga").rewrite(apps, None)
    assert Freeze.objects.filter(value=saga).count() == 1
    assert "which is no saga" in Freeze.objects.exclude(value=saga).get().reason
