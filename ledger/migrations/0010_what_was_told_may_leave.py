"""Messages and notices may go once their saga has left (ledger/messagewalls.py)."""

from django.db import migrations

from ledger import messagewalls


class Migration(migrations.Migration):
    dependencies = [("ledger", "0009_lighter_walls")]

    operations = [migrations.RunSQL(messagewalls.INSTALL, migrations.RunSQL.noop)]
