"""What the database itself does for messages: no fact without its notice, nothing taken back.

A saga's end, and its being stuck, leave a notice in the same transaction, whoever writes
the state: no service can forget it. A message that was delivered stays so.
"""

from __future__ import annotations

from ledger.states import MESSAGE_TRANSITIONS, SAGA_ENDED, MessageState, SagaState
from ledger.walls import transition_wall
from ledger.walls_sql import REFUSED, kept

_ENDS = ", ".join(f"'{state}'" for state in sorted(SAGA_ENDED))

# People on call want to hear of every stuck saga, the agent of its own saga's end as well.
SAGA_TOLD = f"""
CREATE OR REPLACE FUNCTION ledger_saga_notice() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    INSERT INTO ledger_notice (saga_id, about, kind, round, groups)
        VALUES (NEW.id, NEW.id, 'saga.' || NEW.state, NEW.head_seq, '[]')
        ON CONFLICT DO NOTHING;
    RETURN NULL;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_saga_notice AFTER UPDATE OF state ON ledger_saga
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state AND (
        NEW.state = '{SagaState.STUCK}' OR NEW.webhook <> '' AND NEW.state IN ({_ENDS})))
    EXECUTE FUNCTION ledger_saga_notice();
"""

_SAYS = "(id, notice_id, about, channel, form, recipients, content, created_at)"


def _row(prefix: str, columns: str) -> str:
    names = columns.strip("()").split(", ")
    return "(" + ", ".join(f"{prefix}.{name}" for name in names) + ")"


_FACT = "(id, saga_id, about, kind, round, groups, at)"

# Only what has come to its end, about a saga that has left, may ever go.
KEPT = f"""
CREATE OR REPLACE FUNCTION ledger_message_kept() RETURNS trigger LANGUAGE plpgsql AS $wall$
DECLARE gone jsonb;
BEGIN
    IF TG_OP = 'DELETE' THEN
        gone := to_jsonb(OLD);
        IF (CASE TG_TABLE_NAME WHEN 'ledger_notice' THEN gone ->> 'spread_at' IS NOT NULL
                ELSE gone ->> 'state' <> '{MessageState.WAITING}' END)
            AND NOT EXISTS (SELECT FROM ledger_saga WHERE id = coalesce((gone ->> 'saga_id')::uuid,
                (SELECT saga_id FROM ledger_notice WHERE id = (gone ->> 'notice_id')::bigint))) THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION '% keeps its rows: % is refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = '{REFUSED}';
END $wall$;
{kept("ledger_message", "ledger_message_kept")}
CREATE OR REPLACE TRIGGER ledger_message_says_the_same BEFORE UPDATE ON ledger_message
    FOR EACH ROW WHEN ({_row("OLD", _SAYS)} IS DISTINCT FROM {_row("NEW", _SAYS)})
    EXECUTE FUNCTION ledger_message_kept();
{kept("ledger_notice", "ledger_message_kept")}
CREATE OR REPLACE TRIGGER ledger_notice_spread_once BEFORE UPDATE ON ledger_notice
    FOR EACH ROW WHEN (OLD.spread_at IS NOT NULL
        OR {_row("OLD", _FACT)} IS DISTINCT FROM {_row("NEW", _FACT)})
    EXECUTE FUNCTION ledger_message_kept();
"""

INSTALL = (
    # No saga: messages stay when one is archived, so none comes back with it.
    transition_wall(
        *("ledger_message", "message", MESSAGE_TRANSITIONS, [MessageState.WAITING]), "NULL::uuid"
    )
    + SAGA_TOLD
    + KEPT
)
FUNCTIONS = ("ledger_message_transition", "ledger_saga_notice", "ledger_message_kept")
# Dropping a function with CASCADE drops the triggers that call it, and nothing else.
REMOVE = "\n".join(f"DROP FUNCTION IF EXISTS {name}() CASCADE;" for name in FUNCTIONS)
