-- A run that a person has closed claims no further row, also after a review has opened it again for one receipt.

ALTER TABLE runs
    ADD COLUMN withdrawn_at    timestamptz,
    ADD COLUMN withdrawn_by    text,
    ADD COLUMN withdrawn_note  text,
    ADD CONSTRAINT runs_withdrawn CHECK ((withdrawn_at IS NULL) = (withdrawn_by IS NULL) AND (withdrawn_at IS NULL) = (withdrawn_note IS NULL));
COMMENT ON COLUMN runs.withdrawn_at IS 'When a person first closed it: rows that nobody had claimed by then are never claimed.';
COMMENT ON COLUMN runs.withdrawn_by IS 'Who that was; kept when a review opens the run again.';
COMMENT ON COLUMN runs.withdrawn_note IS 'Why.';
