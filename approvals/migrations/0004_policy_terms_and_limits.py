"""The terms that a policy file may set, and what runs take of its limits."""

import datetime
import ledger.models.fields
from django.db import migrations, models

from approvals import walls


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0003_the_door'),
    ]

    operations = [
        migrations.CreateModel(
            name='Reservation',
            fields=[
                ('id', models.UUIDField(default=ledger.models.fields.uuid7, editable=False, primary_key=True, serialize=False)),
                ('limit_name', models.CharField(max_length=120)),
                ('share', models.CharField(blank=True, default='', max_length=200)),
                ('step_id', models.UUIDField()),
                ('idempotency_key', models.CharField(max_length=90)),
                ('amount', models.DecimalField(decimal_places=10, max_digits=30)),
                ('reserved_at', models.DateTimeField(db_default=ledger.models.fields.ClockTimestamp())),
                ('returned_at', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.RemoveConstraint(
            model_name='approval',
            name='approvals_yes_ends',
        ),
        migrations.AddField(
            model_name='approval',
            name='delay',
            field=models.DurationField(db_default=datetime.timedelta()),
        ),
        migrations.AddField(
            model_name='approval',
            name='escalate_to',
            field=models.CharField(blank=True, db_default='', max_length=150),
        ),
        migrations.AddField(
            model_name='approval',
            name='over_limits',
            field=models.JSONField(blank=True, db_default=models.Value([], output_field=models.JSONField())),
        ),
        migrations.AddField(
            model_name='approval',
            name='remind',
            field=models.DurationField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='approval',
            name='remind_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='approval',
            name='reminders',
            field=models.PositiveIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name='approval',
            name='runs_from',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(condition=models.Q(('state', 'pending')), fields=['remind_at'], name='approvals_to_remind'),
        ),
        # A yes of before had no time in which it could be taken back.
        migrations.RunSQL(
            "UPDATE approvals_approval SET runs_from = decided_at WHERE state = 'approved'",
            migrations.RunSQL.noop,
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'approved'), _negated=True), models.Q(('decided_at__isnull', False), ('runs_from__gte', models.F('decided_at')), ('yes_until__isnull', False)), _connector='OR'), name='approvals_yes_ends'),
        ),
        migrations.AddIndex(
            model_name='reservation',
            index=models.Index(condition=models.Q(('returned_at__isnull', True)), fields=['limit_name', 'share', 'reserved_at'], include=('amount',), name='approvals_window'),
        ),
        migrations.AddIndex(
            model_name='reservation',
            index=models.Index(models.F('idempotency_key'), condition=models.Q(('returned_at__isnull', True)), name='approvals_reserved_by_key'),
        ),
        migrations.AddConstraint(
            model_name='reservation',
            constraint=models.UniqueConstraint(condition=models.Q(('returned_at__isnull', True)), fields=('limit_name', 'idempotency_key'), name='approvals_reserved_once'),
        ),
        migrations.AddConstraint(
            model_name='reservation',
            constraint=models.CheckConstraint(condition=models.Q(('amount__gte', 0)), name='approvals_reservation_takes_something'),
        ),
        migrations.RunSQL(walls.INSTALL + walls.LIMITS, walls.REMOVE_LIMITS),
    ]
