-- One digest a week across content versions: runs of one week and type are opened one after the other, and a run may
-- be for those only whom no other version has served.

CREATE TABLE digest_weeks (
    iso_week         INTEGER NOT NULL,
    digest_type      TEXT    NOT NULL,
    last_decided_at  INTEGER NOT NULL,
    PRIMARY KEY (iso_week, digest_type)
) STRICT, WITHOUT ROWID;

ALTER TABLE runs ADD COLUMN only_unsent INTEGER NOT NULL DEFAULT 0
    CHECK (only_unsent IN (0, 1) AND NOT (correction AND only_unsent));

ALTER TABLE run_parts ADD COLUMN foreign_other_version INTEGER NOT NULL DEFAULT 0;
