"""Tombstones, and the doors in the walls through which an ended saga leaves and comes back."""

import django.db.models.deletion
import ledger.models.fields
from django.db import migrations, models

from ledger import doors, walls


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0006_operators_answers'),
    ]

    operations = [
        migrations.AlterField(
            model_name='checkpointhead',
            name='saga',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, to='ledger.saga'),
        ),
        migrations.AlterField(
            model_name='step',
            name='duplicate_of',
            field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='ledger.step'),
        ),
        migrations.AlterField(
            model_name='step',
            name='repeat_of',
            field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='ledger.step'),
        ),
        migrations.CreateModel(
            name='ClaimTombstone',
            fields=[
                ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('key', models.TextField()),
                ('skeleton', models.TextField()),
                ('step_id', models.UUIDField()),
            ],
            options={
                'indexes': [models.Index(fields=['skeleton'], name='ledger_claimtombstone_looks'), models.Index(fields=['step_id'], name='ledger_claimtombstone_step')],
                'constraints': [models.UniqueConstraint(fields=('key',), name='ledger_claimtombstone_once')],
            },
        ),
        migrations.CreateModel(
            name='Export',
            fields=[
                ('id', models.UUIDField(default=ledger.models.fields.uuid7, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=200, unique=True)),
                ('folder', models.TextField()),
                ('sha256', models.CharField(max_length=64)),
                ('size', models.BigIntegerField()),
                ('sagas', models.PositiveIntegerField()),
                ('entries', models.PositiveBigIntegerField()),
                ('made_by', models.CharField(max_length=200)),
                ('made_at', models.DateTimeField(db_default=ledger.models.fields.ClockTimestamp())),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('finished_at__isnull', True)), fields=['made_at'], name='ledger_export_unfinished')],
            },
        ),
        migrations.CreateModel(
            name='Restoration',
            fields=[
                ('id', models.UUIDField(default=ledger.models.fields.uuid7, editable=False, primary_key=True, serialize=False)),
                ('saga_id', models.UUIDField()),
                ('seq', models.BigIntegerField()),
                ('actor', models.CharField(max_length=200)),
                ('at', models.DateTimeField(db_default=ledger.models.fields.ClockTimestamp())),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('saga_id', 'seq'), name='ledger_restoration_once')],
            },
        ),
        migrations.CreateModel(
            name='StepTombstone',
            fields=[
                ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('saga_id', models.UUIDField()),
                ('step_id', models.CharField(max_length=200)),
                ('position', models.PositiveIntegerField()),
                ('tool', models.CharField(max_length=200)),
                ('tool_version', models.CharField(max_length=100)),
                ('tier', models.CharField(max_length=20)),
                ('fingerprint', models.CharField(max_length=64)),
                ('idempotency_key', models.CharField(max_length=64)),
                ('state', models.CharField(max_length=20)),
                ('result_text', models.TextField(blank=True, null=True)),
                ('error', models.JSONField(blank=True, null=True)),
                ('residue', models.BooleanField()),
                ('attempts', models.PositiveIntegerField()),
                ('created_at', models.DateTimeField()),
                ('executed_at', models.DateTimeField(blank=True, null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('saga_id', 'step_id'), name='ledger_steptombstone_identity')],
            },
        ),
        migrations.CreateModel(
            name='Tombstone',
            fields=[
                ('id', models.UUIDField(default=ledger.models.fields.uuid7, editable=False, primary_key=True, serialize=False)),
                ('saga_id', models.UUIDField()),
                ('seq', models.BigIntegerField()),
                ('task_id', models.CharField(max_length=200)),
                ('name', models.CharField(max_length=200)),
                ('opened_digest', models.CharField(max_length=64)),
                ('state', models.CharField(max_length=20)),
                ('steps', models.PositiveIntegerField()),
                ('opened_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField()),
                ('sha256', models.CharField(max_length=64)),
                ('at', models.DateTimeField()),
                ('actor', models.CharField(max_length=200)),
                ('payload', models.TextField()),
                ('prev_hash', models.CharField(max_length=64)),
                ('hash', models.CharField(max_length=64)),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='ledger.agent')),
                ('export', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='ledger.export')),
            ],
            options={
                'indexes': [models.Index(fields=['agent', 'task_id'], name='ledger_tombstone_task'), models.Index(fields=['at'], name='ledger_tombstone_at')],
                'constraints': [models.UniqueConstraint(fields=('saga_id', 'seq'), name='ledger_tombstone_seal')],
            },
        ),
        # The walls again, now that they ask at the doors.
        migrations.RunSQL(walls.INSTALL + doors.INSTALL, doors.REMOVE),
    ]
