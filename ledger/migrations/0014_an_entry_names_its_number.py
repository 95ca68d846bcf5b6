"""An entry that names its number is that one, or is refused: somebody else wrote meanwhile."""

from django.db import migrations

from ledger import walls, walls_sql


class Migration(migrations.Migration):
    dependencies = [("ledger", "0013_what_the_queue_says_is_counted")]

    operations = [migrations.RunSQL(walls_sql.CHAIN + walls.SEAL, migrations.RunSQL.noop)]
