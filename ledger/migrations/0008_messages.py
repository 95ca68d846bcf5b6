"""Notices and messages: what people and webhooks are told (ledger/messagewalls.py)."""

import django.db.models.deletion
import ledger.models.fields
from django.db import migrations, models

from ledger.messagewalls import INSTALL, REMOVE


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0007_tombstones'),
    ]

    operations = [
        migrations.CreateModel(
            name='Notice',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('about', models.UUIDField()),
                ('kind', models.CharField(max_length=40)),
                ('round', models.PositiveBigIntegerField(default=0)),
                ('groups', models.JSONField(default=list)),
                ('at', models.DateTimeField(db_default=ledger.models.fields.ClockTimestamp())),
                ('spread_at', models.DateTimeField(blank=True, null=True)),
                ('saga', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='ledger.saga')),
            ],
        ),
        migrations.CreateModel(
            name='Message',
            fields=[
                ('id', models.UUIDField(default=ledger.models.fields.uuid7, editable=False, primary_key=True, serialize=False)),
                ('about', models.UUIDField()),
                ('channel', models.CharField(max_length=120)),
                ('form', models.CharField(max_length=10)),
                ('recipients', models.JSONField(default=list)),
                ('content', models.JSONField()),
                ('state', models.CharField(choices=[('waiting', 'waiting'), ('delivered', 'delivered'), ('undelivered', 'undelivered')], default='waiting', max_length=11)),
                ('tries', models.PositiveIntegerField(default=0)),
                ('due_at', models.DateTimeField(db_default=ledger.models.fields.ClockTimestamp())),
                ('lease_until', models.DateTimeField(blank=True, null=True)),
                ('token', models.UUIDField(blank=True, null=True)),
                ('last_error', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField(db_default=ledger.models.fields.ClockTimestamp())),
                ('delivered_at', models.DateTimeField(blank=True, null=True)),
                ('notice', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='messages', to='ledger.notice')),
            ],
        ),
        migrations.AddIndex(
            model_name='notice',
            index=models.Index(condition=models.Q(('spread_at__isnull', True)), fields=['id'], name='ledger_notice_to_spread'),
        ),
        migrations.AddConstraint(
            model_name='notice',
            constraint=models.UniqueConstraint(fields=('about', 'kind', 'round'), name='ledger_notice_once'),
        ),
        migrations.AddIndex(
            model_name='message',
            index=models.Index(condition=models.Q(('state', 'waiting')), fields=['channel', 'due_at'], name='ledger_message_due'),
        ),
        migrations.AddIndex(
            model_name='message',
            index=models.Index(fields=['about', 'channel', 'notice'], name='ledger_message_about'),
        ),
        migrations.AddIndex(
            model_name='message',
            index=models.Index(condition=models.Q(('state', 'undelivered')), fields=['id'], name='ledger_message_undelivered'),
        ),
        migrations.AddConstraint(
            model_name='message',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['waiting', 'delivered', 'undelivered'])), name='ledger_message_state_known'),
        ),
        migrations.AddConstraint(
            model_name='message',
            constraint=models.UniqueConstraint(fields=('notice', 'channel'), name='ledger_message_once'),
        ),
        migrations.AddConstraint(
            model_name='message',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('delivered_at__isnull', False), ('state', 'delivered')), models.Q(models.Q(('state', 'delivered'), _negated=True), ('delivered_at__isnull', True)), _connector='OR'), name='ledger_message_delivered_at'),
        ),
        migrations.RunSQL(INSTALL, REMOVE),
    ]
