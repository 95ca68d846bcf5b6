"""The index behind `ledger_attempt_one_at_a_time`, which 0003 dropped unsaid.

Django takes a partial unique index for that of the foreign key when it drops the latter. The
state of the models has had the constraint all along.
"""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("ledger", "0014_an_entry_names_its_number")]

    operations = [
        migrations.RunSQL(
            "CREATE UNIQUE INDEX IF NOT EXISTS ledger_attempt_one_at_a_time "
            "ON ledger_attempt (step_id) WHERE state = 'started'",
            migrations.RunSQL.noop,
        )
    ]
