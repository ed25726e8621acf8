-- The suppression list: keyed hashes of addresses that get nothing, for every type of digest ('') or for one. Only
-- what the keyring's stable secret hashes can be compared with it; no address can be read from it.

CREATE TABLE suppressions (
    address_hash  BLOB    NOT NULL CHECK (length(address_hash) = 32),
    digest_type   TEXT    NOT NULL,
    reason        TEXT    NOT NULL CHECK (reason <> ''),
    added_at      INTEGER NOT NULL,
    PRIMARY KEY (address_hash, digest_type)
) STRICT, WITHOUT ROWID;
