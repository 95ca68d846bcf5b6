"""Whether a limit gets something back is asked by the function, not by the trigger's condition,
which Postgres reads from its text in every statement (docs/decisions/0101-walls-of-columns.md)."""

from django.db import migrations

from approvals import walls


class Migration(migrations.Migration):
    dependencies = [("approvals", "0009_sealed_with_its_saga")]

    operations = [migrations.RunSQL(walls.LIMITS + walls.SEAL, migrations.RunSQL.noop)]
