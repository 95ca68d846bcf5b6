"""Who decides: lent rights, broken glass and its review, and where an answer came from."""

import datetime
import django.db.models.deletion
import django.db.models.functions.comparison
import ledger.models.fields
from django.conf import settings
from django.db import migrations, models

from approvals import walls, walls_who


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0005_messages'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        # An export of before does not know these: they take the database's default.
        migrations.AlterField(
            model_name='approval',
            name='delay',
            field=models.DurationField(db_default=datetime.timedelta(0), default=datetime.timedelta),
        ),
        migrations.AlterField(
            model_name='approval',
            name='escalate_to',
            field=models.CharField(blank=True, db_default='', default='', max_length=150),
        ),
        migrations.AlterField(
            model_name='approval',
            name='over_limits',
            field=models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list),
        ),
        migrations.AlterField(
            model_name='approval',
            name='reminders',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.CreateModel(
            name='Delegation',
            fields=[
                ('id', models.UUIDField(default=ledger.models.fields.uuid7, editable=False, primary_key=True, serialize=False)),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('reason', models.TextField()),
                ('created_at', models.DateTimeField(db_default=ledger.models.fields.ClockTimestamp())),
                ('withdrawn_at', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Review',
            fields=[
                ('id', models.UUIDField(default=ledger.models.fields.uuid7, editable=False, primary_key=True, serialize=False)),
                ('opened_at', models.DateTimeField(db_default=ledger.models.fields.ClockTimestamp())),
                ('closed_name', models.CharField(blank=True, default='', max_length=150)),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
                ('finding', models.TextField(blank=True, default='')),
            ],
        ),
        migrations.AlterModelOptions(
            name='approval',
            options={'permissions': [('break_glass', 'May say yes alone, in an incident')]},
        ),
        migrations.RemoveConstraint(
            model_name='decision',
            name='approvals_decision_once',
        ),
        migrations.AddField(
            model_name='decision',
            name='address',
            field=models.CharField(blank=True, db_default='', default='', max_length=64),
        ),
        migrations.AddField(
            model_name='decision',
            name='checked_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='decision',
            name='incident',
            field=models.CharField(blank=True, db_default='', default='', max_length=200),
        ),
        migrations.AddField(
            model_name='decision',
            name='stands_for',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='decision',
            name='stands_for_name',
            field=models.CharField(blank=True, db_default='', default='', max_length=150),
        ),
        migrations.AlterField(
            model_name='decision',
            name='via',
            field=models.CharField(choices=[('page', 'page'), ('api', 'api'), ('page-bulk', 'page-bulk'), ('api-bulk', 'api-bulk'), ('console', 'console')], max_length=10),
        ),
        migrations.AddField(
            model_name='delegation',
            name='delegate',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='delegations_taken', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='delegation',
            name='delegator',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='delegations_given', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='decision',
            name='delegation',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='decisions', to='approvals.delegation'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.UniqueConstraint(condition=models.Q(('incident', '')), fields=('approval', 'user', 'answer'), name='approvals_decision_once'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.UniqueConstraint(condition=models.Q(('incident', ''), _negated=True), fields=('approval',), name='approvals_glass_once'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.UniqueConstraint(models.F('approval'), models.F('answer'), django.db.models.functions.comparison.Coalesce('stands_for', 'user'), condition=models.Q(('incident', '')), name='approvals_right_used_once'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('delegation__isnull', True), ('stands_for__isnull', True), ('stands_for_name', '')), models.Q(('delegation__isnull', False), ('stands_for__isnull', False), models.Q(('stands_for_name', ''), _negated=True), models.Q(('stands_for', models.F('user')), _negated=True)), _connector='OR'), name='approvals_both_names'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.CheckConstraint(condition=models.Q(('incident', ''), models.Q(('answer', 'approve'), models.Q(('reason', ''), _negated=True)), _connector='OR'), name='approvals_glass_has_reason'),
        ),
        migrations.AddField(
            model_name='review',
            name='approval',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='reviews', to='approvals.approval'),
        ),
        migrations.AddField(
            model_name='review',
            name='closed_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='review',
            name='decision',
            field=models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='review', to='approvals.decision'),
        ),
        migrations.AddField(
            model_name='review',
            name='opened_by',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddIndex(
            model_name='delegation',
            index=models.Index(condition=models.Q(('withdrawn_at__isnull', True)), fields=['delegate', 'ends_at'], name='approvals_covers_of'),
        ),
        migrations.AddIndex(
            model_name='delegation',
            index=models.Index(fields=['delegator', '-id'], name='approvals_covered_by'),
        ),
        migrations.AddConstraint(
            model_name='delegation',
            constraint=models.CheckConstraint(condition=models.Q(('delegator', models.F('delegate')), _negated=True), name='approvals_delegated_to_another'),
        ),
        migrations.AddConstraint(
            model_name='delegation',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at__gt', models.F('starts_at'))), name='approvals_delegation_has_time'),
        ),
        migrations.AddIndex(
            model_name='review',
            index=models.Index(condition=models.Q(('closed_at__isnull', True)), fields=['-id'], name='approvals_open_reviews'),
        ),
        migrations.AddConstraint(
            model_name='review',
            constraint=models.CheckConstraint(condition=models.Q(('closed_by__isnull', True), models.Q(('closed_by', models.F('opened_by')), _negated=True), _connector='OR'), name='approvals_review_by_another'),
        ),
        migrations.AddConstraint(
            model_name='review',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('closed_at__isnull', True), ('closed_by__isnull', True), ('finding', '')), models.Q(('closed_at__isnull', False), ('closed_by__isnull', False), models.Q(('finding', ''), _negated=True)), _connector='OR'), name='approvals_review_closed_whole'),
        ),
        migrations.RunSQL(walls_who.INSTALL, walls_who.REMOVE),
        migrations.RunSQL(walls.INSTALL + walls.DOOR, migrations.RunSQL.noop),
    ]
