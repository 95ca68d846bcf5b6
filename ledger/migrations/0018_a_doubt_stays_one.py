"""What was to be sent again, to find out, and is not, is unknown again, and keeps its effect.

A step whose next version people have asked its agent for may have been in doubt until then, and
lost what said so: it is told again, so that nothing else runs in its place.
"""

from django.db import migrations

from ledger import walls, walls_frozen

IN_DOUBT = """
UPDATE ledger_step s SET error = jsonb_build_object('code', 'unknown', 'detail',
    coalesce(s.error ->> 'detail', ''))
WHERE s.state = 'change_requested' AND EXISTS (
    SELECT 1 FROM ledger_attempt a JOIN ledger_idempotencyrecord r ON r.key = a.idempotency_key
    WHERE a.step_id = s.id AND a.direction = 'forward' AND a.state = 'unknown'
        AND r.state = 'pending')
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0017_sealed_as_it_left")]

    operations = [
        migrations.RunSQL(walls.STEP_WALL + walls_frozen.FROZEN + walls.SEAL, migrations.RunSQL.noop),
        migrations.RunSQL(IN_DOUBT, migrations.RunSQL.noop),
    ]
