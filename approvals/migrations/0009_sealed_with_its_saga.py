"""The seal of an archived saga covers what was asked and decided about it (approvals/doors.py)."""

from django.db import migrations

from approvals import doors, walls


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0008_sealed_walls"),
        ("ledger", "0017_sealed_as_it_left"),
    ]

    operations = [migrations.RunSQL(doors.INSTALL + walls.SEAL, doors.REMOVE)]
