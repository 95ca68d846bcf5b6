"""No request opens or ends without its notice (approvals/messagewalls.py)."""

from django.db import migrations

from approvals.messagewalls import INSTALL, REMOVE


class Migration(migrations.Migration):
    dependencies = [("approvals", "0004_policy_terms_and_limits"), ("ledger", "0008_messages")]

    operations = [migrations.RunSQL(INSTALL, REMOVE)]
