"""Rules that were CHECK constraints, and rules that every update paid for, move into triggers of
the columns that they are about (docs/decisions/0085-lighter-walls.md)."""

from django.db import migrations, models

from ledger import doors, messagewalls, walls, walls_frozen


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0008_messages'),
    ]

    operations = [
        migrations.RunSQL(walls.INSTALL + walls_frozen.FROZEN + doors.INSTALL, migrations.RunSQL.noop),
        migrations.RunSQL(messagewalls.INSTALL, migrations.RunSQL.noop),
        migrations.RemoveConstraint(
            model_name='entry',
            name='ledger_entry_one_line',
        ),
        migrations.RemoveConstraint(
            model_name='saga',
            name='ledger_saga_state_known',
        ),
        migrations.RemoveConstraint(
            model_name='saga',
            name='ledger_saga_ended_at',
        ),
        migrations.RemoveConstraint(
            model_name='step',
            name='ledger_step_state_known',
        ),
        migrations.RemoveConstraint(
            model_name='step',
            name='ledger_step_never_runs_again',
        ),
        migrations.RemoveConstraint(
            model_name='step',
            name='ledger_step_committed_at',
        ),
        migrations.AlterField(
            model_name='saga',
            name='fence',
            field=models.IntegerField(default=0),
        ),
        migrations.AlterField(
            model_name='saga',
            name='pivot_position',
            field=models.IntegerField(blank=True, null=True),
        ),
        migrations.AlterField(
            model_name='saga',
            name='retries_used',
            field=models.IntegerField(default=0),
        ),
        migrations.AlterField(
            model_name='saga',
            name='retry_budget',
            field=models.IntegerField(),
        ),
        migrations.AlterField(
            model_name='saga',
            name='step_count',
            field=models.IntegerField(default=0),
        ),
        migrations.AlterField(
            model_name='step',
            name='alternative',
            field=models.IntegerField(default=0),
        ),
        migrations.AlterField(
            model_name='step',
            name='attempts',
            field=models.IntegerField(default=0),
        ),
        migrations.AlterField(
            model_name='step',
            name='fence',
            field=models.IntegerField(default=0),
        ),
        migrations.AlterField(
            model_name='step',
            name='position',
            field=models.IntegerField(),
        ),
        migrations.AlterField(
            model_name='step',
            name='reclaims',
            field=models.IntegerField(default=0),
        ),
        migrations.AlterField(
            model_name='step',
            name='revision',
            field=models.IntegerField(default=1),
        ),
    ]
