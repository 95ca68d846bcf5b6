"""The embedded servers of a home."""

from __future__ import annotations

import pytest
from django.db import connection


@pytest.mark.django_db
def test_the_application_role_is_no_superuser_and_commits_are_durable() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('is_superuser'), current_setting('fsync')")
        assert cursor.fetchone() == ("off", "on")


@pytest.mark.django_db(transaction=True)
def test_a_committing_test_is_cleaned_up(redis_client) -> None:
    assert redis_client.ping()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)
