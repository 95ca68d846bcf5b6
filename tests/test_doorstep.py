"""Guessing passwords shuts out the guesser, at every door, and nobody else."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.urls import reverse

from ledger.services import tokens
from saga_console import doorstep
from saga_console.models import LoginTry
from tests.stage import PASSWORD, Stage, a_stage, sign_in

__all__ = ["a_stage"]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def olivia(db: None) -> Any:
    return tokens.seat_operator("olivia", group="approvers", password=PASSWORD)


def knock(password: str, name: str = "olivia", address: str = "10.0.0.1", **more: Any) -> Any:
    sent = {"username": name, "password": password}
    return Client(REMOTE_ADDR=address, **more).post(reverse("login"), sent)


def earlier(seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE saga_console_logintry SET at = at - %s * interval '1 second'", [seconds]
        )


def guess(times: int, **more: Any) -> list[int]:
    return [knock(f"guess {n}", **more).status_code for n in range(times)]


def test_after_five_guesses_not_even_the_right_password_is_looked_at(olivia) -> None:
    assert guess(doorstep.OF_PAIR) == [200] * doorstep.OF_PAIR
    refused = knock(PASSWORD)
    assert refused.status_code == 429
    assert 0 < int(refused.headers["Retry-After"]) <= doorstep.WINDOW_S + 1
    assert "Too many passwords were tried. Try again in 15 min" in refused.content.decode()
    earlier(doorstep.WINDOW_S)
    assert knock(PASSWORD).status_code == 302


def test_one_attacker_shuts_out_nobody_elsewhere(olivia) -> None:
    guess(doorstep.OF_PAIR + 3)
    assert knock(PASSWORD, address="10.0.0.2").status_code == 302


def test_knocking_on_does_not_shut_anybody_out_for_longer(olivia) -> None:
    guess(doorstep.OF_PAIR)
    earlier(doorstep.WINDOW_S - 120)
    assert guess(4) == [429] * 4
    earlier(121)
    assert knock(PASSWORD).status_code == 302


def test_an_account_that_does_not_exist_is_answered_like_one_that_does(olivia) -> None:
    told = []
    for name in ("olivia", "nobody"):
        guess(doorstep.OF_PAIR, name=name)
        told.append(knock("guess", name=name).content.decode().replace(name, "NAME"))
    assert _without_tokens(told[0]) == _without_tokens(told[1])


def _without_tokens(html: str) -> list[str]:
    return [line for line in html.splitlines() if "csrf" not in line and "data-now" not in line]


def test_one_address_cannot_go_through_everybodys_names(olivia) -> None:
    statuses = [knock("123456", name=f"person{n}").status_code for n in range(doorstep.OF_ADDRESS)]
    assert set(statuses) == {200}
    assert knock(PASSWORD).status_code == 429
    assert knock(PASSWORD, address="10.0.0.2").status_code == 302


def test_many_addresses_on_one_account_leave_the_desk_of_its_owner_open(olivia) -> None:
    assert knock(PASSWORD, address="10.9.9.9").status_code == 302
    for n in range(doorstep.OF_ACCOUNT):
        knock("guess", address=f"10.1.0.{n}")
    assert knock("guess", address="10.2.0.1").status_code == 429
    assert knock(PASSWORD, address="10.2.0.2").status_code == 429
    assert knock(PASSWORD, address="10.9.9.9").status_code == 302


def test_a_right_password_forgets_the_typing_errors_before_it(olivia) -> None:
    for _ in range(3):
        guess(doorstep.OF_PAIR - 1)
        assert knock(PASSWORD).status_code == 302
    assert LoginTry.objects.filter(is_good=False).count() == 0


def test_spelling_the_name_differently_is_the_same_account(olivia) -> None:
    for name in ("olivia", "OLIVIA", " Olivia", "olivia ", "oLIVIA"):
        guess(1, name=name)
    assert knock(PASSWORD).status_code == 429


def test_guesses_side_by_side_are_counted(olivia) -> None:
    found: list[int] = []

    def run(n: int) -> None:
        try:
            found.append(knock(f"guess {n}").status_code)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[n]) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [200] * doorstep.OF_PAIR + [429] * (12 - doorstep.OF_PAIR)


def test_an_address_is_only_what_our_own_proxies_say(olivia, settings) -> None:
    forged = [
        knock("guess", HTTP_X_FORWARDED_FOR=f"10.3.0.{n}").status_code
        for n in range(doorstep.OF_PAIR + 1)
    ]
    assert forged[-1] == 429
    settings.SAGA_PROXIES = 1
    assert knock("x", HTTP_X_FORWARDED_FOR="10.0.0.1, 10.4.0.1").status_code == 200
    assert knock("x", HTTP_X_FORWARDED_FOR="10.4.0.1, 10.0.0.1").status_code == 429
    assert knock("x", HTTP_X_FORWARDED_FOR="nonsense").status_code == 429


def test_the_admin_has_the_same_door(olivia) -> None:
    answer = Client().post("/admin/login/?next=/admin/", {"username": "a", "password": "b"})
    assert (answer.status_code, answer["Location"]) == (302, "/login/?next=/admin/")
    client = Client()
    client.force_login(olivia)
    assert client.get("/admin/", follow=True).status_code == 403  # and no loop
    get_user_model().objects.filter(pk=olivia.pk).update(is_staff=True, is_superuser=True)
    assert client.get("/admin/").status_code == 200


def test_a_step_up_is_counted_too(stage: Stage) -> None:
    client = Client()
    sign_in(client, stage.approver, checked=False)
    _, step = stage.waiting_refund()
    request = stage.request(step)
    address = reverse("approvals:decide", args=[request.pk])
    sent = {"answer": "approve", "understood": "yes", "args_digest": request.args_digest}
    tried = [
        client.post(address, sent | {"password": f"guess {n}"}).status_code
        for n in range(doorstep.OF_PAIR)
    ]
    assert set(tried) == {403}
    last = client.post(address, sent | {"password": PASSWORD})
    assert (last.status_code, stage.request(step).state) == (429, "pending")
    assert "Too many passwords were tried" in last.content.decode()


def test_what_was_typed_as_a_name_is_not_kept(olivia) -> None:
    guess(1, name=PASSWORD)
    assert PASSWORD not in str(list(LoginTry.objects.values()))
    earlier(86_400 * 2)
    guess(1)
    assert LoginTry.objects.count() == 1
