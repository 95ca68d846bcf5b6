"""Guarded writes check themselves, and a change of state writes fewer indexes."""

import django.db.models.deletion
from django.db import migrations, models

from ledger import walls


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0002_walls'),
    ]

    operations = [
        migrations.RunSQL(walls.INSTALL, migrations.RunSQL.noop),
        # Room for the next version of a row on the same page: no index is written for it then.
        migrations.RunSQL(
            "ALTER TABLE ledger_saga SET (fillfactor = 60);"
            "ALTER TABLE ledger_outboxmessage SET (fillfactor = 80);",
            "ALTER TABLE ledger_saga RESET (fillfactor);"
            "ALTER TABLE ledger_outboxmessage RESET (fillfactor);",
        ),
        # Keys are digests: nobody searches for how they begin.
        migrations.RunSQL(
            "DROP INDEX IF EXISTS ledger_idempotencyrecord_key_231706c9_like",
            migrations.RunSQL.noop,
        ),
        migrations.AlterField(
            model_name='attempt',
            name='step',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='tries', to='ledger.step'),
        ),
        migrations.AlterField(
            model_name='saga',
            name='agent',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='ledger.agent'),
        ),
        migrations.AlterField(
            model_name='step',
            name='duplicate_of',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='ledger.step'),
        ),
        migrations.AlterField(
            model_name='step',
            name='repeat_of',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='ledger.step'),
        ),
        migrations.AlterField(
            model_name='step',
            name='tool_version',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='ledger.toolversion'),
        ),
    ]
