"""A step that came back and leaves again is told as it is then, and a seal covers what the gate
keeps of its saga (ledger/doors/leaving.py)."""

from django.db import migrations, models

from ledger import doors, walls
from ledger.doors import leaving


class Migration(migrations.Migration):
    dependencies = [("ledger", "0016_said_after_leaving")]

    operations = [
        migrations.AddField(
            model_name="tombstone",
            name="gate_sha256",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=64
            ),
        ),
        migrations.RunSQL(doors.INSTALL + walls.SEAL, leaving.UNSEALED + walls.SEAL),
    ]
