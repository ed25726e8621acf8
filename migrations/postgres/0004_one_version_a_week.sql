-- One digest a week across content versions: runs of one week and type are opened one after the other, and a run may
-- be for those only whom no other version has served.

CREATE TABLE digest_weeks (
    iso_week         integer     NOT NULL,
    digest_type      text        NOT NULL,
    last_decided_at  timestamptz NOT NULL,
    PRIMARY KEY (iso_week, digest_type)
) WITH (fillfactor = 50);
COMMENT ON TABLE digest_weeks IS 'One row a week and type, locked while it is decided which version may have an open run.';
COMMENT ON COLUMN digest_weeks.iso_week IS 'ISO year * 100 + week.';
COMMENT ON COLUMN digest_weeks.digest_type IS 'Type of digest.';
COMMENT ON COLUMN digest_weeks.last_decided_at IS 'When a run of it was last opened or joined, or opened again by a review.';

ALTER TABLE runs ADD COLUMN only_unsent boolean NOT NULL DEFAULT false;
ALTER TABLE runs ADD CONSTRAINT runs_version CHECK (NOT (correction AND only_unsent));
COMMENT ON COLUMN runs.only_unsent IS 'For those only whom no other version of the week has served.';

ALTER TABLE run_parts ADD COLUMN foreign_other_version bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN run_parts.foreign_other_version IS 'Rows left out because another content version has served them or may have.';
