"""The table tells the truth, above all when the truth is bad."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from saga_console.demo import faultproxy, table
from saga_console.demo.targets import PAYMENTS_KEY, World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World.start(tmp_path_factory.mktemp("world"))
    yield world
    world.stop()


def refund(world: World, payment: str) -> str:
    """Refund in full at the target; the refund's id."""
    return str(post(world, "refunds", payment_intent=payment)["id"])


def post(world: World, what: str, **form: str) -> dict[str, object]:
    answer = httpx.post(
        f"{world.at.payments_url}/v1/{what}",
        data=form,
        headers={"Authorization": f"Bearer {PAYMENTS_KEY}"},
        trust_env=False,
    )
    answer.raise_for_status()
    return dict(answer.json())


@pytest.fixture
def payment(world: World) -> str:
    card = {"payment_method": "pm_card_visa", "confirm": "true"}
    return str(post(world, "payment_intents", amount="4200", currency="eur", **card)["id"])


def cut_refund(world: World, payment: str) -> str:
    """Refund through the proxy with its answer cut off; the refund's id."""
    faultproxy.cut_next(world.at.proxy_url, "POST", "/v1/refunds")
    with pytest.raises(httpx.TransportError):
        httpx.post(
            f"{world.at.proxy_url}/v1/refunds",
            data={"payment_intent": payment},
            headers={"Authorization": f"Bearer {PAYMENTS_KEY}"},
            trust_env=False,
        )
    return world.proxy.cuts[-1].body.split('"id": "')[1].split('"')[0]


def test_row_is_right_when_the_one_refund_is_the_one_that_was_found(
    world: World, payment: str
) -> None:
    facts = {"payment": payment, "found": cut_refund(world, payment)}
    assert table.row(world.at, "ambiguous", facts).ok


def test_row_is_wrong_when_a_second_refund_exists(world: World, payment: str) -> None:
    facts = {"payment": payment, "found": cut_refund(world, payment)}
    refund(world, payment)
    row = table.row(world.at, "ambiguous", facts)
    assert not row.ok
    assert row.effects.startswith("2 refunds, 84.00 EUR in all")


def test_row_is_wrong_when_no_answer_was_cut_off(world: World, payment: str) -> None:
    facts = {"payment": payment, "found": refund(world, payment)}
    assert "0 answer cut off" in table.row(world.at, "ambiguous", facts).effects


def test_row_is_wrong_when_nothing_was_ever_started(world: World) -> None:
    row = table.row(world.at, "provision", {"domain": "n.example", "name": "n", "undone": []})
    assert not row.ok
    assert "instances: none" in row.effects


@pytest.mark.parametrize("facts", [{}, {"asked": None}])
def test_story_that_the_agent_gave_up_is_never_right(world: World, facts: dict[str, None]) -> None:
    row = table.row(world.at, "refund", facts)
    assert (row.effects, row.ok) == ("the agent gave up", False)


def test_table_marks_the_wrong_row_and_counts_the_right_ones() -> None:
    same = "1 refund, 42.00 EUR in all; order cancelled"
    text = table.render([table.Row("a", same, same), table.Row("b", "2 refunds", "1 refund")])
    assert "1 of 2 rows are right." in text
    rows = [line for line in text.splitlines() if line.startswith(("a ", "b "))]
    assert [row.split()[-1] for row in rows] == ["yes", "NO"]
    assert max(map(len, text.splitlines())) <= 100
