"""Messages and notices may go once their saga has left (ledger/messagewalls.py)."""

from django.db import migrations

from ledger import messagewalls


class Migration(migrations.Migration):
    dependencies = [("ledger", "0010_undone_alternatives_are_found")]

    operations = [migrations.RunSQL(messagewalls.INSTALL, migrations.RunSQL.noop)]
