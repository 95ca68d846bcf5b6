"""A time of day has its date beside it, unless it is today's."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from ledger.models import Attempt
from ledger.outcomes import Done
from ledger.templatetags.console import clock
from tests.stage import Stage, a_stage

__all__ = ["a_stage"]


def test_a_time_of_today_has_its_date_in_the_title_alone() -> None:
    now = timezone.now()
    shown = str(clock(now))
    assert f'title="{now:%d %b %Y, %H:%M:%S} UTC"' in shown
    assert f">{now:%H:%M:%S}.{now.microsecond // 1000:03d}</time>" in shown


@pytest.mark.parametrize("days", [1, 400])
def test_a_time_of_another_day_shows_its_date(days: int) -> None:
    then = timezone.now() - timedelta(days=days)
    shown = str(clock(then))
    assert f">{then:%d %b %Y, %H:%M:%S}.{then.microsecond // 1000:03d}</time>" in shown
    assert f'datetime="{then.isoformat(timespec="microseconds")}"' in shown


@pytest.mark.django_db(transaction=True)
def test_the_timeline_of_yesterday_says_that_it_was_yesterday(stage: Stage) -> None:
    saga = stage.saga()
    stage.charge(saga)
    stage.work(Done({"id": "ch_1"}))
    client = Client()
    client.force_login(stage.oncall)
    address = reverse("ledger:saga-detail", args=[saga])
    then = Attempt.objects.get().started_at - timedelta(days=1)
    date = f">{then:%d %b %Y}, "
    assert date not in client.get(address).content.decode()
    Attempt.objects.update(started_at=then)
    assert date in client.get(address).content.decode()
