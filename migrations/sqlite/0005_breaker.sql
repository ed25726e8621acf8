-- A destination that has failed again and again is left alone by every worker, now and later ones, until its probes
-- are accepted.

ALTER TABLE destination_pace ADD COLUMN breaker_opened_at INTEGER;
ALTER TABLE destination_pace ADD COLUMN probe_at INTEGER CHECK ((breaker_opened_at IS NULL) = (probe_at IS NULL));
ALTER TABLE destination_pace ADD COLUMN probes_accepted INTEGER NOT NULL DEFAULT 0;
