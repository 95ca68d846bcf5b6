"""Drills and their legs, and the rules about them (ledger/drill_walls.py)."""

import django.db.models.deletion
import ledger.models.fields
from django.db import migrations, models

from ledger.drill_walls import INSTALL, REMOVE


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0004_an_undo_in_doubt_is_found'),
    ]

    operations = [
        migrations.CreateModel(
            name='Drill',
            fields=[
                ('id', models.UUIDField(default=ledger.models.fields.uuid7, editable=False, primary_key=True, serialize=False)),
                ('tool', models.CharField(max_length=200)),
                ('version', models.CharField(max_length=100)),
                ('digest', models.CharField(max_length=64)),
                ('undo', models.CharField(choices=[('forward', 'forward'), ('compensate', 'compensate'), ('correct', 'correct')], max_length=10)),
                ('args_text', models.TextField()),
                ('sandbox', models.TextField()),
                ('reason', models.TextField()),
                ('asked_by', models.CharField(max_length=200)),
                ('asked_at', models.DateTimeField(db_default=ledger.models.fields.ClockTimestamp())),
            ],
        ),
        migrations.CreateModel(
            name='DrillLeg',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('leg', models.CharField(choices=[('start', 'start'), ('execute', 'execute'), ('found', 'found'), ('seen', 'seen'), ('undo', 'undo'), ('undone', 'undone'), ('unseen', 'unseen'), ('end', 'end')], max_length=10)),
                ('ok', models.BooleanField()),
                ('outcome', models.CharField(max_length=20)),
                ('said', models.TextField(blank=True, default='')),
                ('took_ms', models.PositiveIntegerField(default=0)),
                ('shift_id', models.UUIDField()),
                ('at', models.DateTimeField(db_default=ledger.models.fields.ClockTimestamp())),
            ],
        ),
        migrations.AddIndex(
            model_name='step',
            index=models.Index(condition=models.Q(('state__in', ['compensated', 'corrected'])), fields=['tool', '-finished_at'], name='ledger_step_undone'),
        ),
        migrations.AddIndex(
            model_name='drill',
            index=models.Index(fields=['tool', '-id'], name='ledger_drill_of_tool'),
        ),
        migrations.AddIndex(
            model_name='drill',
            index=models.Index(fields=['asked_at'], name='ledger_drill_asked'),
        ),
        migrations.AddConstraint(
            model_name='drill',
            constraint=models.CheckConstraint(condition=models.Q(('undo__in', ['compensate', 'correct'])), name='ledger_drill_undoes'),
        ),
        migrations.AddConstraint(
            model_name='drill',
            constraint=models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='ledger_drill_reason'),
        ),
        migrations.AddField(
            model_name='drillleg',
            name='drill',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='legs', to='ledger.drill'),
        ),
        migrations.AddConstraint(
            model_name='drillleg',
            constraint=models.UniqueConstraint(fields=('drill', 'leg'), name='ledger_drillleg_once'),
        ),
        migrations.AddConstraint(
            model_name='drillleg',
            constraint=models.CheckConstraint(condition=models.Q(('leg__in', ['start', 'execute', 'found', 'seen', 'undo', 'undone', 'unseen', 'end'])), name='ledger_drillleg_known'),
        ),
        migrations.RunSQL(INSTALL, REMOVE),
    ]
