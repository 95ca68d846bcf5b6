"""The gate's rules that hold whoever connects (approvals/walls.py)."""

from django.db import migrations

from approvals import walls


class Migration(migrations.Migration):
    dependencies = [("approvals", "0001_requests_and_decisions"), ("ledger", "0002_walls")]

    operations = [migrations.RunSQL(walls.INSTALL, walls.REMOVE)]
