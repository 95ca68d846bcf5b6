"""What is asked again after archiving: a replay from the tombstone, and never a second effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ledger.models import Entry, Saga, Step, Tombstone
from ledger.services import closing, tokens
from ledger.services.proposals import Opening
from ledger.services.restoring import restore_file
from tests.apicast import Answer, Caller, problem_type
from tests.archivecast import archive_all, undone
from tests.shop import Shop, assert_verifies, work, work_saga

TASK = {"task_id": "order-7", "name": "Refund order 7"}


class Desk:
    """An agent over REST, and a refund of it that is done and archived."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.caller = Caller(tokens.issue_agent_token("desk"))
        self.charge = shop.charge()
        self.step = {
            "step_id": "refund",
            "tool": "payments.settle",
            "args": {"charge": self.charge, "amount": 500},
        }
        self.saga = self.caller.post("sagas", TASK).json()["id"]
        self.propose(self.saga)
        self.caller.post(f"sagas/{self.saga}/complete")
        work_saga(UUID(self.saga), "completed")
        self.before = self.propose(self.saga).json()

    def propose(self, saga: str, **changed: Any) -> Answer:
        return self.caller.post(f"sagas/{saga}/steps", self.step | changed)

    def other_saga(self) -> str:
        return str(self.caller.post("sagas", TASK | {"task_id": "order-8"}).json()["id"])

    def assert_one_effect(self) -> None:
        assert len(self.shop.refunds(self.charge)) == 1
        assert_verifies()


@pytest.fixture
def desk(shop: Shop, tmp_path: Path) -> Desk:
    found = Desk(shop)
    assert archive_all(tmp_path).left == 1
    assert Saga.objects.count() == Step.objects.count() == 0
    return found


def test_the_same_step_is_answered_from_its_tombstone(desk: Desk) -> None:
    """P24: the key is known after the purge, and its answer is the stored one."""
    again = desk.propose(desk.saga)
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
    document = again.json()
    assert document.pop("archived")["export"].endswith(".jsonl")
    assert document == desk.before | {"reason": ""}
    desk.assert_one_effect()


def test_a_retry_from_an_error_queue_long_after_the_purge_runs_nothing(desk: Desk) -> None:
    """C113: the record has gone from its table, an operator sends the old message once more."""
    for _ in range(3):
        assert desk.propose(desk.saga).status_code == 200
    assert Step.objects.count() == Entry.objects.count() == 0
    desk.assert_one_effect()


def test_the_same_step_with_other_args_is_refused_with_both_digests(desk: Desk) -> None:
    """P24: row three of the table in design section 4."""
    answer = desk.propose(desk.saga, args={"charge": desk.charge, "amount": 1})
    assert (answer.status_code, problem_type(answer)) == (422, "step-mismatch")
    told = answer.json()
    assert told["recorded"] == {
        "tool": "payments.settle",
        "args_digest": desk.before["args_digest"],
    }
    assert told["submitted"]["args_digest"] != desk.before["args_digest"]
    assert told["differing_paths"] is None
    desk.assert_one_effect()


def test_another_saga_that_asks_for_the_effect_hears_of_the_first_step(desk: Desk) -> None:
    """P24: row four of the table in design section 4; the asking saga tells of it."""
    other = desk.other_saga()
    answer = desk.propose(other, step_id="again")
    assert answer.status_code == 200
    assert answer.json()["effect_of"] == answer.json()["id"] == desk.before["id"]
    assert answer.json()["args"] == desk.step["args"]
    assert desk.propose(other, step_id="again").status_code == 200
    refused = desk.propose(other, step_id="more", args={"charge": desk.charge, "amount": 1})
    assert (refused.status_code, problem_type(refused)) == (422, "effect-claimed")
    told = Entry.objects.filter(saga_id=other, kind="step.replayed")
    assert [entry.step_id for entry in told] == ["again", "again"]
    desk.assert_one_effect()


def test_an_effect_that_only_looks_like_an_archived_one_waits_for_a_person(desk: Desk) -> None:
    other = desk.other_saga()
    lookalike = desk.charge.replace("c", "\N{CYRILLIC SMALL LETTER ES}", 1)
    answer = desk.propose(other, step_id="odd", args={"charge": lookalike, "amount": 500})
    assert (answer.status_code, answer.json()["state"]) == (202, "awaiting_approval")


