"""The id of a frozen saga is kept as Postgres writes it: claims compare text, and another way of
writing it (capitals, braces, `urn:uuid:`) held nothing."""

from uuid import UUID

from django.db import migrations, models


def rewrite(apps, schema_editor):
    """An odd one holds its saga from here on. What is no id at all held nothing, and is told so."""
    for freeze in apps.get_model("ledger", "Freeze").objects.filter(scope="saga"):
        try:
            value = str(UUID(freeze.value))
        except ValueError:
            value = str(UUID(int=0))
            freeze.reason = f"{freeze.reason} (it named {freeze.value!r}, which is no saga)"
        if value != freeze.value:
            freeze.value = value
            freeze.save(update_fields=["value", "reason"])


class Migration(migrations.Migration):
    dependencies = [("ledger", "0018_a_doubt_stays_one")]

    operations = [
        migrations.RunPython(rewrite, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="freeze",
            constraint=models.CheckConstraint(
                condition=models.Q(("scope", "saga"), _negated=True)
                | models.Q(("value__regex", "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")),
                name="ledger_freeze_of_saga",
            ),
        ),
    ]
