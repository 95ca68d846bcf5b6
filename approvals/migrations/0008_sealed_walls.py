"""No temporary table stands in for one of ours (ledger/walls_frozen.py)."""

from django.db import migrations

from approvals import walls


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0007_reservations_may_leave"),
        ("ledger", "0012_sealed_walls"),
    ]

    operations = [migrations.RunSQL(walls.SEAL, migrations.RunSQL.noop)]
