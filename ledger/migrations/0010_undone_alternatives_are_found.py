"""When the undo of a step that ran another choice last worked: one look for each tool of a page."""

import django.db.models.expressions
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0009_lighter_walls'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='step',
            index=models.Index(models.Func(models.Func(models.F('alternatives'), django.db.models.expressions.CombinedExpression(models.F('alternative'), '-', models.Value(1)), arg_joiner=' -> ', output_field=models.JSONField(), template='(%(expressions)s)'), models.Value('tool'), arg_joiner=' ->> ', output_field=models.TextField(), template='(%(expressions)s)'), models.OrderBy(models.F('finished_at'), descending=True), condition=models.Q(('alternative__gt', 0), ('state__in', ['compensated', 'corrected'])), name='ledger_step_undone_other'),
        ),
    ]
