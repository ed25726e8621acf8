-- What is remembered once a ledger turns out to be restored from an older copy, or failed over with a loss.

ALTER TABLE run_parts ADD COLUMN doubted_at timestamptz;
COMMENT ON COLUMN run_parts.doubted_at IS 'Rows of this part without a receipt may have been sent, at this instant at the earliest; emptied once they have one.';
ALTER TABLE runs ADD COLUMN loss_accepted_at timestamptz;
ALTER TABLE runs ADD COLUMN visits integer NOT NULL DEFAULT 0 CHECK (visits >= 0);
COMMENT ON COLUMN runs.visits IS 'Times that a process came to work on it or closed it; each is marked in the snapshot store.';
COMMENT ON COLUMN runs.loss_accepted_at IS 'When its owner last accepted that what this ledger does not know was not sent.';
COMMENT ON COLUMN runs.database_identity IS 'The database that it was opened in, or the one whose difference was last acted upon; empty where it does not tell.';
COMMENT ON COLUMN runs.database_timeline IS 'The database''s timeline then, where it has one.';
COMMENT ON COLUMN run_parts.marked_at IS 'Before the marker of this part is written to the snapshot store, which is before anything of it is claimed.';
