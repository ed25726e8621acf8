-- A destination that has failed again and again is left alone by every worker, now and later ones, until its probes
-- are accepted.

ALTER TABLE destination_pace
    ADD COLUMN breaker_opened_at  timestamptz,
    ADD COLUMN probe_at           timestamptz,
    ADD COLUMN probes_accepted    integer NOT NULL DEFAULT 0,
    ADD CONSTRAINT destination_pace_breaker CHECK ((breaker_opened_at IS NULL) = (probe_at IS NULL));
COMMENT ON TABLE destination_pace IS 'The rate, the pause and the breaker that all workers of a destination share.';
COMMENT ON COLUMN destination_pace.breaker_opened_at IS 'Since when nothing goes there but probes; NULL while it is trusted.';
COMMENT ON COLUMN destination_pace.probe_at IS 'When the next probe may go out.';
COMMENT ON COLUMN destination_pace.probes_accepted IS 'Probes that were accepted in a row since it opened.';
