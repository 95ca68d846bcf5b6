"""Walls against DELETE, for databases made before ledger/walls.py had them; 0002 has them too."""

from django.db import migrations

from ledger import walls


class Migration(migrations.Migration):
    dependencies = [("ledger", "0002_walls")]

    operations = [migrations.RunSQL(walls.KEPT + walls.FROZEN_STEP, migrations.RunSQL.noop)]
