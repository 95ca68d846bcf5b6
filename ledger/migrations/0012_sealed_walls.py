"""A saga's identity and an effect's claim are frozen, and no temporary table stands in for ours."""

from django.db import migrations, models

from ledger import walls, walls_frozen


class Migration(migrations.Migration):
    dependencies = [("ledger", "0011_what_was_told_may_leave")]

    operations = [
        migrations.AddConstraint(
            model_name="saga",
            constraint=models.CheckConstraint(
                condition=models.Q(step_count__gte=0), name="ledger_saga_step_count"
            ),
        ),
        migrations.RunSQL(
            walls_frozen.FROZEN + walls.SEAL, migrations.RunSQL.noop
        ),
    ]
