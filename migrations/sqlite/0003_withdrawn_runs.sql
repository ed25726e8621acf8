-- A run that a person has closed claims no further row, also after a review has opened it again for one receipt.

ALTER TABLE runs ADD COLUMN withdrawn_at INTEGER;
ALTER TABLE runs ADD COLUMN withdrawn_by TEXT CHECK ((withdrawn_at IS NULL) = (withdrawn_by IS NULL));
ALTER TABLE runs ADD COLUMN withdrawn_note TEXT CHECK ((withdrawn_at IS NULL) = (withdrawn_note IS NULL));
