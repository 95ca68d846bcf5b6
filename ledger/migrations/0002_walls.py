"""The rules that hold whoever connects (ledger/walls.py)."""

from django.db import migrations

from ledger import walls


class Migration(migrations.Migration):
    dependencies = [("ledger", "0001_the_ledger")]

    operations = [migrations.RunSQL(walls.INSTALL, walls.REMOVE)]
