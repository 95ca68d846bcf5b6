"""A freeze that was accepted holds, however the operator wrote down what to stop."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

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
