"""What is left of the CHECK constraints on a step's path, and the foreign key of an entry, become
triggers of the columns that they are about (docs/decisions/0101-walls-of-columns.md)."""

import django.db.models.deletion
from django.db import migrations, models

from ledger import doors, walls, walls_frozen


class Migration(migrations.Migration):
    dependencies = [("ledger", "0019_a_freeze_names_its_saga")]

    operations = [
        # All at once, and the saga's first, as everybody else takes them: one after another, they
        # deadlock with the steps that run meanwhile.
        migrations.RunSQL(
            "LOCK TABLE ledger_saga, ledger_step, ledger_outboxmessage, ledger_entry, "
            "ledger_idempotencyrecord, ledger_attempt, ledger_effectclaim, ledger_toolversion "
            "IN ACCESS EXCLUSIVE MODE",
            migrations.RunSQL.noop,
        ),
        # The new walls first: at no moment is there none.
        migrations.RunSQL(
            walls.INSTALL + walls_frozen.FROZEN + doors.INSTALL + walls.SEAL,
            migrations.RunSQL.noop,
        ),
        migrations.RemoveConstraint(model_name="attempt", name="ledger_attempt_state_known"),
        migrations.RemoveConstraint(
            model_name="idempotencyrecord", name="ledger_record_state_known"
        ),
        migrations.RemoveConstraint(model_name="outboxmessage", name="ledger_outbox_kind_known"),
        migrations.RemoveConstraint(model_name="saga", name="ledger_saga_step_count"),
        migrations.AlterField(
            model_name="attempt", name="alternative", field=models.IntegerField(default=0)
        ),
        migrations.AlterField(model_name="attempt", name="fence", field=models.IntegerField()),
        migrations.AlterField(
            model_name="attempt", name="round", field=models.IntegerField(default=0)
        ),
        migrations.AlterField(
            model_name="entry",
            name="saga",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="entries",
                to="ledger.saga",
            ),
        ),
        migrations.AlterField(
            model_name="outboxmessage", name="negatives", field=models.IntegerField(default=0)
        ),
        migrations.AlterField(
            model_name="outboxmessage", name="round", field=models.IntegerField(default=0)
        ),
        migrations.AlterField(
            model_name="outboxmessage", name="saga_fence", field=models.IntegerField()
        ),
    ]
