"""The gate's walls again: a saga that leaves takes its requests along (ledger/doors.py)."""

from django.db import migrations

from approvals import walls


class Migration(migrations.Migration):
    dependencies = [("approvals", "0002_walls"), ("ledger", "0007_tombstones")]

    operations = [migrations.RunSQL(walls.INSTALL + walls.DOOR, migrations.RunSQL.noop)]
