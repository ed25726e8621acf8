-- The suppression list: keyed hashes of addresses that get nothing, for every type of digest ('') or for one. Only
-- what the keyring's stable secret hashes can be compared with it; no address can be read from it.

CREATE TABLE suppressions (
    address_hash  bytea       NOT NULL CHECK (octet_length(address_hash) = 32),
    digest_type   text        NOT NULL,
    reason        text        NOT NULL CHECK (reason <> ''),
    added_at      timestamptz NOT NULL,
    PRIMARY KEY (address_hash, digest_type)
);
COMMENT ON TABLE suppressions IS 'Who gets nothing, read right before each batch is sent. Holds no address.';
COMMENT ON COLUMN suppressions.address_hash IS 'Keyed hash of the normalised address under the keyring''s stable secret, 32 bytes.';
COMMENT ON COLUMN suppressions.digest_type IS 'The type of digest that is not sent; empty for every type.';
COMMENT ON COLUMN suppressions.reason IS 'A word that says why, as it was given when the entry was made.';
COMMENT ON COLUMN suppressions.added_at IS 'When the entry was made.';
