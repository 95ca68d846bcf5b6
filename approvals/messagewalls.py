"""No request opens or ends without its notice: one trigger, whoever writes the state."""

from __future__ import annotations

from approvals.states import ApprovalState

INSTALL = f"""
CREATE OR REPLACE FUNCTION approvals_approval_notice() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    INSERT INTO ledger_notice (saga_id, about, kind, round, groups)
        VALUES (NEW.saga_id, NEW.id, 'approval.' || CASE NEW.state
            WHEN '{ApprovalState.PENDING}' THEN 'requested' ELSE NEW.state END, 0, '[]')
        ON CONFLICT DO NOTHING;
    RETURN NULL;
END $wall$;
CREATE OR REPLACE TRIGGER approvals_approval_opens AFTER INSERT ON approvals_approval
    FOR EACH ROW WHEN (NEW.state = '{ApprovalState.PENDING}')
    EXECUTE FUNCTION approvals_approval_notice();
CREATE OR REPLACE TRIGGER approvals_approval_ends AFTER UPDATE OF state ON approvals_approval
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state)
    EXECUTE FUNCTION approvals_approval_notice();
"""
FUNCTIONS = ("approvals_approval_notice",)
# Dropping a function with CASCADE drops the triggers that call it, and nothing else.
REMOVE = "\n".join(f"DROP FUNCTION IF EXISTS {name}() CASCADE;" for name in FUNCTIONS)