def test_a_deliberate_repeat_of_an_archived_step_waits_for_a_person(desk: Desk) -> None:
    answer = desk.propose(
        desk.other_saga(), step_id="more", repeat_of=desk.before["id"], reason="goodwill"
    )
    assert (answer.status_code, answer.json()["state"]) == (202, "awaiting_approval")
    desk.assert_one_effect()


def test_the_same_task_opened_again_is_the_archived_saga(desk: Desk) -> None:
    again = desk.caller.post("sagas", TASK)
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
    assert again.json()["id"] == desk.saga
    assert again.json()["archived"]["export"].endswith(".jsonl")
    other = desk.caller.post("sagas", TASK | {"name": "Another"})
    assert (other.status_code, problem_type(other)) == (422, "task-mismatch")
    assert Saga.objects.count() == 0


def test_an_archived_saga_is_still_shown_and_says_where_it_went(desk: Desk) -> None:
    saga = desk.caller.get(f"sagas/{desk.saga}").json()
    assert (saga["state"], saga["metadata"], saga["residue"]) == ("completed", None, [])
    assert [step["result"] for step in saga["steps"]] == [desk.before["result"]]
    step = desk.caller.get(f"steps/{desk.before['id']}").json()
    assert (step["state"], step["args"]) == ("committed", None)
    assert step["archived"] == saga["archived"]
    for path in ("ledger", "trace.jsonl"):
        answer = desk.caller.get(f"sagas/{desk.saga}/{path}")
        assert (answer.status_code, problem_type(answer)) == (404, "not-found")
        assert answer.json()["export"] == saga["archived"]["export"]


def test_an_agent_that_asks_for_its_task_is_told_of_the_archived_saga(desk: Desk) -> None:
    """As `GET /sagas/{id}` and opening it again say it: not even to look is it gone."""
    page = desk.caller.get("sagas?task_id=order-7").json()
    assert page == {"items": [desk.caller.get(f"sagas/{desk.saga}").json()], "next_cursor": None}
    assert [step["id"] for step in page["items"][0]["steps"]] == [desk.before["id"]]
    for wish, is_there in (
        ("state=completed", True),
        ("state=running", False),
        ("agent=desk", True),
        ("agent=another", False),
        (f"cursor={desk.saga}", False),
    ):
        found = desk.caller.get(f"sagas?task_id=order-7&{wish}").json()["items"]
        assert [saga["id"] for saga in found] == [desk.saga] * is_there, wish
    assert desk.caller.get("sagas?task_id=order-").json()["items"] == []


def test_archived_and_other_sagas_of_one_task_are_one_list(
    desk: Desk, oncall: Caller, other_agent: Caller
) -> None:
    """A task is its agent's own; an operator sees those of all, newest first, page by page."""
    theirs = other_agent.open("order-7")
    found = oncall.get("sagas?task_id=order-7").json()["items"]
    assert [(saga["id"], "archived" in saga) for saga in found] == [
        (theirs, False),
        (desk.saga, True),
    ]
    first = oncall.get("sagas?task_id=order-7&limit=1").json()
    assert ([saga["id"] for saga in first["items"]], first["next_cursor"]) == ([theirs], theirs)
    rest = oncall.get(f"sagas?task_id=order-7&limit=1&cursor={theirs}").json()
    assert ([saga["id"] for saga in rest["items"]], rest["next_cursor"]) == ([desk.saga], None)
    assert [one["id"] for one in other_agent.get("sagas?task_id=order-7").json()["items"]] == [
        theirs
    ]
    everything = oncall.get("sagas").json()["items"]
    assert [saga["id"] for saga in everything] == [theirs]


def test_a_saga_that_came_back_is_listed_once(desk: Desk, tmp_path: Path) -> None:
    (found,) = restore_file(tmp_path / "archive" / Tombstone.objects.get().export.name)
    assert found.why_not == ""
    (saga,) = desk.caller.get("sagas?task_id=order-7").json()["items"]
    assert (saga["id"], "archived" in saga) == (desk.saga, False)


