"""What people are asked, and what they answered."""

import django.db.models.deletion
import ledger.models.fields
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('ledger', '0002_walls'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Approval',
            fields=[
                ('id', models.UUIDField(default=ledger.models.fields.uuid7, editable=False, primary_key=True, serialize=False)),
                ('direction', models.CharField(choices=[('forward', 'forward'), ('compensate', 'compensate'), ('correct', 'correct')], max_length=10)),
                ('tool', models.CharField(max_length=200)),
                ('tool_version', models.CharField(max_length=100)),
                ('tool_digest', models.CharField(max_length=64)),
                ('args_text', models.TextField()),
                ('args_digest', models.CharField(max_length=64)),
                ('idempotency_key', models.CharField(max_length=90)),
                ('rule', models.CharField(max_length=200)),
                ('policy_digest', models.CharField(max_length=64)),
                ('needs', models.JSONField()),
                ('lasts', models.DurationField()),
                ('require_reason', models.BooleanField(default=False)),
                ('why', models.TextField(blank=True, default='')),
                ('expires_at', models.DateTimeField()),
                ('created_at', models.DateTimeField(db_default=ledger.models.fields.ClockTimestamp())),
                ('state', models.CharField(choices=[('pending', 'pending'), ('approved', 'approved'), ('rejected', 'rejected'), ('change_requested', 'change requested'), ('expired', 'expired'), ('superseded', 'superseded'), ('cancelled', 'cancelled')], default='pending', max_length=16)),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('ended_why', models.TextField(blank=True, default='')),
                ('yes_until', models.DateTimeField(blank=True, null=True)),
                ('used_at', models.DateTimeField(blank=True, null=True)),
                ('saga', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='approvals', to='ledger.saga')),
                ('step', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='approvals', to='ledger.step')),
                ('superseded_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='supersedes', to='approvals.approval')),
            ],
        ),
        migrations.CreateModel(
            name='Decision',
            fields=[
                ('id', models.UUIDField(default=ledger.models.fields.uuid7, editable=False, primary_key=True, serialize=False)),
                ('username', models.CharField(max_length=150)),
                ('answer', models.CharField(choices=[('approve', 'approve'), ('reject', 'reject'), ('request_change', 'request_change')], max_length=20)),
                ('reason', models.TextField(blank=True, default='')),
                ('args_digest', models.CharField(max_length=64)),
                ('via', models.CharField(choices=[('page', 'page'), ('api', 'api')], max_length=10)),
                ('at', models.DateTimeField(db_default=ledger.models.fields.ClockTimestamp())),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='decisions', to='approvals.approval')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='decisions', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(fields=['step', 'direction', '-id'], name='approvals_of_step'),
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(fields=['state', '-id'], name='approvals_by_state'),
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(condition=models.Q(('state', 'pending')), fields=['expires_at'], name='approvals_due'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['pending', 'approved', 'rejected', 'change_requested', 'expired', 'superseded', 'cancelled'])), name='approvals_approval_state_known'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'pending')), fields=('step', 'direction'), name='approvals_one_question_at_a_time'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'approved'), _negated=True), models.Q(('decided_at__isnull', False), ('yes_until__isnull', False)), _connector='OR'), name='approvals_yes_ends'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('state', 'pending')), models.Q(models.Q(('state', 'pending'), _negated=True), ('ended_at__isnull', False)), _connector='OR'), name='approvals_approval_ended_at'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.CheckConstraint(condition=models.Q(('expires_at__gt', models.F('created_at'))), name='approvals_has_deadline'),
        ),
        migrations.AddIndex(
            model_name='decision',
            index=models.Index(fields=['user', '-id'], name='approvals_decisions_of'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.UniqueConstraint(fields=('approval', 'user', 'answer'), name='approvals_decision_once'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.CheckConstraint(condition=models.Q(('answer__in', ['approve', 'reject', 'request_change'])), name='approvals_decision_answer_known'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.CheckConstraint(condition=models.Q(('answer', 'approve'), models.Q(('reason', ''), _negated=True), _connector='OR'), name='approvals_no_has_reason'),
        ),
    ]
