"""One answer a question; former versions of a step, and indexes for what is rare among steps."""

import django.db.models.fields.json
import django.db.models.functions.comparison
import ledger.states
from django.db import migrations, models

from ledger import walls


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0005_drills'),
    ]

    operations = [
        migrations.AddField(
            model_name='step',
            name='former',
            field=models.JSONField(db_default=models.Value([], output_field=models.JSONField()), default=list),
        ),
        migrations.AddIndex(
            model_name='step',
            index=models.Index(condition=models.Q(('alternative__gt', 0), ('revision__gt', 1), _connector='OR'), fields=['saga'], name='ledger_step_other_versions'),
        ),
        migrations.AddIndex(
            model_name='step',
            index=models.Index(condition=models.Q(models.Q(('held_why', ''), _negated=True), ('state__in', [ledger.states.StepState['CANCELLED'], ledger.states.StepState['COMMITTED'], ledger.states.StepState['COMPENSATED'], ledger.states.StepState['CORRECTED'], ledger.states.StepState['FAILED'], ledger.states.StepState['REJECTED']])), fields=['id'], name='ledger_step_contradicted'),
        ),
        migrations.RemoveIndex(model_name='step', name='ledger_step_attention'),
        migrations.AddIndex(
            model_name='step',
            index=models.Index(condition=models.Q(('state__in', ['unknown', 'stuck', 'executing', 'change_requested', 'compensating'])), fields=['state', 'id'], name='ledger_step_attention'),
        ),
        migrations.AddConstraint(
            model_name='entry',
            constraint=models.UniqueConstraint(models.F('saga'), models.F('step_id'), django.db.models.fields.json.KeyTextTransform('question', django.db.models.functions.comparison.Cast('payload', models.JSONField())), condition=models.Q(('kind__startswith', 'operator.')), name='ledger_entry_one_answer'),
        ),
        # The walls know the new column. They are as they are now in every migration that installs
        # them, so going back needs nothing.
        migrations.RunSQL(walls.INSTALL, migrations.RunSQL.noop),
    ]
