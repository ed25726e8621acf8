-- What is remembered once a ledger turns out to be restored from an older copy.

ALTER TABLE run_parts ADD COLUMN doubted_at INTEGER;
ALTER TABLE runs ADD COLUMN loss_accepted_at INTEGER;
ALTER TABLE runs ADD COLUMN visits INTEGER NOT NULL DEFAULT 0 CHECK (visits >= 0);