def test_an_archived_saga_is_nobody_elses(desk: Desk, other_agent: Caller) -> None:
    for path in ("", "/ledger", "/trace.jsonl"):
        answer = other_agent.get(f"sagas/{desk.saga}{path}")
        assert answer.status_code == 404
        assert "export" not in answer.json()
    assert other_agent.get("sagas?task_id=order-7").json()["items"] == []
    assert other_agent.get(f"steps/{desk.before['id']}").status_code == 404
    answer = other_agent.post(f"sagas/{desk.saga}/steps", desk.step)
    assert (answer.status_code, problem_type(answer)) == (404, "not-found")
    assert other_agent.post("sagas", TASK).status_code == 201


def test_an_archived_saga_takes_nothing_new(desk: Desk) -> None:
    new = desk.propose(desk.saga, step_id="more", args={"charge": "ch_other", "amount": 1})
    assert (new.status_code, problem_type(new)) == (409, "saga-ended")
    assert desk.caller.post(f"sagas/{desk.saga}/complete").status_code == 200
    abort = desk.caller.post(f"sagas/{desk.saga}/abort", {"reason": "no"})
    assert (abort.status_code, problem_type(abort)) == (409, "saga-ended")


def test_a_step_that_was_undone_frees_its_effect_for_ever(shop: Shop, tmp_path: Path) -> None:
    """Only an effect that is still out in the world is held by a tombstone."""
    saga = shop.open()
    shop.propose(saga, "one", "crm.exclusive", args={"email": "ada@example.com"})
    work(lambda: Step.objects.filter(saga_id=saga, state="committed").exists())
    closing.abort(saga, "no", bearer=shop.bearer)
    work_saga(saga, "compensated")
    archive_all(tmp_path)
    again = shop.open()
    answer = shop.propose(again, "one", "crm.exclusive", args={"email": "ada@example.com"})
    assert answer.kind == "accepted"
    work(lambda: Step.objects.filter(saga_id=again, state="committed").exists())
    assert_verifies()


def test_a_failed_step_answers_with_its_error(shop: Shop, tmp_path: Path) -> None:
    saga = undone(shop)
    before = dict(Step.objects.filter(saga_id=saga).values_list("step_id", "state"))
    archive_all(tmp_path)
    answer = shop.propose(saga, "two", "crm.broken", args={"id": "cus_of_nobody"})
    assert answer.kind == "replayed"
    assert before["two"] == "failed"
    assert shop.propose(saga, "one", "crm.customer", args={"email": "eve@example.com"}).kind == (
        "replayed"
    )


def test_after_coming_back_the_rows_answer_again(desk: Desk, tmp_path: Path) -> None:
    (found,) = restore_file(tmp_path / "archive" / Tombstone.objects.get().export.name)
    assert (found.saga, found.why_not) == (desk.saga, "")
    again = desk.propose(desk.saga)
    assert again.json() == desk.before
    assert desk.propose(desk.other_saga(), step_id="x").json()["effect_of"] == desk.before["id"]
    kinds = list(Entry.objects.filter(saga_id=desk.saga).values_list("kind", flat=True))
    assert kinds[-1] == "step.replayed"
    desk.assert_one_effect()


def test_a_task_that_is_archived_while_it_is_opened_again_is_not_begun_anew(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look before the insert may be too early; the database refuses, and it is looked again."""
    from ledger.services import opening

    blind = opening.INSERT_SAGA.replace("WHERE NOT EXISTS", "WHERE true OR NOT EXISTS")
    seeing, looks = opening.INSERT_SAGA, []

    def insert(sql: str, values: Any) -> Any:
        looks.append(sql)
        return execute(blind if len(looks) == 1 else seeing, values)

    execute = opening.storage.execute
    monkeypatch.setattr(opening.storage, "execute", insert)
    agent = tokens.bearer(str(desk.caller.token))
    opened = opening.open_saga(Opening("order-7", "Refund order 7"), bearer=agent)
    assert (str(opened.saga), opened.created, len(looks)) == (desk.saga, False, 2)


def test_one_agents_archived_task_does_not_bar_anothers(desk: Desk) -> None:
    from ledger.services.opening import open_saga

    assert open_saga(Opening("order-7", "Mine"), bearer=desk.shop.bearer).created
