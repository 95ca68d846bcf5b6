"""A reservation may go once it counts for nothing any more (approvals/walls.py)."""

from django.db import migrations

from approvals import walls


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0006_who_decides"),
        ("ledger", "0011_what_was_told_may_leave"),
    ]

    operations = [migrations.RunSQL(walls.LIMITS, migrations.RunSQL.noop)]
