"""Passwords that were tried, so that guessing can be counted."""

import ledger.models.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='LoginTry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('account', models.CharField(max_length=64)),
                ('address', models.CharField(max_length=64)),
                ('is_good', models.BooleanField(default=False)),
                ('at', models.DateTimeField(db_default=ledger.models.fields.ClockTimestamp())),
            ],
            options={
                'indexes': [models.Index(fields=['account', '-at'], name='saga_tries_of_account'), models.Index(condition=models.Q(('is_good', False)), fields=['address', '-at'], name='saga_tries_from'), models.Index(fields=['at'], name='saga_tries_by_age')],
            },
        ),
    ]
