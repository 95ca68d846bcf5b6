"""Whose right an answer uses, and what breaking the glass costs: rules that hold whoever connects.

The unique index `approvals_right_used_once` keeps any right from counting twice in one quorum.
"""

from __future__ import annotations

from approvals.states import ApprovalState
from ledger.walls_sql import REFUSED

# A right is lent by its owner, for a time, and only its owner's delegate can use it.
LENT = f"""
CREATE OR REPLACE FUNCTION approvals_right_is_lent() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF NOT EXISTS (SELECT FROM approvals_delegation d
            WHERE d.id = NEW.delegation_id AND d.delegate_id = NEW.user_id
            AND d.delegator_id = NEW.stands_for_id AND d.withdrawn_at IS NULL
            AND d.starts_at <= clock_timestamp() AND d.ends_at > clock_timestamp())
        AND NOT ledger_is_returning((SELECT saga_id FROM approvals_approval
            WHERE id = NEW.approval_id)) THEN
        RAISE EXCEPTION 'nobody has lent % this right', NEW.username USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER approvals_right_is_lent BEFORE INSERT ON approvals_decision
    FOR EACH ROW WHEN (NEW.stands_for_id IS NOT NULL)
    EXECUTE FUNCTION approvals_right_is_lent();
CREATE OR REPLACE FUNCTION approvals_delegation_kept() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF OLD.withdrawn_at IS NOT NULL
        OR to_jsonb(OLD) - 'withdrawn_at' <> to_jsonb(NEW) - 'withdrawn_at' THEN
        RAISE EXCEPTION 'delegation % can only be withdrawn', OLD.id USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER approvals_delegation_kept BEFORE UPDATE ON approvals_delegation
    FOR EACH ROW EXECUTE FUNCTION approvals_delegation_kept();
CREATE OR REPLACE TRIGGER approvals_delegation_no_delete BEFORE DELETE ON approvals_delegation
    FOR EACH ROW EXECUTE FUNCTION approvals_kept();
CREATE OR REPLACE TRIGGER approvals_delegation_no_truncate BEFORE TRUNCATE
    ON approvals_delegation FOR EACH STATEMENT EXECUTE FUNCTION approvals_kept();
"""

# Checked at COMMIT: no yes under break-glass without its review.
GLASS = f"""
CREATE OR REPLACE FUNCTION approvals_glass_is_reviewed() RETURNS trigger
LANGUAGE plpgsql AS $wall$
BEGIN
    IF NOT EXISTS (SELECT FROM approvals_review r WHERE r.decision_id = NEW.id
            AND r.approval_id = NEW.approval_id AND r.opened_by_id = NEW.user_id) THEN
        RAISE EXCEPTION 'the yes % broke the glass and has no review', NEW.id
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NULL;
END $wall$;
DROP TRIGGER IF EXISTS approvals_glass_is_reviewed ON approvals_decision;
CREATE CONSTRAINT TRIGGER approvals_glass_is_reviewed AFTER INSERT ON approvals_decision
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.incident <> '')
    EXECUTE FUNCTION approvals_glass_is_reviewed();
CREATE OR REPLACE FUNCTION approvals_review_kept() RETURNS trigger LANGUAGE plpgsql AS $wall$
DECLARE ends text[] := ARRAY['closed_by_id', 'closed_name', 'closed_at', 'finding'];
BEGIN
    IF OLD.closed_at IS NOT NULL OR to_jsonb(OLD) - ends <> to_jsonb(NEW) - ends THEN
        RAISE EXCEPTION 'review % is closed once and never rewritten', OLD.id
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER approvals_review_kept BEFORE UPDATE ON approvals_review
    FOR EACH ROW EXECUTE FUNCTION approvals_review_kept();
CREATE OR REPLACE TRIGGER approvals_review_no_delete BEFORE DELETE ON approvals_review
    FOR EACH ROW EXECUTE FUNCTION approvals_kept();
CREATE OR REPLACE TRIGGER approvals_review_no_truncate BEFORE TRUNCATE ON approvals_review
    FOR EACH STATEMENT EXECUTE FUNCTION approvals_kept();
CREATE OR REPLACE FUNCTION approvals_no_review_open() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF EXISTS (SELECT FROM approvals_review r JOIN approvals_approval a ON a.id = r.approval_id
        WHERE a.saga_id = NEW.saga_id AND r.closed_at IS NULL) THEN
        RAISE EXCEPTION 'saga % cannot be archived: a review of it is open', NEW.saga_id
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER approvals_no_review_open BEFORE INSERT ON ledger_tombstone
    FOR EACH ROW EXECUTE FUNCTION approvals_no_review_open();
"""

INSTALL = LENT + GLASS
FUNCTIONS = (
    "approvals_right_is_lent",
    "approvals_delegation_kept",
    "approvals_glass_is_reviewed",
    "approvals_review_kept",
    "approvals_no_review_open",
)
REMOVE = "\n".join(f"DROP FUNCTION IF EXISTS {name}() CASCADE;" for name in FUNCTIONS)
# What an answered request may rest on instead of its needs (approvals/walls.py).
BROKEN = f"""NEW.state = '{ApprovalState.APPROVED}' AND EXISTS (SELECT FROM approvals_decision d
        JOIN approvals_review r ON r.decision_id = d.id
        WHERE d.approval_id = NEW.id AND d.args_digest = NEW.args_digest
        AND d.answer = 'approve' AND d.incident <> '')"""
